"""Lua scripts for leases: each checks the holder's token first."""

LEASE_SOURCES = {
    # ARGV: token, time to live, node id, row, the token that may be replaced.
    "claim_lease": """
        local held = redis.call('GET', KEYS[1])
        if held and held ~= ARGV[1] and held ~= ARGV[5] then return 0 end
        redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
        redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
        return 1
    """,
    # A lease is renewed by its holder alone. PEXPIRE works when the memory is full.
    "renew_lease": """
        if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
        return redis.call('PEXPIRE', KEYS[1], ARGV[2])
    """,
    "drop_lease": """
        if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
        redis.call('HDEL', KEYS[2], ARGV[2])
        return redis.call('DEL', KEYS[1])
    """,
    # The row is marked too: after an outage rows without leases count as alive for a while, and this one is not.
    # A process rewrites its row when it has more to say, so its token is compared, not what was seen.
    # ARGV: token, node id, row as it is to be.
    "depose_node": """
        local held = redis.call('GET', KEYS[1])
        if held and held ~= ARGV[1] then return 0 end
        local row = redis.call('HGET', KEYS[2], ARGV[2])
        if not row or cjson.decode(row).token ~= ARGV[1] then return 0 end
        redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
        redis.call('DEL', KEYS[1])
        return 1
    """,
}

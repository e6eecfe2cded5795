"""Lua scripts for owned state: every write checks the owner's token first."""

OWNED_SOURCES = {
    # A thing belongs to whoever took it last; the writes of anybody else change nothing. The owner's number only rises,
    # also over a store that went back in time: the one who takes brings the last number that it knows.
    "take_owned": """
        local before = redis.call('HGET', KEYS[1], 'owner')
        if not before and ARGV[3] == '0' then return false end
        local known = tonumber(string.match(before or '', '^%d+') or 0)
        local owner = string.format('%d.%s', math.max(known, tonumber(ARGV[1])) + 1, ARGV[2])
        redis.call('HSET', KEYS[1], 'owner', owner)
        return {owner, before, redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}
    """,
    # ARGV: owner, how many arguments set something, those in threes (key, field, value), then twos (key, field).
    "write_owned": """
        if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
        local removed_from = 3 + tonumber(ARGV[2])
        for at = 3, removed_from - 1, 3 do
            redis.call('HSET', KEYS[tonumber(ARGV[at])], ARGV[at + 1], ARGV[at + 2])
        end
        for at = removed_from, #ARGV, 2 do redis.call('HDEL', KEYS[tonumber(ARGV[at])], ARGV[at + 1]) end
        return 1
    """,
    "delete_owned": """
        if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
        redis.call('DEL', KEYS[1], KEYS[2])
        return 1
    """,
}

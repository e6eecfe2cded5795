"""Lua scripts for compaction: checks and changes that must be atomic.

Record bytes do not pass through them. A copy is accepted only from the pass that began last, if it was made over the
current compacted part, by the node known as the writer (`partition/origin.py`), and is complete: ids only rise, so a
copy written by two passes has a different number of entries than either of them counted.
"""

from __future__ import annotations

_MAY = """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        local known = redis.call('HMGET', KEYS[1], 'clean', 'server', 'cleaning')
        if (known[1] or '') ~= ARGV[1] or (known[2] or '') ~= ARGV[2] then return 0 end
"""

COMPACTING_SOURCES = {
    # KEYS: meta, log, then the copy and its index. ARGV: the state and the writer as they were read, the pass's token.
    "begin_clean": _MAY
    + """
        redis.call('HSET', KEYS[1], 'cleaning', ARGV[3])
        for at = 3, 4 do
            redis.call('UNLINK', KEYS[at])
            redis.call('XGROUP', 'CREATE', KEYS[at], 'headrace:making', '$', 'MKSTREAM')
            redis.call('XGROUP', 'DESTROY', KEYS[at], 'headrace:making')
        end
        return 1
    """,
    # KEYS: meta, log, the copy and its index, then what they replace. ARGV: as above, the entries of the copy and of
    # its index, the new state.
    "install_clean": _MAY
    + """
        if known[3] ~= ARGV[3] then return 0 end
        for at = 3, 4 do
            if redis.call('EXISTS', KEYS[at]) == 0 then return 0 end
            if redis.call('XLEN', KEYS[at]) ~= tonumber(ARGV[at + 1]) then return 0 end
        end
        for at = 3, 4 do
            redis.call('UNLINK', KEYS[at + 2])
            redis.call('RENAME', KEYS[at], KEYS[at + 2])
        end
        redis.call('HSET', KEYS[1], 'clean', ARGV[6])
        redis.call('HDEL', KEYS[1], 'cleaning')
        return 1
    """,
    # KEYS: meta, log, its index. ARGV: the state that was read, its border as an id, how many entries (0: all of them).
    # Checked with each step: a server that took over may not have the copy, and then needs what it was made of.
    "trim_to_clean": """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        if (redis.call('HGET', KEYS[1], 'clean') or '') ~= ARGV[1] then return false end
        if ARGV[3] ~= '0' then return redis.call('XTRIM', KEYS[2], 'MINID', '~', ARGV[2], 'LIMIT', ARGV[3]) end
        redis.call('XTRIM', KEYS[3], 'MINID', '=', ARGV[2])
        return redis.call('XTRIM', KEYS[2], 'MINID', '=', ARGV[2])
    """,
    # A pass that was given up, if no other one has begun since.
    "drop_clean": """
        if redis.call('HGET', KEYS[1], 'cleaning') ~= ARGV[1] then return 0 end
        redis.call('HDEL', KEYS[1], 'cleaning')
        return redis.call('UNLINK', KEYS[2], KEYS[3])
    """,
}

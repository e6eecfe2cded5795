"""Lua scripts for shared hashes: each change raises the version and records the field it touched.

The last changes are kept as a ring in a second hash, so that a node a few changes behind rereads only those fields.
Each record carries its version: if it is not the expected one (too old, or a change by a broker that records nothing),
everything is read.
"""

from __future__ import annotations

NOTES = 1_000

_NOTE_CHANGE = f"""
    local version = redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
    redis.call('HSET', KEYS[2], version % {NOTES}, string.format('%.0f %s', version, field))
"""

SHARED_HASH_SOURCES = {
    # A row is replaced only by one that was made from it; an empty one stands for none. The first version comes from
    # the clock, so that it is above those of a hash that was flushed.
    "change_row": f"""
        local field = ARGV[3]
        if (redis.call('HGET', KEYS[1], field) or '') ~= ARGV[4] then return 0 end
        if ARGV[5] == '' then redis.call('HDEL', KEYS[1], field)
        else redis.call('HSET', KEYS[1], field, ARGV[5]) end
        redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
        {_NOTE_CHANGE}
        return version
    """,
    # The versions of several hashes.
    "versions": """
        local versions = {}
        for at, key in ipairs(KEYS) do versions[at] = redis.call('HGET', key, ARGV[1]) or '0' end
        return versions
    """,
    # The version, and the fields and rows that changed since the one that is known; nothing if that cannot be told.
    "changed_rows": f"""
        local version = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0)
        local behind = version - tonumber(ARGV[2])
        if behind < 0 or behind > {NOTES} then return false end
        local changed = {{string.format('%.0f', version)}}
        for number = version - behind + 1, version do
            local note = redis.call('HGET', KEYS[2], number % {NOTES}) or ''
            local noted, field = string.match(note, '^(%d+) (.*)$')
            if tonumber(noted) ~= number then return false end
            changed[#changed + 1] = field
            changed[#changed + 1] = redis.call('HGET', KEYS[1], field)
        end
        return changed
    """,
    # A hash that went back in time is replaced by a newer copy.
    "restore_rows": """
        if tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0) >= tonumber(ARGV[2]) then return 0 end
        redis.call('DEL', KEYS[1], KEYS[2])
        redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
        for at = 3, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
        return 1
    """,
    # A topic is deleted by its id: one of the same name that was made meanwhile stays. Gives the record that it had.
    "delete_topic": f"""
        local field = ARGV[2]
        local record = redis.call('HGET', KEYS[1], field)
        if not record or cjson.decode(record).id ~= ARGV[3] then return false end
        redis.call('HDEL', KEYS[1], field)
        redis.call('HSET', KEYS[3], ARGV[3], record)
        {_NOTE_CHANGE}
        return {{version, record}}
    """,
    # As restore_rows; topics that the copy does not have were deleted, and their keys are swept. ARGV[3] is the version
    # that the copy was joined with: -1 if there is another one by now.
    "restore_topics": """
        local known = redis.call('HGET', KEYS[1], ARGV[1])
        if tonumber(known or 0) >= tonumber(ARGV[2]) then return 0 end
        if (known or '') ~= ARGV[3] then return -1 end
        local ids = {}
        for at = 4, #ARGV, 2 do ids[ARGV[at]] = cjson.decode(ARGV[at + 1]).id end
        local rows = redis.call('HGETALL', KEYS[1])
        for at = 1, #rows, 2 do
            if rows[at] ~= ARGV[1] and cjson.decode(rows[at + 1]).id ~= ids[rows[at]] then
                redis.call('HDEL', KEYS[1], rows[at])
                redis.call('HSET', KEYS[3], cjson.decode(rows[at + 1]).id, rows[at + 1])
            end
        end
        for at = 4, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
        redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
        redis.call('DEL', KEYS[2])
        return 1
    """,
}

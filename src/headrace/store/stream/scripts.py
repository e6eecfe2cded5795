"""Lua scripts for the format `stream`: entries and producer state of a batch are one atomic write.

Redis code may append between any two of our commands, so everything that depends on the last entry is decided on the
server, by its clock. Since ids rise, the first XADD decides: if it succeeds, all do.
"""

from headrace.store.redis.lua import BELOW

_IS_NEWER = (
    BELOW
    + """
        local function is_newer(one, other)
            local ms, sequence = string.match(one, '(%d+)%-(%d+)$')
            local other_ms, other_sequence = string.match(other, '(%d+)%-(%d+)$')
            if ms == other_ms then return below(other_sequence, sequence) end
            return below(other_ms, ms)
        end
"""
)
"""Whether the id that ends one text is above the one that ends the other."""

_SAVE_SEEN = """
        local function save_seen(key, seen)
            local known = string.match(redis.call('HGET', key, 'seen') or '', '%d+$') or '0'
            if below(known, string.match(seen, '%d+$')) then redis.call('HSET', key, 'seen', seen) end
        end
"""

STREAM_SOURCES = {
    # Entries that are there stay: a topic made over a stream takes it over.
    "make_stream": BELOW
    + """
        if redis.call('EXISTS', KEYS[1]) == 0 and ARGV[1] ~= '0' then
            local floor = redis.call('HGET', KEYS[4], 'floor') or '0'
            if below(floor, ARGV[1]) then redis.call('HSET', KEYS[4], 'floor', ARGV[1]) end
            redis.call('HSET', KEYS[4], 'remaking', 1)
        end
        for at = 1, 3 do
            if redis.call('EXISTS', KEYS[at]) == 0 then
                redis.call('XGROUP', 'CREATE', KEYS[at], 'headrace:making', '$', 'MKSTREAM')
                redis.call('XGROUP', 'DESTROY', KEYS[at], 'headrace:making')
            end
        end
        redis.call('HSETNX', KEYS[4], 'start', 0)
        redis.call('HSETNX', KEYS[4], 'format', 'stream')
        redis.call('HSETNX', KEYS[4], 'server', ARGV[3])
        redis.call('SET', KEYS[5], ARGV[2])
        return 1
    """,
    # A stream goes with the topic that owns it, not with one of the same name that was deleted before.
    "remove_stream": """
        if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
        redis.call('DEL', KEYS[1], KEYS[2])
        return 1
    """,
    # The table of exceptions grows by whoever knows all of it. `seen` tells how far offsets were given out where they
    # do not follow from the ids alone: it only rises.
    "save_exceptions": BELOW
    + _SAVE_SEEN
    + """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
        if (last and last[1] or '') ~= ARGV[1] then return 0 end
        for at = 3, #ARGV, 2 do redis.call('XADD', KEYS[1], ARGV[at], 'o', ARGV[at + 1]) end
        save_seen(KEYS[2], ARGV[2])
        return 1
    """,
    # What a store that went back in time lost of it; what is newer there stays.
    "restore_exceptions": _IS_NEWER
    + _SAVE_SEEN
    + """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
        for at = 2, #ARGV, 2 do
            if not last or is_newer(ARGV[at], last[1]) then
                redis.call('XADD', KEYS[1], ARGV[at], 'o', ARGV[at + 1])
            end
        end
        if ARGV[1] ~= '' then save_seen(KEYS[2], ARGV[1]) end
        return 1
    """,
    # So that nobody appends up to an id; never back, whoever raised it before.
    "raise_last_id": _IS_NEWER
    + """
        if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
        local info = redis.call('XINFO', 'STREAM', KEYS[1])
        for at = 1, #info, 2 do
            if info[at] == 'last-generated-id' and is_newer(ARGV[1], info[at + 1]) then
                redis.call('XSETID', KEYS[1], ARGV[1])
            end
        end
        return 1
    """,
    # States of producers whose batches are in the stream again; what is newer there stays.
    "restore_producers": _IS_NEWER
    + """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        local restored = 0
        for at = 1, #ARGV, 2 do
            local state = redis.call('HGET', KEYS[1], ARGV[at])
            if not state or is_newer(ARGV[at + 1], state) then
                redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
                restored = restored + 1
            end
        end
        if restored > 0 then redis.call('HINCRBY', KEYS[2], 'producers', 1) end
        return restored
    """,
    # A producer's state is removed unless it has become newer than it was known.
    "forget_producers": _IS_NEWER
    + """
        local removed = 0
        for at = 1, #ARGV, 2 do
            local state = redis.call('HGET', KEYS[1], ARGV[at])
            if state and not is_newer(state, ARGV[at + 1]) then
                removed = removed + redis.call('HDEL', KEYS[1], ARGV[at])
            end
        end
        if removed > 0 and redis.call('EXISTS', KEYS[2]) == 1 then redis.call('HINCRBY', KEYS[2], 'producers', 1) end
        return removed
    """,
    # KEYS: stream, meta, producers. ARGV: 1 batches, 2 last id that is known, 3 and 4 the first id that is free (or 4
    # all ids, if 5 is 0), 5 how many sequences a millisecond has, 6 whether nothing may have come since, 7 from which
    # millisecond on ids are exceptional, 8 the writer's field in meta, 9 its name, 10 the append's number, which rises,
    # then producers with their states.
    # Gives {1, entries that came between, version of the producers, first id of each batch}, {2, first ids} if it was
    # done before, {0} if more has to be read first (or a later one was done), {-1} if the partition is gone.
    "append_records": """
        if redis.call('EXISTS', KEYS[2]) == 0 then return {-1} end
        local done = redis.call('HGET', KEYS[2], ARGV[8])
        if done then
            local writer, number, ids = string.match(done, '^(%S+) (%d+) (.*)$')
            if writer == ARGV[9] and number == ARGV[10] then return {2, ids} end
            if writer == ARGV[9] and tonumber(number) > tonumber(ARGV[10]) then return {0} end
        end
        for at = 11, #ARGV, 2 do
            if (redis.call('HGET', KEYS[3], ARGV[at]) or '') ~= ARGV[at + 1] then return {0} end
        end
        local between = redis.call('XRANGE', KEYS[1], '(' .. ARGV[2], '+', 'COUNT', 501)
        if #between > 500 or (#between > 0 and ARGV[6] == '1') then return {0} end

        local width, explicit = tonumber(ARGV[5]), {}
        local ms, sequence = tonumber(ARGV[3]), 0
        if width == 0 then
            for id in string.gmatch(ARGV[4], '%S+') do explicit[#explicit + 1] = id end
        else
            sequence = tonumber(ARGV[4])
            local time = redis.call('TIME')
            local now = time[1] * 1000 + math.floor(time[2] / 1000)
            if now > ms then ms, sequence = now, 0 end
            for _, row in ipairs(between) do
                local row_ms, row_sequence = string.match(row[1], '(%d+)-(%d+)')
                row_ms, row_sequence = tonumber(row_ms), tonumber(row_sequence)
                if row_sequence >= width or row_ms >= tonumber(ARGV[7]) then return {0} end
                if row_ms > ms or (row_ms == ms and row_sequence >= sequence) then
                    ms, sequence = row_ms, row_sequence + 1
                end
            end
        end

        local reply, states, order, written = {1, #between, 0}, {}, {}, 0
        local prefix, prefix_ms = '', -1
        local call, key = redis.call, KEYS[1]
        for _, batch in ipairs(cmsgpack.unpack(ARGV[1])) do
            local count = #batch - 2
            if width > 0 and (sequence >= width or (sequence + count > width and count <= width)) then
                ms, sequence = ms + 1, 0
            end
            for at = 3, #batch do
                local id
                if width == 0 then
                    id = explicit[written + 1]
                else
                    if sequence == width then ms, sequence = ms + 1, 0 end
                    if ms ~= prefix_ms then prefix, prefix_ms = string.format('%.0f-', ms), ms end
                    id = prefix .. sequence
                    sequence = sequence + 1
                end
                if written == 0 then
                    local added = redis.pcall('XADD', KEYS[1], 'NOMKSTREAM', id, unpack(batch[at]))
                    if not added then return {-1} end
                    if type(added) == 'table' and added.err then
                        if string.find(added.err, 'equal or smaller', 1, true) then return {0} end
                        return redis.error_reply(added.err)
                    end
                else
                    call('XADD', key, 'NOMKSTREAM', id, unpack(batch[at]))
                end
                written = written + 1
                if at == 3 then reply[#reply + 1] = id end
            end
            local producer, head = batch[1], batch[2]
            if producer ~= '' then
                if not states[producer] then order[#order + 1] = producer end
                local before = string.sub(head, 1, 1) == ' ' and states[producer] or ''
                states[producer] = before .. head .. reply[#reply]
            end
        end
        for _, producer in ipairs(order) do redis.call('HSET', KEYS[3], producer, states[producer]) end
        if #order > 0 then reply[3] = redis.call('HINCRBY', KEYS[2], 'producers', 1) end
        redis.call('HSET', KEYS[2], ARGV[8], ARGV[9] .. ' ' .. ARGV[10] .. ' ' .. table.concat(reply, ' ', 4))
        return reply
    """,
}

"""Lua scripts for compaction: steps that must be atomic."""

from __future__ import annotations

COMPACTION_SOURCES = {
    # Removes entries, but none that a group has given to a consumer: that one may still ask for it. ARGV: ids, rising.
    # Gives back those that stay.
    "sweep": """
        if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
        local held = {}
        for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
            local facts = {}
            for at = 1, #group, 2 do facts[group[at]] = group[at + 1] end
            if facts.pending > 0 then
                local rows = redis.call(
                    'XPENDING', KEYS[1], facts.name, ARGV[1], ARGV[#ARGV], facts.pending)
                for _, row in ipairs(rows) do held[row[1]] = true end
            end
        end
        local gone, kept = {}, {}
        for _, id in ipairs(ARGV) do
            local list = held[id] and kept or gone
            list[#list + 1] = id
        end
        if #gone > 0 then redis.call('XDEL', KEYS[1], unpack(gone)) end
        return kept
    """,
    # What compaction knows belongs to a partition that is there, and follows from what was known when it began: of two
    # nodes that both compact for a moment the first one's word stands.
    "save_compaction": """
        if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
        if (redis.call('HGET', KEYS[1], 'compaction') or '') ~= ARGV[1] then return 0 end
        redis.call('HSET', KEYS[1], 'compaction', ARGV[2])
        return 1
    """,
    # Puts a copy in the place of a stream (KEYS: stream, copy): what came since, groups, consumers and what is pending
    # move over first, the counters with them. ARGV: last id that was copied, entries of the stream up to it, entries of
    # the copy, most entries to move, most pending ones, and ids that are in the copy only so that they can be pending.
    # The stream itself is touched by the last two commands alone, which cannot fail.
    "swap": """
        local stream, copy = KEYS[1], KEYS[2]
        local function facts_of(row)
            local facts = {}
            for at = 1, #row, 2 do facts[row[at]] = row[at + 1] end
            return facts
        end
        if redis.call('EXISTS', stream, copy) < 2 then return {'changed'} end
        local behind = redis.call('XLEN', stream) - tonumber(ARGV[2])
        if behind < 0 or redis.call('XLEN', copy) ~= tonumber(ARGV[3]) then return {'changed'} end
        if behind > tonumber(ARGV[4]) then return {'behind'} end
        local tail = redis.call('XRANGE', stream, '(' .. ARGV[1], '+')
        if #tail ~= behind then return {'changed'} end
        for _, entry in ipairs(tail) do
            if #entry[2] > 7000 then return {'behind'} end
        end
        local groups, pending = {}, 0
        for at, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
            groups[at] = facts_of(row)
            pending = pending + groups[at].pending
        end
        if pending > tonumber(ARGV[5]) then return {'pending'} end

        for _, entry in ipairs(tail) do redis.call('XADD', copy, entry[1], unpack(entry[2])) end
        local time = redis.call('TIME')
        local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
        local missing = {}
        local function are_alike(one, other)
            return one[2] == other[2] and one[3] == other[3] and one[4] == other[4]
        end
        -- What was delivered in one go has one consumer, time and count: one command for all of it.
        local function claim(group, rows, first, last)
            local command, due = {'XCLAIM', copy, group, rows[first][2], 0}, {}
            for at = first, last do
                command[#command + 1] = rows[at][1]
                due[rows[at][1]] = true
            end
            for _, word in ipairs({'TIME', string.format('%.0f', now_ms - rows[first][3]),
                    'RETRYCOUNT', rows[first][4], 'FORCE', 'JUSTID'}) do
                command[#command + 1] = word
            end
            for _, id in ipairs(redis.call(unpack(command))) do due[id] = nil end
            for id in pairs(due) do missing[#missing + 1] = id end
        end
        for _, group in ipairs(groups) do
            local create = {'XGROUP', 'CREATE', copy, group.name, group['last-delivered-id']}
            if group['entries-read'] then
                create[6], create[7] = 'ENTRIESREAD', group['entries-read']
            end
            redis.call(unpack(create))
            for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group.name)) do
                redis.call('XGROUP', 'CREATECONSUMER', copy, group.name, facts_of(row).name)
            end
            if group.pending > 0 then
                local rows = redis.call('XPENDING', stream, group.name, '-', '+', group.pending)
                local first = 1
                while first <= #rows do
                    local last = first
                    while last < #rows and last - first < 500 and are_alike(rows[first], rows[last + 1]) do
                        last = last + 1
                    end
                    claim(group.name, rows, first, last)
                    first = last + 1
                end
            end
        end
        if #missing > 0 then return {'missing', unpack(missing)} end
        for at = 6, #ARGV do redis.call('XDEL', copy, ARGV[at]) end
        local info = facts_of(redis.call('XINFO', 'STREAM', stream))
        local set = {'XSETID', copy, info['last-generated-id']}
        if info['entries-added'] then
            set[4], set[5], set[6], set[7] = 'ENTRIESADDED', info['entries-added'],
                'MAXDELETEDID', info['max-deleted-entry-id']
        end
        redis.call(unpack(set))
        local left_ms = redis.call('PTTL', stream)
        redis.call('PERSIST', copy)
        if left_ms > 0 then redis.call('PEXPIRE', copy, left_ms) end
        redis.call('UNLINK', stream)
        redis.call('RENAME', copy, stream)
        return {'done'}
    """,
}

"""Lua scripts for transactional ids, and the one that returns the end of a log.

An id is two hashes in one slot. `state` belongs to the coordinator: every write checks its token. To `open` any node
adds partitions and groups of the open transaction, whose number follows that of the last finished one. Ending a
transaction is a write to `state` that carries the expected number of entries in `open`: if one was added meanwhile,
nothing is written.
"""

TRANSACTION_SOURCES = {
    # KEYS: state, open. ARGV: producer id, epoch, server, now, whether to add, then fields.
    # Returns an error code and the number of the transaction.
    "add_to_transaction": """
        local known = redis.call('HMGET', KEYS[1], 'state', 'pid', 'epoch', 'number', 'marked')
        if not known[1] then return {49, 0} end
        if string.sub(known[1], 1, 7) == 'Prepare' then return {51, 0} end
        if known[5] and known[5] ~= '' and known[5] ~= ARGV[3] then return {51, 0} end
        if known[2] ~= ARGV[1] then return {49, 0} end
        if known[3] ~= ARGV[2] then return {90, 0} end
        local number = string.format('%d', tonumber(known[4]) + 1)
        local open = redis.call('HMGET', KEYS[2], 'number', 'server')
        local is_open = open[1] == number
        if is_open and open[2] ~= ARGV[3] then return {51, 0} end
        if ARGV[5] == '0' then
            if not is_open then return {120, 0} end
            for at = 6, #ARGV do
                if redis.call('HEXISTS', KEYS[2], ARGV[at]) == 0 then return {120, 0} end
            end
            return {0, tonumber(number)}
        end
        if not is_open then
            redis.call('DEL', KEYS[2])
            redis.call('HSET', KEYS[2], 'number', number, 'server', ARGV[3], 'start', ARGV[4])
        end
        for at = 6, #ARGV do redis.call('HSETNX', KEYS[2], ARGV[at], '') end
        return {0, tonumber(number)}
    """,
    # KEYS: state, rows, open. ARGV: owner, how many are open (-1 if that does not matter), then fields and values.
    "write_transaction": """
        if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
        local open = redis.call('HGET', KEYS[3], 'number')
        local number = tonumber(redis.call('HGET', KEYS[1], 'number') or 0) + 1
        local is_open = open and tonumber(open) == number
        local count = is_open and redis.call('HLEN', KEYS[3]) - 3 or 0
        if tonumber(ARGV[2]) >= 0 and count ~= tonumber(ARGV[2]) then return 2 end
        for at = 3, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
        return 1
    """,
    "delete_transaction": """
        if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
        local open = redis.call('HGET', KEYS[3], 'number')
        if open and tonumber(open) > tonumber(redis.call('HGET', KEYS[1], 'number') or 0) then return 2 end
        redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
        return 1
    """,
    # KEYS: log, meta. ARGV: the server run. Where a log ends, by its last entry, for whoever appends one small entry to
    # it: no bytes of it travel. Offsets are below 2^53. Not before its leader has compared the log under this run.
    "log_end": """
        if redis.call('EXISTS', KEYS[1]) == 0 then return {-1, 0} end
        local server = redis.call('HGET', KEYS[2], 'server') or ''
        if string.sub(server, 1, #ARGV[1]) ~= ARGV[1] then return {-2, 0} end
        if redis.call('HEXISTS', KEYS[2], 'remaking') == 1 then return {-2, 0} end
        local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
        local meta = redis.call('HMGET', KEYS[2], 'start', 'local', 'floor', 'epochs')
        local finish = 0
        if #last > 0 then
            finish = tonumber(string.match(last[1][1], '^%d+')) + 1
            local fields = last[1][2]
            for at = 1, #fields, 2 do
                if fields[at] == 'b' then
                    local data, pos = fields[at + 1], 1
                    while pos + 60 <= #data do
                        local base = struct.unpack('>I8', data, pos)
                        local size = struct.unpack('>I4', data, pos + 8)
                        finish = base + struct.unpack('>I4', data, pos + 23) + 1
                        pos = pos + 12 + size
                    end
                end
            end
        end
        for at = 1, 3 do finish = math.max(finish, tonumber(meta[at] or 0) or 0) end
        local epoch = 0
        if meta[4] then
            local epochs = cjson.decode(meta[4])
            if #epochs > 0 then epoch = epochs[#epochs][1] end
        end
        return {finish, epoch}
    """,
    # KEYS: a group's verdicts. ARGV: field, verdict, how long to keep them.
    "give_verdict": """
        redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
        return redis.call('PEXPIRE', KEYS[1], ARGV[3])
    """,
}

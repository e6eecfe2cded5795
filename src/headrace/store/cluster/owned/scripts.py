"""Lua scripts for owned state: every write checks the owner's token first."""

OWNED_SOURCES = {
    # A thing belongs to whoever took it last; the writes of anybody else change nothing. The owner's number only rises,
    # also over a store that went back in time: the one who takes brings the last number that it knows. The token says
    # since which number the process has owned the thing without a break, so that a take whose reply was lost does not
    # hide an owner in between. The token of a deleted thing stays for a while, or its earlier owners would take it for
    # one that the store lost: a document that expires is deleted. ARGV: a number to exceed, process, whether to create,
    # the number that may be lost.
    "take_owned": """
        local before = redis.call('HGET', KEYS[1], 'owner')
        local is_deleted = before and redis.call('PTTL', KEYS[1]) >= 0
        if not before and ARGV[3] == '0' then return false end
        local known, process, since = string.match(before or '', '^(%d+)%.(%x+)%.?(%d*)$')
        known = tonumber(known or 0)
        local number = math.max(known, tonumber(ARGV[1])) + 1
        if process ~= ARGV[2] then since = known < tonumber(ARGV[4]) and ARGV[4] or number end
        local owner = string.format('%d.%s.%d', number, ARGV[2], since)
        redis.call('HSET', KEYS[1], 'owner', owner)
        if is_deleted and ARGV[3] == '0' then return false end
        if is_deleted and (ARGV[1] == '0' or tonumber(since) < number) then redis.call('PERSIST', KEYS[1]) end
        return {owner, redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}
    """,
    # ARGV: token, process, the number since which no other process owned it.
    "keep_owned": """
        local before = redis.call('HGET', KEYS[1], 'owner')
        local known, process = string.match(before or '', '^(%d+)%.(%x+)')
        if process ~= ARGV[2] then
            if known and tonumber(known) >= tonumber(ARGV[3]) then return false end
            before = ARGV[1]
            redis.call('HSET', KEYS[1], 'owner', before)
        end
        redis.call('PERSIST', KEYS[1])
        return {before, redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}
    """,
    # By a process that owned it before: rows, where they are as it saw them, or empty if there was none. Whoever owns
    # it now has to read them: it finds another token. ARGV: process; then field, value as it was seen, value.
    "replace_owned_rows": """
        local before = redis.call('HGET', KEYS[1], 'owner')
        if not before or redis.call('PTTL', KEYS[1]) >= 0 then return 0 end
        local replaced = 0
        for at = 2, #ARGV, 3 do
            if (redis.call('HGET', KEYS[2], ARGV[at]) or '') == ARGV[at + 1] then
                redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 2])
                replaced = replaced + 1
            end
        end
        local known, process = string.match(before, '^(%d+)%.(%x+)')
        if replaced > 0 and process ~= ARGV[1] then
            local number = tonumber(known) + 1
            redis.call('HSET', KEYS[1], 'owner', string.format('%d.%s.%d', number, ARGV[1], number))
        end
        return replaced
    """,
    # ARGV: owner; then for each key how many arguments set something, those (field, value), how many remove, and those
    # (field). A command takes many of them: a rebalance may change every member of a group.
    "write_owned": """
        if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
        local at = 2
        local function run(command, key)
            local last = at + tonumber(ARGV[at])
            for first = at + 1, last, 1000 do
                redis.call(command, key, unpack(ARGV, first, math.min(first + 999, last)))
            end
            at = last + 1
        end
        for _, key in ipairs(KEYS) do
            run('HSET', key)
            run('HDEL', key)
        end
        return 1
    """,
    # ARGV: owner, how long its token stays.
    "delete_owned": """
        if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
        redis.call('DEL', KEYS[1], KEYS[2])
        redis.call('HSET', KEYS[1], 'owner', ARGV[1])
        redis.call('PEXPIRE', KEYS[1], ARGV[2])
        return 1
    """,
}

-- The sliding window over a sorted set, as the Spring system redis-current-limiter keeps it: an entry for each permit, with
-- the ms of its stamp as the score. Its services and these share the set, so this writes what they read.
--
-- An entry counts while its stamp is younger than a window, and no more than a window ahead: so far the clocks of other
-- hosts may be ahead, and further ahead a stamp proves nothing. What is not a whole number is rounded up. Each write trims
-- both kinds that do not count: left in the set, stamps from before a large step back of the clock would count again once
-- it comes near them. A window is the longest of the decision; what only other callers' longer windows count is lost to them.
--
-- Members  r<µs of the stamp>.<number>: theirs begin with no letter, so none of ours is one of theirs; and ZADD tells when
--          one of ours is there from the same microsecond, as after the clock stepped back: then the next number is taken
-- Written  ZADD, then the dead and those too far ahead are trimmed, then PEXPIRE: in this order the set is never empty in
--          between, which would lose its time to live. What is trimmed are the lowest and the highest ranks, which no
--          entry that counts can get into
-- Bounds   no more than MOST entries are added, or trimmed at either end, at once: others wait meanwhile. A decision that
--          needs more is denied for good
function algorithms.zset()
  local MOST, CHUNK, SPARE = 10000, 1000, 1000

  -- What this decision does to each set, whatever the windows that it is asked about: entries are put in, and taken out,
  -- once for all of them, and what is trimmed is dead for the longest.
  local sets = {}

  local function score_at(key, rank)
    return math.ceil(tonumber(redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')[2]))
  end

  -- dead: the entries before those that count; live: those that do; newest: the last stamp of these
  local function load(key, window)
    local dead = redis.pcall('ZCOUNT', key, '-inf', now_floor - window)
    if type(dead) == 'table' then
      return nil, dead
    end
    local upto = redis.call('ZCOUNT', key, '-inf', now_ceil + window)
    local set = sets[key] or { key = key, added = 0, back = {} }
    local count = { set = set, window = window, dead = dead, live = upto - dead, newest = now_ceil, added = 0, back = 0 }
    if count.live > 0 then
      count.newest = score_at(key, upto - 1)
    end
    if not set.longest or window > set.longest.window then
      set.longest = count
    end
    sets[key] = set
    return count
  end

  local function newest(of)
    return of.set.added > 0 and math.max(of.newest, now_ceil) or of.newest
  end

  local function evaluate(count, question)
    local used = count.live + count.set.added
    local told = { allowed = true, remaining = math.max(question.max - used - question.pending, 0) }
    told.retry_at = now_floor
    told.reset_at = used > 0 and newest(count) + count.window or now_floor
    local needed = question.pending + question.cost
    if question.cost > told.remaining or question.cost > 0 and needed > MOST then
      told.allowed, told.retry_at = false, nil
      if needed <= math.min(question.max, MOST) then
        -- The entry with which enough is back.
        told.retry_at = score_at(count.set.key, count.dead + used + needed - question.max - 1) + count.window
      end
    end
    return told.allowed, told.remaining, told.retry_at, told.reset_at, told.delay
  end

  local function take(count, question)
    count.added = count.added + question.cost
    count.set.added = math.max(count.set.added, count.added)
  end

  -- The entries of the call of the receipt, and no others, as if it had not been made: after a reset there are none.
  local function refund(count, question, stamp)
    local set, score = count.set, math.ceil(stamp / 1000)
    if score <= now_floor - count.window then
      return false
    end
    count.back = count.back + question.cost
    if count.back > #set.back then
      local mark, own = string.format('r%.0f.', stamp), {}
      for _, member in ipairs(redis.call('ZRANGEBYSCORE', set.key, score, score)) do
        if #own < count.back and string.sub(member, 1, #mark) == mark then
          own[#own + 1] = member
        end
      end
      set.back = own
    end
    return #set.back > 0
  end

  -- `number`: how many there are, which is a number that is free, unless some were taken out.
  local function add(key, permits, number)
    local mark = string.format('r%.0f.', now_micros)
    while permits > 0 do
      local entries = {}
      for place = 1, 2 * math.min(permits, CHUNK), 2 do
        entries[place], entries[place + 1] = now_ceil, mark .. number
        number = number + 1
      end
      local added = redis.pcall('ZADD', key, unpack(entries))
      if type(added) == 'table' then
        return added
      end
      permits = permits - added
    end
  end

  local function remove(key, members)
    for first = 1, #members, CHUNK do
      redis.call('ZREM', key, unpack(members, first, math.min(first + CHUNK - 1, #members)))
    end
  end

  local function store(count)
    local set, key = count.set, count.set.key
    if set.stored then
      return nil
    end
    set.stored = true
    local refused = add(key, set.added, set.longest.dead + set.longest.live)
    if refused then
      return refused
    end
    remove(key, set.back)
    if set.longest.dead > 0 then
      redis.call('ZREMRANGEBYRANK', key, 0, math.min(set.longest.dead, MOST) - 1)
    end
    local ahead = redis.call('ZCOUNT', key, string.format('(%.0f', now_ceil + set.longest.window), '+inf')
    if ahead > 0 then
      redis.call('ZREMRANGEBYRANK', key, -math.min(ahead, MOST), -1)
    end
    redis.call('PEXPIRE', key, math.max(newest(set.longest) - now_floor, 0) + set.longest.window + SPARE)
  end

  return { load = load, evaluate = evaluate, take = take, refund = refund, store = store, scale = 1000 }
end

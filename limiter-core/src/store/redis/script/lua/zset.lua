-- The sliding window in a sorted set, in the format of the Spring system redis-current-limiter: an entry for each
-- permit, with the ms of its stamp as the score. Spring services and this limiter share the set.
--
-- An entry counts while its stamp is less than a window old and at most a window ahead. The clocks of other hosts may
-- be ahead by that much; beyond it, a stamp proves nothing. Fractional scores are rounded up. Each write trims the
-- entries that do not count. Otherwise the stamps from before a large step back of the clock would count again later.
-- The longest window of the decision determines which entries are trimmed; callers with a longer window lose the older
-- ones.
--
-- Members  r<µs of the stamp>.<number>. Members of Spring services never start with a letter, so the two kinds differ.
--          After the clock stepped back, a member may exist already: ZADD then adds fewer entries, and the next number
--          is used
-- Written  ZADD, then expired entries and those too far ahead are trimmed, then PEXPIRE. In this order the set is never
--          empty in between, which would delete its TTL. Only the lowest and the highest ranks are trimmed,
--          which no live entry has
-- Bounds   one script call adds at most MAX_ENTRIES entries, and trims as many at either end, because it blocks the
--          server. A decision that needs more is always denied
function algorithms.zset()
  local MAX_ENTRIES, CHUNK_ENTRIES, EXPIRY_SLACK_MS = 10000, 1000, 1000

  -- The changes that this decision makes to each set. They are the same for all windows of the set: entries are added
  -- and removed once, and the longest window determines which are trimmed.
  local sets = {}

  local function score_at(key, rank)
    return math.ceil(tonumber(redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')[2]))
  end

  -- expired: the number of entries before the live ones; live: the number of live ones; newest: their last stamp
  local function load(key, window)
    local expired = redis.pcall('ZCOUNT', key, '-inf', now_floor - window)
    if type(expired) == 'table' then
      return nil, expired
    end
    local upto = redis.call('ZCOUNT', key, '-inf', now_ceil + window)
    local set = sets[key] or { key = key, added = 0, refunded = {} }
    local counter = {
      set = set, window = window, expired = expired, live = upto - expired, newest = now_ceil, added = 0, refunded = 0,
    }
    if counter.live > 0 then
      counter.newest = score_at(key, upto - 1)
    end
    if not set.longest or window > set.longest.window then
      set.longest = counter
    end
    sets[key] = set
    return counter
  end

  local function newest(counter)
    return counter.set.added > 0 and math.max(counter.newest, now_ceil) or counter.newest
  end

  local function evaluate(counter, request)
    local used = counter.live + counter.set.added
    local outcome = { allowed = true, remaining = math.max(request.max - used - request.pending, 0) }
    outcome.retry_at = now_floor
    outcome.reset_at = used > 0 and newest(counter) + counter.window or now_floor
    local needed = request.pending + request.cost
    if request.cost > outcome.remaining or request.cost > 0 and needed > MAX_ENTRIES then
      outcome.allowed, outcome.retry_at = false, nil
      if needed <= math.min(request.max, MAX_ENTRIES) then
        -- The entry whose expiry frees enough permits.
        outcome.retry_at = score_at(counter.set.key, counter.expired + used + needed - request.max - 1) + counter.window
      end
    end
    return outcome.allowed, outcome.remaining, outcome.retry_at, outcome.reset_at, outcome.delay
  end

  local function fill(counter, request)
    return counter.live + counter.set.added, request.max, MAX_ENTRIES - counter.added
  end

  local function take(counter, request)
    counter.added = counter.added + request.cost
    counter.set.added = math.max(counter.set.added, counter.added)
  end

  -- Selects the entries of the receipt's call and no others. After a reset there are none.
  local function refund(counter, request, stamp)
    local set, score = counter.set, math.ceil(stamp / 1000)
    if score <= now_floor - counter.window then
      return false
    end
    counter.refunded = counter.refunded + request.cost
    if counter.refunded > #set.refunded then
      local mark, own = string.format('r%.0f.', stamp), {}
      for _, member in ipairs(redis.call('ZRANGEBYSCORE', set.key, score, score)) do
        if #own < counter.refunded and string.sub(member, 1, #mark) == mark then
          own[#own + 1] = member
        end
      end
      set.refunded = own
    end
    return #set.refunded > 0
  end

  -- `number`: the size of the set, which is an unused number unless entries were removed.
  local function add(key, permits, number)
    local mark = string.format('r%.0f.', now_micros)
    while permits > 0 do
      local entries = {}
      for index = 1, 2 * math.min(permits, CHUNK_ENTRIES), 2 do
        entries[index], entries[index + 1] = now_ceil, mark .. number
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
    for first = 1, #members, CHUNK_ENTRIES do
      redis.call('ZREM', key, unpack(members, first, math.min(first + CHUNK_ENTRIES - 1, #members)))
    end
  end

  local function store(counter)
    local set, key = counter.set, counter.set.key
    if set.stored then
      return nil
    end
    -- The set is loaded anew for its level afterwards.
    set.stored, sets[key] = true, nil
    if set.added > 0 then
      -- Of two windows one returns permits and one charges some: an entry counts in both.
      set.refunded = {}
    end
    local refused = add(key, set.added, set.longest.expired + set.longest.live)
    if refused then
      return refused
    end
    remove(key, set.refunded)
    if set.longest.expired > 0 then
      redis.call('ZREMRANGEBYRANK', key, 0, math.min(set.longest.expired, MAX_ENTRIES) - 1)
    end
    local ahead = redis.call('ZCOUNT', key, string.format('(%.0f', now_ceil + set.longest.window), '+inf')
    if ahead > 0 then
      redis.call('ZREMRANGEBYRANK', key, -math.min(ahead, MAX_ENTRIES), -1)
    end
    redis.call('PEXPIRE', key, math.max(newest(set.longest) - now_floor, 0) + set.longest.window + EXPIRY_SLACK_MS)
  end

  return {
    load = load, evaluate = evaluate, fill = fill, take = take, refund = refund, store = store, scale = 1000,
  }
end

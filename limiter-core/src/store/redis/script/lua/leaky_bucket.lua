-- The leaky bucket as a queue: permits pass one at a time, evenly spaced, and up to `burst` of them may be queued.
-- algorithm/leaky_bucket.rs explains the arithmetic; a value has the format of bucket.lua.
function algorithms.leaky_bucket()
  local bucket = bucket_of(5)

  local function evaluate(state, request)
    local permits, fraction = bucket.level(state, request.max)
    local burst, free = tonumber(request.burst), permits + fraction == 0
    local turn = free and now_micros or bucket.shrinks_to(state, 0, request.max)
    local outcome = { allowed = true, remaining = 0, retry_at = now_micros, reset_at = turn, delay = 0 }
    if free then
      outcome.remaining = math.max(burst - request.pending, 0)
    end
    local needed = request.pending + request.cost
    if request.cost == 0 then
      return outcome.allowed, outcome.remaining, outcome.retry_at, outcome.reset_at, outcome.delay
    end
    local delay = math.max(turn - now_micros, 0)
    -- One permit passes while `burst` are queued.
    local room = permits + (fraction > 0 and 1 or 0) + needed <= burst + 1
    if needed > burst then
      outcome.allowed, outcome.retry_at = false, nil
    elseif free or delay <= request.max_wait and room then
      outcome.delay = delay
    else
      outcome.allowed, outcome.retry_at = false, turn
    end
    return outcome.allowed, outcome.remaining, outcome.retry_at, outcome.reset_at, outcome.delay
  end

  local function refund(state, request, stamp)
    local is_last = stamp == state.at and not state.instant_is_shared
    return is_last and bucket.shorten_last_take(state, request.cost, request.max)
  end

  local function fill(state, request)
    local permits, fraction = bucket.level(state, request.max)
    -- One permit passes while `burst` are queued.
    local used, burst = permits + (fraction > 0 and 1 or 0), tonumber(request.burst)
    return used, burst + 1, math.max(2 * burst + 1 - used, 0)
  end

  bucket.evaluate, bucket.refund, bucket.fill = evaluate, refund, fill
  return bucket
end

-- The token bucket: `burst` permits at once, refilled at `max` a window.
-- algorithm/token_bucket.rs explains the arithmetic; a value has the format of bucket.lua.
function algorithms.token_bucket()
  local bucket = bucket_of(4)

  local function evaluate(state, request)
    local permits, fraction = bucket.level(state, request.max)
    local burst = tonumber(request.burst)
    local left = burst - permits - (fraction > 0 and 1 or 0) - request.pending
    local outcome = { allowed = true, remaining = math.max(left, 0), retry_at = now_micros, reset_at = now_micros }
    if permits + fraction > 0 then
      outcome.reset_at = bucket.shrinks_to(state, 0, request.max)
    end
    if request.cost > outcome.remaining then
      outcome.allowed, outcome.retry_at = false, nil
      local room = burst - request.pending - request.cost
      if room >= 0 then
        outcome.retry_at = bucket.shrinks_to(state, room, request.max)
      end
    end
    return outcome.allowed, outcome.remaining, outcome.retry_at, outcome.reset_at, outcome.delay
  end

  local function refund(state, request, stamp)
    local elapsed = math.max(state.at, now_micros) - stamp
    if stamp < state.since or elapsed < 0 then
      return false
    end
    local windows = math.floor(elapsed / state.window)
    local refilled, rest = share(elapsed - windows * state.window, request.max, state.window)
    -- Of a refund `burst` is the number of permits that the call keeps.
    local permits, fraction = request.cost + tonumber(request.burst) - windows * request.max - refilled, -rest
    if fraction < 0 then
      permits, fraction = permits - 1, fraction + state.window
    end
    if permits >= request.cost then
      permits, fraction = request.cost, 0
    end
    return permits >= 0 and bucket.refund_permits(state, permits, fraction, request.max)
  end

  local function fill(state, request)
    local permits, fraction = bucket.level(state, request.max)
    local used, burst = permits + (fraction > 0 and 1 or 0), tonumber(request.burst)
    return used, burst, math.max(2 * burst - used, 0)
  end

  bucket.evaluate, bucket.refund, bucket.fill = evaluate, refund, fill
  return bucket
end

-- The token bucket: `burst` permits at once, and `max` a window after that.
-- The arithmetic, and why it is so, is in algorithm/token_bucket.rs; a value is that of bucket.lua.
function algorithms.token_bucket()
  local bucket = bucket_of(4)

  local function evaluate(state, question)
    local permits, fraction = bucket.level(state, question.max)
    local burst = tonumber(question.burst)
    local left = burst - permits - (fraction > 0 and 1 or 0) - question.pending
    local told = { allowed = true, remaining = math.max(left, 0), retry_at = now_micros, reset_at = now_micros }
    if permits + fraction > 0 then
      told.reset_at = bucket.shrinks_to(state, 0, question.max)
    end
    if question.cost > told.remaining then
      told.allowed, told.retry_at = false, nil
      local room = burst - question.pending - question.cost
      if room >= 0 then
        told.retry_at = bucket.shrinks_to(state, room, question.max)
      end
    end
    return told.allowed, told.remaining, told.retry_at, told.reset_at, told.delay
  end

  local function refund(state, question, stamp)
    local elapsed = math.max(state.at, now_micros) - stamp
    if stamp < state.since or elapsed < 0 then
      return false
    end
    local windows = math.floor(elapsed / state.window)
    local back, rest = share(elapsed - windows * state.window, question.max, state.window)
    local permits, fraction = question.cost - windows * question.max - back, -rest
    if fraction < 0 then
      permits, fraction = permits - 1, fraction + state.window
    end
    return permits >= 0 and bucket.put_back(state, permits, fraction, question.max)
  end

  bucket.evaluate, bucket.refund = evaluate, refund
  return bucket
end

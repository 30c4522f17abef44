-- The leaky bucket as a queue: one permit passes at a time, evenly spaced, and up to `burst` may wait for their turn.
-- The arithmetic, and why it is so, is in algorithm/leaky_bucket.rs; a value is that of bucket.lua.
function algorithms.leaky_bucket()
  local bucket = bucket_of(5)

  local function evaluate(state, question)
    local permits, fraction = bucket.level(state, question.max)
    local burst, free = tonumber(question.burst), permits + fraction == 0
    local turn = free and now_micros or bucket.shrinks_to(state, 0, question.max)
    local told = { allowed = true, remaining = 0, retry_at = now_micros, reset_at = turn, delay = 0 }
    if free then
      told.remaining = math.max(burst - question.pending, 0)
    end
    local needed = question.pending + question.cost
    if question.cost == 0 then
      return told.allowed, told.remaining, told.retry_at, told.reset_at, told.delay
    end
    local delay = math.max(turn - now_micros, 0)
    -- One passes while `burst` wait.
    local room = permits + (fraction > 0 and 1 or 0) + needed <= burst + 1
    if needed > burst then
      told.allowed, told.retry_at = false, nil
    elseif free or delay <= question.max_wait and room then
      told.delay = delay
    else
      told.allowed, told.retry_at = false, turn
    end
    return told.allowed, told.remaining, told.retry_at, told.reset_at, told.delay
  end

  local function refund(state, question, stamp)
    return stamp == state.at and not state.crowded and bucket.put_back(state, question.cost, 0, question.max)
  end

  bucket.evaluate, bucket.refund = evaluate, refund
  return bucket
end

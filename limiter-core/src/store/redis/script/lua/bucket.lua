-- What the two buckets have in common: permits that were taken, and flow back at `max` a window. Gives a module without
-- `evaluate` and `refund`.
-- The arithmetic, and why it is so, is in algorithm/bucket.rs; the two agree to the microsecond.
--
-- A value  version, when something was taken while nothing was missing, when something was taken last (µs), whole
--          permits that are missing since then, and a fraction of one in µs of the window, when all is back, and
--          whether more than one call took at that last instant
local function bucket_of(version)
  local FORMAT, LENGTH, FAR = '>BI7I7I5I6I7B', 34, 2251799813685248

  local function open(value, window)
    local state = { window = window * 1000, at = now_micros, since = now_micros, full_at = now_micros }
    state.permits, state.fraction, state.crowded = 0, 0, false
    if not value then
      return state
    end
    if #value ~= LENGTH or string.byte(value) ~= version then
      return nil
    end
    local _, since, at, permits, fraction, full_at, crowded = struct.unpack(FORMAT, value)
    if at <= now_micros + state.window then
      state.since, state.at, state.permits, state.fraction = since, at, permits, fraction
      state.full_at, state.crowded = full_at, crowded == 1
    end
    return state
  end

  -- What is missing, and as of when: now, or the last instant if the clock is behind that.
  local function level(state, max)
    local now = math.max(state.at, now_micros)
    if now >= state.full_at then
      return 0, 0, now
    end
    local elapsed = now - state.at
    local windows = math.floor(elapsed / state.window)
    local back, rest = share(elapsed - windows * state.window, max, state.window)
    local permits, fraction = state.permits - windows * max - back, state.fraction - rest
    if fraction < 0 then
      permits, fraction = permits - 1, fraction + state.window
    end
    if permits < 0 then
      return 0, 0, now
    end
    return permits, fraction, now
  end

  -- Microseconds that so much takes to come back.
  local function wait(state, permits, fraction, max)
    local whole, rest = share(state.window, permits, max)
    return math.min(whole + math.ceil((rest + fraction) / max), FAR)
  end

  -- When no more than `debt` permits are missing.
  local function shrinks_to(state, debt, max)
    local permits, fraction, now = level(state, max)
    return math.min(now + wait(state, permits - debt, fraction, max), state.full_at)
  end

  local function take(state, question)
    local permits, fraction, now = level(state, question.max)
    state.crowded = state.at == now and state.permits + state.fraction > 0
    if permits + fraction == 0 then
      state.since = now
    end
    state.at, state.permits, state.fraction = now, permits + question.cost, fraction
    state.full_at = now + wait(state, state.permits, fraction, question.max)
  end

  -- Gives back up to so much, and tells whether there was anything. When all is back stays a promise of the call that
  -- took last: the receipt's rate may be another.
  local function put_back(state, permits, fraction, max)
    local left, part, now = level(state, max)
    if left + part == 0 or permits + fraction == 0 then
      return false
    end
    left, part = left - permits, part - fraction
    if part < 0 then
      left, part = left - 1, part + state.window
    end
    if left < 0 then
      left, part = 0, 0
    end
    state.at, state.permits, state.fraction, state.crowded = now, left, part, true
    return true
  end

  local function close(state)
    if state.permits + state.fraction == 0 then
      return nil
    end
    local crowded = state.crowded and 1 or 0
    local value =
      struct.pack(FORMAT, version, state.since, state.at, state.permits, state.fraction, state.full_at, crowded)
    return value, math.ceil(state.full_at / 1000)
  end

  return { open = open, take = take, close = close, scale = 1, level = level, shrinks_to = shrinks_to, put_back = put_back }
end

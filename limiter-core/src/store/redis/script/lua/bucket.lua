-- The state that both buckets share: permits are taken, and refill at `max` a window. Returns a module without
-- `evaluate` and `refund`. algorithm/bucket.rs explains the arithmetic; the two agree to the microsecond.
--
-- A value  version, instant of the last take from a full bucket (µs), instant of the last change (µs), debt at that
--          instant in whole permits and in a fraction of one (in µs of the window), instant at which the bucket is full
--          (µs), and 1 if more than one call changed the debt at the instant of the last change
local function bucket_of(version)
  local FORMAT, LENGTH, MAX_WAIT_MICROS = '>BI7I7I5I6I7B', 34, 2251799813685248

  local function open(value, window)
    local state = { window = window * 1000, at = now_micros, since = now_micros, full_at = now_micros }
    state.permits, state.fraction, state.instant_is_shared = 0, 0, false
    if not value then
      return state
    end
    if #value ~= LENGTH or string.byte(value) ~= version then
      return nil
    end
    local _, since, at, permits, fraction, full_at, instant_is_shared = struct.unpack(FORMAT, value)
    if at <= now_micros + state.window then
      state.since, state.at, state.permits, state.fraction = since, at, permits, fraction
      state.full_at, state.instant_is_shared = full_at, instant_is_shared == 1
    end
    return state
  end

  -- The debt in permits and a fraction, and the instant: now, or the last change if the clock is behind it.
  local function level(state, max)
    local now = math.max(state.at, now_micros)
    if now >= state.full_at then
      return 0, 0, now
    end
    local elapsed = now - state.at
    local windows = math.floor(elapsed / state.window)
    local refilled, rest = share(elapsed - windows * state.window, max, state.window)
    local permits, fraction = state.permits - windows * max - refilled, state.fraction - rest
    if fraction < 0 then
      permits, fraction = permits - 1, fraction + state.window
    end
    if permits < 0 then
      return 0, 0, now
    end
    return permits, fraction, now
  end

  -- The microseconds in which so much refills.
  local function wait(state, permits, fraction, max)
    local whole, rest = share(state.window, permits, max)
    return math.min(whole + math.ceil((rest + fraction) / max), MAX_WAIT_MICROS)
  end

  -- The instant at which the debt has shrunk to `debt` permits.
  local function shrinks_to(state, debt, max)
    local permits, fraction, now = level(state, max)
    return math.min(now + wait(state, permits - debt, fraction, max), state.full_at)
  end

  local function take(state, request)
    local permits, fraction, now = level(state, request.max)
    state.instant_is_shared = state.at == now and state.permits + state.fraction > 0
    if permits + fraction == 0 then
      state.since = now
    end
    state.at, state.permits, state.fraction = now, permits + request.cost, fraction
    state.full_at = now + wait(state, state.permits, fraction, request.max)
  end

  -- Subtracts up to so much from the debt, and returns true if that changes it. `full_at` stays: the rate of the
  -- receipt may differ from that of the last take.
  local function refund_permits(state, permits, fraction, max)
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
    state.at, state.permits, state.fraction, state.instant_is_shared = now, left, part, true
    return true
  end

  -- Subtracts up to so many permits from the debt as of the last change, which was a take, and returns true if that
  -- changes it. That stays the last change.
  local function shorten_last_take(state, permits, max)
    local left, part = level(state, max)
    if left + part == 0 or permits == 0 then
      return false
    end
    state.permits = state.permits - permits
    if state.permits < 0 then
      state.permits, state.fraction = 0, 0
    end
    return true
  end

  local function close(state)
    if state.permits + state.fraction == 0 then
      return nil
    end
    local shared = state.instant_is_shared and 1 or 0
    local value =
      struct.pack(FORMAT, version, state.since, state.at, state.permits, state.fraction, state.full_at, shared)
    return value, math.ceil(state.full_at / 1000)
  end

  return {
    open = open, take = take, close = close, scale = 1, level = level, shrinks_to = shrinks_to,
    refund_permits = refund_permits, shorten_last_take = shorten_last_take,
  }
end

-- The fixed window: at most `max` permits in each of the consecutive windows that start at the clock's origin.
-- algorithm/fixed_window.rs explains the arithmetic; the two agree to the millisecond.
--
-- A value  version, start of the window (ms), instant of its first take (ms), permits taken in it
function algorithms.fixed_window()
  local FORMAT, LENGTH, VERSION, MAX_COUNT = '>BI6I6I4', 17, 2, 4294967295

  -- used: the permits taken in the current window, which began at `start`
  local function open(value, window)
    local begun = now_floor - now_floor % window
    local counter = { window = window, start = begun, since = now_floor, used = 0 }
    if not value then
      return counter
    end
    local version, start, since, used
    if #value == LENGTH then
      version, start, since, used = struct.unpack(FORMAT, value)
    end
    if version ~= VERSION then
      return nil
    end
    local behind = start > now_floor and start - now_floor <= window
    if used > 0 and (start == begun or behind) then
      counter.start, counter.since, counter.used = start, since, used
    end
    return counter
  end

  local function evaluate(counter, request)
    local outcome = { allowed = true, remaining = math.max(request.max - counter.used - request.pending, 0) }
    local ends = counter.start + counter.window
    outcome.retry_at = now_floor
    outcome.reset_at = counter.used > 0 and ends or now_floor
    if request.cost > outcome.remaining then
      outcome.allowed, outcome.retry_at = false, nil
      if request.pending + request.cost <= request.max then
        outcome.retry_at = ends
      end
    end
    return outcome.allowed, outcome.remaining, outcome.retry_at, outcome.reset_at, outcome.delay
  end

  local function fill(counter, request)
    return counter.used, request.max, MAX_COUNT - counter.used
  end

  local function take(counter, request)
    counter.used = math.min(counter.used + request.cost, MAX_COUNT)
  end

  local function refund(counter, request, stamp)
    stamp = math.floor(stamp / 1000)
    if stamp >= counter.since and stamp - stamp % counter.window == counter.start then
      counter.used = math.max(counter.used - request.cost, 0)
      return true
    end
  end

  local function close(counter)
    if counter.used == 0 then
      return nil
    end
    return struct.pack(FORMAT, VERSION, counter.start, counter.since, counter.used), counter.start + counter.window
  end

  return {
    open = open, evaluate = evaluate, fill = fill, take = take, refund = refund, close = close, scale = 1000,
  }
end

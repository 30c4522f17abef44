-- The sliding counter: two fixed windows, of which the older is weighted by its overlap with the sliding window.
-- algorithm/sliding_counter.rs explains the arithmetic; the two agree to the millisecond.
--
-- A value  version, start of the newer window (ms), instant of the first take that either window counts (ms), permits
--          taken in the newer and in the older window
function algorithms.sliding_counter()
  local FORMAT, LENGTH, VERSION, MAX_COUNT = '>BI6I6I4I4', 21, 3, 4294967295

  local function open(value, window)
    local begun = now_floor - now_floor % window
    local counter = { window = window, start = begun, since = now_floor, current = 0, previous = 0 }
    if not value then
      return counter
    end
    local version, start, since, current, previous
    if #value == LENGTH then
      version, start, since, current, previous = struct.unpack(FORMAT, value)
    end
    if version ~= VERSION then
      return nil
    end
    if start == begun or start > now_floor and start - now_floor <= window then
      counter.start, counter.current, counter.previous = start, current, previous
    elseif begun - start == window then
      counter.previous = current
    end
    if counter.current + counter.previous > 0 then
      counter.since = since
    end
    return counter
  end

  local function used_of(counter)
    local elapsed = math.max(now_floor - counter.start, 0)
    local faded, rest = share(counter.window - elapsed, counter.previous, counter.window)
    return counter.current + faded + (rest > 0 and 1 or 0)
  end

  local function evaluate(counter, request)
    local window, max, used = counter.window, request.max, used_of(counter)
    local outcome = { allowed = true, remaining = math.max(max - used - request.pending, 0) }
    outcome.retry_at, outcome.reset_at = now_floor, now_floor
    if counter.current > 0 then
      outcome.reset_at = counter.start + 2 * window
    elseif counter.previous > 0 then
      outcome.reset_at = counter.start + window
    end
    if request.cost > outcome.remaining then
      outcome.allowed, outcome.retry_at = false, nil
      local room = max - request.pending - request.cost
      if room >= 0 then
        -- The first of the two windows that must expire in part for the cost to fit.
        local start, fading, left = counter.start, counter.previous, room - counter.current
        if left < 0 then
          start, fading, left = counter.start + window, counter.current, room
        end
        local spare = fading > 0 and share(window, left, fading) or 0
        outcome.retry_at = start + window - math.min(spare, window)
      end
    end
    return outcome.allowed, outcome.remaining, outcome.retry_at, outcome.reset_at, outcome.delay
  end

  local function fill(counter, request)
    local used = used_of(counter)
    return used, request.max, math.max(MAX_COUNT - used, 0)
  end

  local function take(counter, request)
    counter.current = math.min(counter.current + request.cost, MAX_COUNT)
  end

  local function refund(counter, request, stamp)
    stamp = math.floor(stamp / 1000)
    local start = stamp - stamp % counter.window
    if stamp < counter.since or counter.current + counter.previous == 0 then
      return false
    end
    if start == counter.start then
      counter.current = math.max(counter.current - request.cost, 0)
    elseif start + counter.window == counter.start then
      counter.previous = math.max(counter.previous - request.cost, 0)
    end
    return true
  end

  local function close(counter)
    local windows = counter.current > 0 and 2 or counter.previous > 0 and 1
    if not windows then
      return nil
    end
    local value = struct.pack(FORMAT, VERSION, counter.start, counter.since, counter.current, counter.previous)
    return value, counter.start + windows * counter.window
  end

  return {
    open = open, evaluate = evaluate, fill = fill, take = take, refund = refund, close = close, scale = 1000,
  }
end

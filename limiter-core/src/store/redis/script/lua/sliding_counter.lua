-- The sliding counter: two fixed windows, of which the older counts as far as the sliding window still covers it.
-- The arithmetic, and why it is so, is in algorithm/sliding_counter.rs; the two agree to the millisecond.
--
-- A value  version, beginning of the newer window (ms), first permit of the two (ms), permits taken in the newer and in
--          the older window
function algorithms.sliding_counter()
  local FORMAT, LENGTH, VERSION, MOST = '>BI6I6I4I4', 21, 3, 4294967295

  local function open(value, window)
    local begun = now_floor - now_floor % window
    local count = { window = window, start = begun, since = now_floor, current = 0, previous = 0 }
    if not value then
      return count
    end
    local version, start, since, current, previous
    if #value == LENGTH then
      version, start, since, current, previous = struct.unpack(FORMAT, value)
    end
    if version ~= VERSION then
      return nil
    end
    if start == begun or start > now_floor and start - now_floor <= window then
      count.start, count.current, count.previous = start, current, previous
    elseif begun - start == window then
      count.previous = current
    end
    if count.current + count.previous > 0 then
      count.since = since
    end
    return count
  end

  local function evaluate(count, question)
    local window, max = count.window, question.max
    local elapsed = math.max(now_floor - count.start, 0)
    local faded, rest = share(window - elapsed, count.previous, window)
    local used = count.current + faded + (rest > 0 and 1 or 0)
    local told = { allowed = true, remaining = math.max(max - used - question.pending, 0) }
    told.retry_at, told.reset_at = now_floor, now_floor
    if count.current > 0 then
      told.reset_at = count.start + 2 * window
    elseif count.previous > 0 then
      told.reset_at = count.start + window
    end
    if question.cost > told.remaining then
      told.allowed, told.retry_at = false, nil
      local room = max - question.pending - question.cost
      if room >= 0 then
        -- The first of the two counts that has to fade for the cost to fit.
        local start, fades, left = count.start, count.previous, room - count.current
        if left < 0 then
          start, fades, left = count.start + window, count.current, room
        end
        local spare = fades > 0 and share(window, left, fades) or 0
        told.retry_at = start + window - math.min(spare, window)
      end
    end
    return told.allowed, told.remaining, told.retry_at, told.reset_at, told.delay
  end

  local function take(count, question)
    count.current = math.min(count.current + question.cost, MOST)
  end

  local function refund(count, question, stamp)
    stamp = math.floor(stamp / 1000)
    local start = stamp - stamp % count.window
    if stamp < count.since or count.current + count.previous == 0 then
      return false
    end
    if start == count.start then
      count.current = math.max(count.current - question.cost, 0)
    elseif start + count.window == count.start then
      count.previous = math.max(count.previous - question.cost, 0)
    end
    return true
  end

  local function close(count)
    local windows = count.current > 0 and 2 or count.previous > 0 and 1
    if not windows then
      return nil
    end
    local value = struct.pack(FORMAT, VERSION, count.start, count.since, count.current, count.previous)
    return value, count.start + windows * count.window
  end

  return { open = open, evaluate = evaluate, take = take, refund = refund, close = close, scale = 1000 }
end

-- The fixed window: at most `max` permits in each of the windows that follow each other from the clock's origin on.
-- The arithmetic, and why it is so, is in algorithm/fixed_window.rs; the two agree to the millisecond.
--
-- A value  version, beginning of the window (ms), its first permit (ms), permits taken in it
function algorithms.fixed_window()
  local FORMAT, LENGTH, VERSION, MOST = '>BI6I6I4', 17, 2, 4294967295

  -- used: what was taken in the window that counts now, which began at `start`
  local function open(value, window)
    local begun = now_floor - now_floor % window
    local count = { window = window, start = begun, since = now_floor, used = 0 }
    if not value then
      return count
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
      count.start, count.since, count.used = start, since, used
    end
    return count
  end

  local function evaluate(count, question)
    local told = { allowed = true, remaining = math.max(question.max - count.used - question.pending, 0) }
    local ends = count.start + count.window
    told.retry_at = now_floor
    told.reset_at = count.used > 0 and ends or now_floor
    if question.cost > told.remaining then
      told.allowed, told.retry_at = false, nil
      if question.pending + question.cost <= question.max then
        told.retry_at = ends
      end
    end
    return told.allowed, told.remaining, told.retry_at, told.reset_at, told.delay
  end

  local function take(count, question)
    count.used = math.min(count.used + question.cost, MOST)
  end

  local function refund(count, question, stamp)
    stamp = math.floor(stamp / 1000)
    if stamp >= count.since and stamp - stamp % count.window == count.start then
      count.used = math.max(count.used - question.cost, 0)
      return true
    end
  end

  local function close(count)
    if count.used == 0 then
      return nil
    end
    return struct.pack(FORMAT, VERSION, count.start, count.since, count.used), count.start + count.window
  end

  return { open = open, evaluate = evaluate, take = take, refund = refund, close = close, scale = 1000 }
end

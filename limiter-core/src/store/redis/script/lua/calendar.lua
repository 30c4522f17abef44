-- Periods of the calendar: at most `max` permits in each. algorithm/calendar_period.rs explains the arithmetic; the two
-- agree to the millisecond.
--
-- The server knows no zones. The caller sends four edges in ms: the start of the period that it expects the server to be
-- in, its end, the start of the period before and the end of the one after, as in `<before> <start> <end> <after>`. They
-- are needed only where a period begins. If none of the three periods fits, the error is EDGES with this clock's time in
-- ms, and nothing has changed: the caller sends the call again with the edges of that time.
--
-- A value  version, start and end of the period (ms), instant of its first take (ms), permits taken in it
-- Expiry   one period after its end: the next one begins no earlier than it ends
function algorithms.calendar()
  local FORMAT, LENGTH, VERSION, MAX_COUNT = '>BI6I6I6I4', 23, 1, 4294967295

  -- Returns start and end of the period that begins now; nil if no edges fit.
  local function begin(edges, last_end)
    local before, start, ends, after = string.match(edges, '^(%d+) (%d+) (%d+) (%d+)$')
    if not before then
      return nil
    end
    local from, to, next_end
    for _, edge in ipairs({ tonumber(before), tonumber(start), tonumber(ends), tonumber(after) }) do
      if edge <= now_floor then
        from = edge
      elseif not to then
        to = edge
      else
        next_end = next_end or edge
      end
    end
    if not from or not to then
      return nil
    end
    if from >= last_end then
      return from, to
    end
    if 2 * (to - last_end) < to - from then
      to = next_end
    end
    return last_end, to
  end

  -- edges: those of the caller. A refund has none, since it changes only a period that has begun
  local function open(value, window, edges)
    local last_end = 0
    if value then
      local version, start, ends, since, used
      if #value == LENGTH then
        version, start, ends, since, used = struct.unpack(FORMAT, value)
      end
      local length = version == VERSION and ends - start
      if not length or length <= 0 or length > 2 * window then
        return nil
      end
      if now_floor < ends and start - now_floor <= length then
        return { start = start, ends = ends, since = since, used = used }
      end
      -- Of an older period, and of one that is void, nothing is known.
      if ends <= now_floor and now_floor < ends + length then
        last_end = ends
      end
    end
    local start, ends = begin(edges, last_end)
    if not ends and string.find(edges, ' ', 1, true) then
      return nil, redis.error_reply('EDGES ' .. string.format('%.0f', now_floor))
    end
    return { start = start, ends = ends, since = now_floor, used = 0 }
  end

  local function evaluate(counter, request)
    local remaining = math.max(request.max - counter.used - request.pending, 0)
    local allowed, retry_at = true, now_floor
    if request.cost > remaining then
      allowed, retry_at = false, nil
      if request.pending + request.cost <= request.max then
        retry_at = counter.ends
      end
    end
    return allowed, remaining, retry_at, counter.used > 0 and counter.ends or now_floor
  end

  local function fill(counter, request)
    return counter.used, request.max, MAX_COUNT - counter.used
  end

  local function take(counter, request)
    if counter.used == 0 then
      counter.since = now_floor
    end
    counter.used = math.min(counter.used + request.cost, MAX_COUNT)
  end

  local function refund(counter, request, stamp)
    if counter.used > 0 and math.floor(stamp / 1000) >= counter.since then
      counter.used = math.max(counter.used - request.cost, 0)
      return true
    end
  end

  local function close(counter)
    local value = struct.pack(FORMAT, VERSION, counter.start, counter.ends, counter.since, counter.used)
    return value, 2 * counter.ends - counter.start
  end

  return {
    open = open, evaluate = evaluate, fill = fill, take = take, refund = refund, close = close, scale = 1000,
  }
end

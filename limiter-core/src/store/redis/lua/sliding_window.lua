-- The exact sliding window: at most `max` permits in any half-open window (t - window, t].
-- The arithmetic, and why it is so, is in algorithm/sliding_window.rs; the two agree to the millisecond.
--
-- A value  version, base (ms), total before the first run, then runs of (units after the base, total so far);
--          totals are modulo 2^32
local function sliding_window()
  local HEADER, RUN, VERSION, CAPACITY, WRAP = 11, 8, 1, 128, 4294967296

  local function run(log, index)
    local offset, total = struct.unpack('>I4I4', log.runs, (index - 1) * RUN + 1)
    return log.base + offset * log.unit, total, offset
  end

  -- The first run from `low` on for which `found` holds, as it does for all after it, the last one included.
  local function first(log, low, found)
    local high = log.count
    while low < high do
      local middle = math.floor((low + high) / 2)
      if found(run(log, middle)) then high = middle else low = middle + 1 end
    end
    return low
  end

  -- live: the first run that counts, count + 1 if none does; used: the permits from it on; newest: the last stamp.
  local function open(value, window)
    local log = { window = window, unit = 1, base = clock.ceil, before = 0, runs = '', count = 0, live = 1, used = 0 }
    log.newest, log.total, log.offset = clock.ceil, 0, 0
    while log.unit * 1073741824 < window do log.unit = log.unit * 2 end
    if not value then
      return log
    end
    local count = (#value - HEADER) / RUN
    if count < 1 or count % 1 ~= 0 then
      return nil
    end
    local version, base, before = struct.unpack('>BI6I4', value)
    if version ~= VERSION then
      return nil
    end
    log.base, log.before, log.runs, log.count = base, before, string.sub(value, HEADER + 1), count
    log.live = count + 1
    local stamp, total, offset = run(log, count)
    -- As far as the last stamp proves that time had come; further ahead than a window, the log is void.
    local now = math.max(clock.floor, stamp - log.unit)
    if stamp <= clock.ceil + window and stamp + window > now then
      log.live = first(log, 1, function(at) return at + window > now end)
      if log.live > 1 then
        local _, dead = run(log, log.live - 1)
        log.before = dead
      end
      log.used, log.newest, log.total, log.offset = (total - log.before) % WRAP, stamp, total, offset
    end
    return log
  end

  local function judge(log, question)
    local told = { allowed = true, remaining = math.max(question.max - log.used - question.pending, 0) }
    told.retry_at = clock.floor
    told.reset_at = log.used > 0 and log.newest + log.window or clock.floor
    local needed = question.pending + question.cost
    if question.cost > told.remaining then
      told.allowed, told.retry_at = false, nil
      if needed <= question.max then
        local missing = log.used + needed - question.max
        local enough = first(log, log.live, function(_, total) return (total - log.before) % WRAP >= missing end)
        -- Not after the newest, in which order the runs of a damaged log may ever be.
        told.retry_at = math.min(run(log, enough), log.newest) + log.window
      end
    end
    return told
  end

  -- Only runs that count are kept, so that no state is half trimmed.
  local function trim(log)
    if log.live > log.count then
      log.base, log.before, log.total, log.offset, log.newest = clock.ceil, 0, 0, 0, clock.ceil
    end
    log.runs = string.sub(log.runs, (log.live - 1) * RUN + 1)
    log.count, log.live = log.count - log.live + 1, 1
  end

  -- Moves the base to the first run, once the offsets end: after 49 days without an idle window.
  local function rebase(log)
    local start, _, by = run(log, 1)
    local runs = {}
    for index = 1, log.count do
      local _, total, offset = run(log, index)
      runs[index] = struct.pack('>I4I4', offset - by, total)
    end
    log.base, log.runs, log.offset = start, table.concat(runs), log.offset - by
  end

  local function take(log, question)
    trim(log)
    local offset = math.max(math.ceil((clock.ceil - log.base) / log.unit), log.offset)
    if offset >= WRAP then
      rebase(log)
      offset = math.ceil((clock.ceil - log.base) / log.unit)
    end
    local stamp, cell = log.base + offset * log.unit, math.ceil(log.window / CAPACITY)
    local same_cell = math.floor(stamp / cell) == math.floor(log.newest / cell)
    if log.count > 0 and (offset == log.offset or log.count >= CAPACITY and same_cell) then
      log.runs, log.count = string.sub(log.runs, 1, -RUN - 1), log.count - 1
    end
    log.used, log.total = log.used + question.cost, (log.total + question.cost) % WRAP
    log.newest, log.offset = stamp, offset
    log.runs, log.count = log.runs .. struct.pack('>I4I4', offset, log.total), log.count + 1
  end

  -- As many as are live, from the oldest on, while the receipt's own are.
  local function refund(log, question, stamp)
    stamp = math.ceil(stamp / 1000)
    -- By the newest stamp, too: those who took theirs then may have had the room of what was over.
    local now = math.max(clock.floor, log.newest)
    if log.used == 0 or stamp < log.base or stamp > log.newest or stamp + log.window <= now then
      return false
    end
    trim(log)
    local back = math.min(question.cost, log.used)
    if back == log.used then
      log.runs, log.count, log.live, log.used = '', 0, 1, 0
      return true
    end
    local kept = first(log, 1, function(_, total) return (total - log.before) % WRAP > back end)
    log.runs, log.count = string.sub(log.runs, (kept - 1) * RUN + 1), log.count - kept + 1
    log.before, log.used = (log.before + back) % WRAP, log.used - back
    return true
  end

  local function close(log)
    if log.used == 0 then
      return nil
    end
    return struct.pack('>BI6I4', VERSION, log.base, log.before) .. log.runs, log.newest + log.window
  end

  return { open = open, judge = judge, take = take, refund = refund, close = close, scale = 1000 }
end

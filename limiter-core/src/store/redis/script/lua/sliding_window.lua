-- The exact sliding window: at most `max` permits in any half-open window (t - window, t].
-- algorithm/sliding_window.rs explains the arithmetic; the two agree to the millisecond.
--
-- A value  short: version, base (ms), then at most 14 runs of (units after the run before, and of the first after the base,
--          permits). A length that is a multiple of 4 has no units of the first run, which is at the base: that of a log that
--          has begun anew. 63 bytes at most: hashes keep longer values in another encoding. Nine runs, or ten without those
--          units, fit into 44 bytes, which the server stores in one allocation
--          long: version, base (ms), total before the first run, the mark if the log has leases, then runs of (units after
--          the base, total so far); totals are modulo 2^32
-- Form     a log begins short. It becomes long with a run more, a run of more than 255 permits, or a lease. It becomes
--          short again when it begins anew; or when a write drops expired runs, if at most 7 runs are left. So a log whose
--          number of runs varies a little keeps its form
-- Unit     1 ms, and for long windows the smallest power of two of which a window has at most 2^24
-- Leases   docs/leases.md describes them. The permits of a lease are stamped at its end. So a stamp may be ahead of the
--          clock by the time of a lease, and proves that much less. Such a log has a version and a mark of its own. It
--          keeps them until no run is live
-- Expiry   the newest stamp's cell ends, plus the window. A cell is an eighth of the window, and 100 ms at most. So a
--          write in the same cell as the one before need not set the expiry: it is set already
local function sliding_window()
  local HEADER, RUN, VERSION, CAPACITY, WRAP = 11, 8, 1, 128, 4294967296
  local LEASED_HEADER, LEASED_VERSION = 15, 6
  local unpack, pack, floor, ceil, max, min = struct.unpack, struct.pack, math.floor, math.ceil, math.max, math.min

  -- A log is read in place. Its runs are those of the value from `live` to `last`. If this call has taken permits
  -- (`added`), the newest run follows. The permits of run `index` of a short value are its byte log.header + 4 * index, and the
  -- units are the three bytes before it.
  local function run(log, index)
    if index > log.last then
      return log.newest, log.total, log.offset
    end
    local offset, total
    if log.is_short then
      offset, total = log.first, log.before
      for at = log.live, index do
        local gap, permits = unpack('>I3B', log.value, log.header + 4 * at - 3)
        offset, total = at > log.live and offset + gap or offset, total + permits
      end
    else
      offset, total = unpack('>I4I4', log.value, log.header + (index - 1) * RUN + 1)
    end
    return log.base + offset * log.unit, total, offset
  end

  -- The first run whose running total is at least `permits`; the last run must qualify.
  local function first_with(log, permits)
    local low, high, before = log.live, log.added and log.last + 1 or log.last, log.before
    if log.is_short then
      local sum = 0
      for index = low, log.last do
        sum = sum + string.byte(log.value, log.header + 4 * index)
        if sum >= permits then return index end
      end
      return high
    end
    while low < high do
      local middle = floor((low + high) / 2)
      local _, total = run(log, middle)
      if (total - before) % WRAP >= permits then high = middle else low = middle + 1 end
    end
    return low
  end

  -- The longest time in ms for which a lease may be used, and by which a stamp of its log may be ahead of the clock.
  local function lease_time(window)
    return min(floor(window / 64), 50)
  end

  -- live: the first live run; used: the permits from it on; newest: the last stamp, or now if no run is live; ahead: the
  -- time by which a stamp may be ahead of the clock; mark: the mark of a log with leases, or nil; first: the offset of the
  -- first live run, if the value is short; most_short: the most runs with which the log is written short
  local function open(value, window)
    local MAX_UNITS, MAX_SHORT_RUNS, unit = 16777216, 14, 1
    while unit * MAX_UNITS < window do unit = unit * 2 end
    if not value then
      return {
        window = window, unit = unit, base = now_ceil, before = 0, value = '', header = HEADER, live = 1, last = 0,
        added = false, used = 0, newest = now_ceil, total = 0, offset = 0, ahead = 0, most_short = MAX_SHORT_RUNS,
      }
    end
    local SHORT_RUN, SHORT_VERSION, SHORT_AGAIN = 4, 7, 7
    local version = string.byte(value)
    local is_short = version == SHORT_VERSION
    local header, width, expected, ahead, mark = HEADER, RUN, VERSION, 0, nil
    if is_short then
      header, width, expected = #value % SHORT_RUN == 0 and 4 or 7, SHORT_RUN, SHORT_VERSION
    elseif (#value - HEADER) % RUN ~= 0 then
      header, expected, ahead = LEASED_HEADER, LEASED_VERSION, lease_time(window)
    end
    local last = (#value - header) / width
    if version ~= expected or last < 1 or last % 1 ~= 0 or is_short and last > MAX_SHORT_RUNS then
      return nil
    end
    if header == LEASED_HEADER then
      mark = unpack('>I4', value, HEADER + 1)
    end
    local base, before, offset, total, first = unpack('>I6', value, 2), 0, nil, nil, nil
    if is_short then
      local byte = string.byte
      first, total = header == 7 and unpack('>I3', value, 8) or 0, byte(value, header + SHORT_RUN)
      offset = first
      for at = header + SHORT_RUN + 1, #value, 2 * SHORT_RUN do
        local a1, b1, c1, p1, a2, b2, c2, p2 = byte(value, at, at + 7)
        offset, total = offset + a1 * 65536 + b1 * 256 + c1, total + p1
        if p2 then
          offset, total = offset + a2 * 65536 + b2 * 256 + c2, total + p2
        end
      end
    else
      before = unpack('>I4', value, 8)
      offset, total = unpack('>I4I4', value, header + (last - 1) * RUN + 1)
    end
    local stamp = base + offset * unit
    local log = {
      window = window, unit = unit, base = base, before = before, value = value, header = header, live = last + 1,
      last = last, added = false, used = 0, newest = now_ceil, total = 0, offset = 0, ahead = ahead, mark = mark,
      is_short = is_short, first = first, most_short = is_short and MAX_SHORT_RUNS or 0,
    }
    -- The later of now and the time that the last stamp proves. If the stamp is more than a window ahead, the log is
    -- void.
    local now = max(now_floor, stamp - unit - ahead)
    if stamp > now_ceil + window + ahead or stamp + window <= now then
      return log
    end
    local expired, low = (now - window - base) / unit, 1
    if is_short then
      while first <= expired do
        local permits, gap = unpack('>BI3', value, header + 4 * low)
        before, low, first = before + permits, low + 1, first + gap
      end
      log.first, log.before, log.used = first, before, total - before
    else
      -- Runs up to this offset have expired: in most cases none or few since the last write. The search starts at the
      -- oldest run, in growing steps.
      local high, step = 1, 1
      while high < last and unpack('>I4', value, header + (high - 1) * RUN + 1) <= expired do
        low, high, step = high + 1, min(high + step, last), step * 2
      end
      while low < high do
        local middle = floor((low + high) / 2)
        if unpack('>I4', value, header + (middle - 1) * RUN + 1) > expired then high = middle else low = middle + 1 end
      end
      if low > 1 then
        log.before, log.most_short = unpack('>I4', value, header + (low - 2) * RUN + 5), SHORT_AGAIN
      end
      log.used = (total - log.before) % WRAP
    end
    log.live, log.newest, log.total, log.offset = low, stamp, total, offset
    return log
  end

  local function evaluate(log, request)
    local used, cost, pending, limit = log.used, request.cost, request.pending, request.max
    local remaining = max(limit - used - pending, 0)
    local reset_at = used > 0 and log.newest + log.window or now_floor
    if cost <= remaining then
      return true, remaining, now_floor, reset_at
    end
    if pending + cost > limit then
      return false, remaining, nil, reset_at
    end
    -- At most the newest stamp, even if the runs of a damaged log are out of order.
    local freeing = min(run(log, first_with(log, used + pending + cost - limit)), log.newest)
    return false, remaining, freeing + log.window, reset_at
  end

  local function fill(log, request)
    return log.used, request.max, WRAP - 1 - log.used
  end

  -- Moves the base up by so many units, but at most to the first live run, and drops expired runs. A short log becomes long.
  local function rebase(log, by)
    local _, _, offset = run(log, log.live)
    local total, header = log.before, log.is_short and HEADER or log.header
    local runs = { string.rep('.', header) }
    by = min(by, offset)
    for index = log.live, log.last do
      if log.is_short then
        local gap, permits = unpack('>I3B', log.value, log.header + 4 * index - 3)
        offset, total = index > log.live and offset + gap or offset, total + permits
      else
        offset, total = unpack('>I4I4', log.value, header + (index - 1) * RUN + 1)
      end
      runs[#runs + 1] = pack('>I4I4', offset - by, total)
    end
    log.value, log.header, log.is_short = table.concat(runs), header, false
    log.last, log.live = log.last - log.live + 1, 1
    log.base, log.offset = log.base + by * log.unit, log.offset - by
  end

  -- If a part of the permits is a lease, `request.mark` is the mark of a log that has none yet.
  local function take(log, request)
    if not log.added then
      local stamped_at = now_ceil
      if log.live > log.last then
        log.mark, log.ahead = nil, 0
      end
      if request.mark then
        log.mark, log.ahead = log.mark or request.mark, lease_time(log.window)
        stamped_at = now_ceil + log.ahead
      end
      if log.live > log.last then
        log.base, log.before, log.live, log.last, log.total = now_ceil, 0, 1, 0, 0
        log.value, log.header, log.is_short, log.most_short = '', HEADER, false, 14
        log.offset = ceil((stamped_at - now_ceil) / log.unit)
        log.newest = now_ceil + log.offset * log.unit
      else
        local offset = max(ceil((stamped_at - log.base) / log.unit), log.offset)
        if offset >= WRAP then
          -- Offsets overflow after 49 days without an idle window. No receipt from before the new base is valid.
          rebase(log, floor(offset - (log.window - 1) / log.unit))
          offset = ceil((stamped_at - log.base) / log.unit)
        end
        local stamp, cell = log.base + offset * log.unit, ceil(log.window / CAPACITY)
        local same_cell = floor(stamp / cell) == floor(log.newest / cell)
        if offset == log.offset or log.last - log.live + 1 >= CAPACITY and same_cell then
          log.last = log.last - 1
        else
          log.previous_offset, log.previous_total = log.offset, log.total
        end
        log.newest, log.offset = stamp, offset
      end
      log.added = true
    end
    log.used, log.total = log.used + request.cost, (log.total + request.cost) % WRAP
  end

  -- Subtracts permits from a run, and so from all totals from there on. An emptied run is removed.
  local function subtract_from(log, own, permits, is_emptied)
    local runs = { string.sub(log.value, 1, log.header + (own - 1) * RUN) }
    for index = is_emptied and own + 1 or own, log.last do
      local _, total, offset = run(log, index)
      runs[#runs + 1] = pack('>I4I4', offset, (total - permits) % WRAP)
    end
    log.value, log.used = table.concat(runs), log.used - permits
    if is_emptied then
      log.last = log.last - 1
    end
    if log.last < log.live then
      log.used = 0
    else
      log.newest, log.total, log.offset = run(log, log.last)
    end
  end

  -- Returns the first run from `live` on that is not before a stamp; the last run must qualify.
  local function first_from(log, stamp)
    local own, high = log.live, log.last
    while own < high do
      local middle = floor((own + high) / 2)
      if run(log, middle) >= stamp then high = middle else own = middle + 1 end
    end
    return own
  end

  -- Removes permits that were taken at `stamp`: from the first run that is not before it, and the rest from the oldest
  -- runs. Returns whether they may be in the log.
  -- The scripts never take before they remove permits, so `added` is false.
  local function remove(log, permits, stamp)
    -- Also compare with the newest stamp: permits that expired by then may already have been granted again. In a log with
    -- leases it may be that of a call too, which is not ahead of the clock. So a return in the last ms before the expiry,
    -- as many as a lease has, may be refused.
    local now = max(now_floor, log.newest)
    if log.used == 0 or stamp < log.base or stamp > log.newest or stamp + log.window <= now then
      return false
    end
    local has_expired_runs = log.live > 1
    if log.is_short then
      rebase(log, 0)
    end
    local own = first_from(log, stamp)
    local before, _, total = log.before, run(log, own)
    if own > log.live then
      _, before = run(log, own - 1)
    end
    local in_run = (total - before) % WRAP
    local from_run = min(permits, in_run, log.used)
    -- The newest run and expired runs prove how far time has come. If one of them is removed, the base proves it.
    if has_expired_runs or from_run == in_run and own == log.last then
      own = own - log.live + 1
      rebase(log, max(ceil((now - log.window + 1 - log.base) / log.unit), 0))
    end
    subtract_from(log, own, from_run, from_run == in_run)
    local rest = min(permits - from_run, log.used)
    if rest == log.used then
      log.used, log.live = 0, log.last + 1
      return true
    end
    log.live = first_with(log, rest + 1)
    log.before, log.used = (log.before + rest) % WRAP, log.used - rest
    return true
  end

  -- Returns the permits of a receipt.
  local function refund(log, request, stamp)
    return remove(log, request.cost, ceil(stamp / 1000))
  end

  -- Returns unused permits of a lease: to the log that granted it, unless that was reset.
  local function give_back(log, permits, stamp, mark)
    return log.mark == mark and remove(log, permits, stamp)
  end

  -- Removes all permits but those that may be on lease. Returns whether there are any.
  local function forget(log)
    if not log.mark or log.used == 0 or log.newest < now_floor then
      return false
    end
    local kept = first_from(log, now_floor)
    if kept > log.live then
      local _, before = run(log, kept - 1)
      log.before, log.live = before, kept
    end
    -- Receipts of forgotten permits are before the base, and leases have the old mark.
    rebase(log, WRAP)
    log.used, log.mark = (log.total - log.before) % WRAP, (log.mark + 1) % WRAP
    return log.used > 0
  end

  -- Returns the short form of a log, or nil if a run does not fit into it.
  local function short_form(log)
    local SHORT_VERSION, MAX_UNITS, MAX_PERMITS = 7, 16777216, 255
    local value, live, last, base, before = log.value, log.live, log.last, log.base, log.before
    local first, from = log.first, 0
    if last < live then
      first = log.offset
    elseif not log.is_short then
      local _, _, offset = run(log, live)
      first = offset
    end
    if first >= MAX_UNITS then
      -- The base moves up. No receipt from before the new one is valid.
      from = min(floor((log.newest - log.window + 1 - base) / log.unit), first)
      first, base = first - from, base + from * log.unit
    end
    if last < live then
      local permits = (log.total - before) % WRAP
      if first >= MAX_UNITS or permits < 1 or permits > MAX_PERMITS then
        return nil
      end
      return first == 0 and pack('>BI6B', SHORT_VERSION, base, permits)
        or pack('>BI6I3B', SHORT_VERSION, base, first, permits)
    elseif log.is_short then
      -- The runs before the newest one stay as they are, but for the first gap.
      from, before = log.previous_offset, log.previous_total
      if not from then
        local _, total, offset = run(log, last)
        from, before = offset, total
      end
      local gap, permits, kept = log.offset - from, (log.total - before) % WRAP, log.header + 4 * last
      if first >= MAX_UNITS or gap >= MAX_UNITS or permits > MAX_PERMITS then
        return nil
      end
      local newest = pack('>I3B', gap, permits)
      if live == 1 then
        return string.sub(value, 1, kept) .. newest
      end
      return pack('>BI6I3', SHORT_VERSION, base, first) .. string.sub(value, log.header + 4 * live, kept) .. newest
    end
    value = pack('>BI6', SHORT_VERSION, base)
    for index = live, log.added and last + 1 or last do
      local _, total, offset = run(log, index)
      local gap, permits = offset - from, (total - before) % WRAP
      if gap < 0 or gap >= MAX_UNITS or permits < 1 or permits > MAX_PERMITS then
        return nil
      end
      local is_at_base = index == live and gap == 0
      value = value .. (is_at_base and string.char(permits) or pack('>I3B', gap, permits))
      from, before = offset, total
    end
    return value
  end

  local function close(log)
    if log.used == 0 then
      return nil
    end
    local cell = log.window >= 800 and 100 or log.window >= 16 and floor(log.window / 8) or 1
    local expires_at = log.newest - log.newest % cell + cell + log.window
    local runs = log.last - log.live + (log.added and 2 or 1)
    local short = not log.mark and runs <= log.most_short and short_form(log)
    if short then
      return short, expires_at
    elseif log.is_short then
      rebase(log, 0)
    end
    local header = log.mark and pack('>BI6I4I4', LEASED_VERSION, log.base, log.before, log.mark)
      or pack('>BI6I4', VERSION, log.base, log.before)
    local kept = string.sub(log.value, log.header + (log.live - 1) * RUN + 1, log.header + log.last * RUN)
    local newest = log.added and pack('>I4I4', log.offset, log.total) or ''
    return header .. kept .. newest, expires_at
  end

  return {
    open = open, evaluate = evaluate, fill = fill, take = take, refund = refund, give_back = give_back, forget = forget,
    close = close, scale = 1000,
  }
end

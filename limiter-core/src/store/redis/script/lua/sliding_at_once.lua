-- The fast path of the sliding window, for decisions about one counter: it reads, decides and writes in one function,
-- without a table in between. Servers spend most of their time here. A test compares it with open, evaluate, take and
-- close of sliding_window.lua.
--
-- A charge has no `calls`. Its permits are taken whether they fit or not.
--
-- Returns false for what only the module does: foreign bytes, a log with leases, a log that must be rebased, and one that
-- goes from the short form to the long one or back. Otherwise returns
--   the calls granted; for a charge the permits counted
--   the permits left after them
--   the ms at which a further call fits (nil: never); for a charge the permits beyond the limit
--   the ms at which all permits are free
--   the bytes to write (nil: none)
--   the ms at which the value expires, if there are bytes to write (nil: when it does already)
--   the offset of these bytes in the value, as text (nil: they are the whole value)
-- An offset saves the copy of a long log, which would cost more than the rest of the call. So a log that was written a
-- moment ago is not trimmed: the first write in a cell trims it. Beyond MAX_APPEND_BYTES the server would reserve more
-- than 2.5 kB for a log that grows.
local read, write, floor, ceil, min = struct.unpack, struct.pack, math.floor, math.ceil, math.min
-- The numbers of the short form.
local SHORT, SHORT_RUN, MAX_SHORT_RUNS, SHORT_AGAIN = 7, 4, 14, 7
local MAX_UNITS, MAX_RUN_PERMITS = 16777216, 255

-- Returns where the runs of a short log begin. If the first one is at the base, it has no gap.
local function short_header(value)
  return value and #value % SHORT_RUN == 0 and 4 or 7
end

-- Returns the stamp of the first run from `low` to `last` whose running total is at least `permits`; nil if there is
-- none. Of a short log `first` is the offset of the run `low`; of a long one it is nil.
local function stamp_with(permits, value, low, last, base, before, unit, first)
  local HEADER, RUN, WRAP = 11, 8, 4294967296
  if first then
    local offset, sum, header = first, 0, short_header(value)
    for run = low, last do
      local gap, more = read('>I3B', value, header + (run - 1) * SHORT_RUN + 1)
      offset, sum = run > low and offset + gap or offset, sum + more
      if sum >= permits then
        return base + offset * unit
      end
    end
    return nil
  end
  local high = last + 1
  while low < high do
    local middle = floor((low + high) / 2)
    if (read('>I4', value, HEADER + (middle - 1) * RUN + 5) - before) % WRAP >= permits then
      high = middle
    else
      low = middle + 1
    end
  end
  return low <= last and base + read('>I4', value, HEADER + (low - 1) * RUN + 1) * unit or nil
end

-- Returns whether each run of a long log from `low` on has as many permits as a run of a short log may have. The newest
-- one gets `added` permits: that is the last run, if it comes after `kept`, or else one that follows it.
local function has_small_runs(value, low, last, before, added, kept)
  local HEADER, RUN, WRAP = 11, 8, 4294967296
  for run = low, last do
    local sum = read('>I4', value, HEADER + (run - 1) * RUN + 5)
    local permits = (sum - before) % WRAP + (run > kept and added or 0)
    if permits < 1 or permits > MAX_RUN_PERMITS then
      return false
    end
    before = sum
  end
  return added <= MAX_RUN_PERMITS
end

local function sliding_at_once(value, window, limit, cost, calls)
  local HEADER, RUN, VERSION, CAPACITY, WRAP = 11, 8, 1, 128, 4294967296
  local MIN_APPEND_BYTES, MAX_APPEND_BYTES = 256, 1256
  local base, before, stamp, total, offset, unit = now_ceil, 0, now_ceil, 0, 0, 1
  local used, live, last = 0, 1, 0
  -- The offset of the first live run of a short log, or of one that begins anew; nil for a long log.
  local first = (not value or string.byte(value) == SHORT) and 0 or nil
  while unit * MAX_UNITS < window do unit = unit * 2 end
  local header
  if value and first then
    header = short_header(value)
    last = (#value - header) / SHORT_RUN
    if last < 1 or last % 1 ~= 0 or last > MAX_SHORT_RUNS then
      return false
    end
    local stored_base, permits, gap = read('>I6', value, 2), string.byte(value, header + SHORT_RUN), nil
    first = header == 7 and read('>I3', value, 8) or 0
    offset, total = first, permits
    for run = 2, last do
      local next_gap, more = read('>I3B', value, header + (run - 1) * SHORT_RUN + 1)
      offset, total = offset + next_gap, total + more
    end
    local last_stamp = stored_base + offset * unit
    local now = last_stamp - unit > now_floor and last_stamp - unit or now_floor
    if last_stamp <= now_ceil + window and last_stamp + window > now then
      base, stamp = stored_base, last_stamp
      local expired = (now - window - base) / unit
      while first <= expired do
        live, before = live + 1, before + permits
        gap, permits = read('>I3B', value, header + (live - 1) * SHORT_RUN + 1)
        first = first + gap
      end
      used = total - before
    else
      offset, total, last, first = 0, 0, 0, 0
    end
  elseif value then
    last = (#value - HEADER) / RUN
    if last < 1 or last % 1 ~= 0 then
      return false
    end
    local version, stored_base, total_before, oldest = read('>BI6I4I4', value)
    if version ~= VERSION then
      return false
    end
    local newest, sum = read('>I4I4', value, HEADER + (last - 1) * RUN + 1)
    local last_stamp = stored_base + newest * unit
    local now = last_stamp - unit > now_floor and last_stamp - unit or now_floor
    if last_stamp <= now_ceil + window and last_stamp + window > now then
      base, before, stamp, total, offset = stored_base, total_before, last_stamp, sum, newest
      -- Runs up to this offset have expired: in most cases none or few since the last write. The search starts at the
      -- oldest run, in growing steps.
      local expired = (now - window - base) / unit
      if last > 1 and oldest <= expired then
        local high, step = 2, 2
        live = 2
        while high < last and read('>I4', value, HEADER + (high - 1) * RUN + 1) <= expired do
          live, high, step = high + 1, min(high + step, last), step * 2
        end
        while live < high do
          local middle = floor((live + high) / 2)
          if read('>I4', value, HEADER + (middle - 1) * RUN + 1) > expired then high = middle else live = middle + 1 end
        end
        before = read('>I4', value, HEADER + (live - 2) * RUN + 5)
      end
      used = (total - before) % WRAP
    else
      last, first = 0, 0
    end
  end

  local remaining = limit > used and limit - used or 0
  local reset_at = used > 0 and stamp + window or now_floor
  local room = not calls and WRAP - 1 - used
  if not calls and (cost == 0 or room == 0) then
    return 0, remaining, used > limit and used - limit or 0, reset_at
  elseif cost == 0 then
    return calls, remaining, now_floor, reset_at
  elseif room then
    cost = min(cost, room)
  elseif cost > limit then
    return 0, remaining, nil, reset_at
  elseif cost > remaining then
    local freeing = stamp_with(used + cost - limit, value, live, last - 1, base, before, unit, first) or stamp
    -- At most the newest stamp, even if the runs of a damaged log are out of order.
    return 0, remaining, min(freeing, stamp) + window, reset_at
  end
  local grants = (calls == 1 or room) and 1 or min(calls, floor(remaining / cost))
  local taken, kept = grants * cost, last
  local cell = window >= 800 and 100 or window >= 16 and floor(window / 8) or 1
  local is_same_cell, gap = false, 0
  if last > 0 then
    local newest = ceil((now_ceil - base) / unit)
    if newest < offset then newest = offset end
    if newest >= WRAP then
      return false
    end
    local now = base + newest * unit
    if newest == offset then
      kept = last - 1
    elseif last - live + 1 >= CAPACITY then
      local run_cell = ceil(window / CAPACITY)
      if floor(now / run_cell) == floor(stamp / run_cell) then kept = last - 1 end
    end
    -- A stamp ahead of the clock does not show when the key expires: the value may come from a server with another clock.
    is_same_cell = stamp <= now_ceil and now - now % cell == stamp - stamp % cell
    gap, offset, stamp = newest - offset, newest, now
  end
  used, total = used + taken, (total + taken) % WRAP
  local freeing
  if calls and grants < calls then
    freeing = min(stamp_with(used + cost - limit, value, live, kept, base, before, unit, first) or stamp, stamp)
  end
  local retry_at, reset_at = freeing and freeing + window or now_floor, stamp + window
  local left = limit - used
  if room then
    grants, retry_at = taken, left < 0 and -left or 0
    left = left < 0 and 0 or left
  end
  local expires_at = stamp - stamp % cell + cell + window
  local is_long = value and #value > MIN_APPEND_BYTES and #value <= MAX_APPEND_BYTES
  if is_long and kept >= live and (live == 1 or is_same_cell) then
    -- The server would format a number as a decimal fraction.
    return grants, left, retry_at, reset_at, write('>I4I4', offset, total), not is_same_cell and expires_at or nil,
      string.format('%d', HEADER + kept * RUN)
  end
  if first then
    local added = taken
    if kept < last then
      local last_gap, permits = read('>I3B', value, header + kept * SHORT_RUN + 1)
      gap, added = last_gap + gap, permits + taken
    end
    gap = kept < live and offset or gap
    if added <= MAX_RUN_PERMITS and gap < MAX_UNITS and first < MAX_UNITS and kept - live + 2 <= MAX_SHORT_RUNS then
      local new
      if kept < live then
        new = gap == 0 and write('>BI6B', SHORT, base, added) or write('>BI6I3B', SHORT, base, gap, added)
      elseif live == 1 then
        new = string.sub(value, 1, header + kept * SHORT_RUN) .. write('>I3B', gap, added)
      else
        local runs = string.sub(value, header + live * SHORT_RUN, header + kept * SHORT_RUN)
        new = write('>BI6I3', SHORT, base, first) .. runs .. write('>I3B', gap, added)
      end
      return grants, left, retry_at, reset_at, new, expires_at
    elseif last > 0 then
      return false
    end
  elseif live > 1 and kept - live + 2 <= SHORT_AGAIN and has_small_runs(value, live, last, before, taken, kept) then
    return false
  end
  local new
  if kept < live then
    new = write('>BI6I4I4I4', VERSION, base, before, offset, total)
  elseif live > 1 then
    local runs = string.sub(value, HEADER + (live - 1) * RUN + 1, HEADER + kept * RUN)
    new = write('>BI6I4', VERSION, base, before) .. runs .. write('>I4I4', offset, total)
  elseif kept < last then
    new = string.sub(value, 1, HEADER + kept * RUN) .. write('>I4I4', offset, total)
  else
    new = value .. write('>I4I4', offset, total)
  end
  return grants, left, retry_at, reset_at, new, expires_at
end

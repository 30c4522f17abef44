-- The fast path of the sliding window, for decisions about one counter: it reads, decides and writes in one function,
-- without a table in between. Servers spend most of their time here. A test compares it with open, evaluate, take and
-- close of sliding_window.lua.
--
-- A charge has no `calls`. Its permits are taken whether they fit or not.
--
-- Returns false for a value that only the module reads: foreign bytes, a log with leases, and a log that must be
-- rebased. Otherwise returns
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

-- Returns the stamp of the first run from `low` to `last` whose running total is at least `permits`; nil if there is
-- none.
local function stamp_with(permits, value, low, last, base, before, unit)
  local HEADER, RUN, WRAP = 11, 8, 4294967296
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

local function sliding_at_once(value, window, limit, cost, calls)
  local HEADER, RUN, VERSION, CAPACITY, WRAP = 11, 8, 1, 128, 4294967296
  local MIN_APPEND_BYTES, MAX_APPEND_BYTES = 256, 1256
  local base, before, stamp, total, offset, unit = now_ceil, 0, now_ceil, 0, 0, 1
  local used, live, last = 0, 1, 0
  while unit * 1073741824 < window do unit = unit * 2 end
  if value then
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
      last = 0
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
    local freeing = stamp_with(used + cost - limit, value, live, last - 1, base, before, unit) or stamp
    -- At most the newest stamp, even if the runs of a damaged log are out of order.
    return 0, remaining, min(freeing, stamp) + window, reset_at
  end
  local grants = (calls == 1 or room) and 1 or min(calls, floor(remaining / cost))
  local taken, kept = grants * cost, last
  local cell = window >= 800 and 100 or window >= 16 and floor(window / 8) or 1
  local is_same_cell = false
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
    offset, stamp = newest, now
  end
  used, total = used + taken, (total + taken) % WRAP
  local freeing
  if calls and grants < calls then
    freeing = min(stamp_with(used + cost - limit, value, live, kept, base, before, unit) or stamp, stamp)
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

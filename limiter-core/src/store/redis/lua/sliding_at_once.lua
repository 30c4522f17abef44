-- The sliding window again, for calls that ask of one count and take at once: reading, deciding and writing in one go,
-- without a table in between. It is what servers spend most of their time on. The same as the module's open, judge, take
-- and close, one after the other, and tested to be.
--
-- Gives the calls granted, the permits left after them, when the others will fit (nil: never), when the window is whole
-- again, and the new value with the ms when it is dead, if there is one. Gives nil for foreign bytes, and false for a log
-- that has to be rebased, which is the module's to do.
local HEADER, RUN, VERSION, CAPACITY, WRAP = 11, 8, 1, 128, 4294967296

-- Of the runs from `low` to `upto`, the stamp of the first after which so many permits were taken; nil if none is.
local function stamp_with(permits, value, low, upto, base, before, unit)
  local high = upto + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if (struct.unpack('>I4', value, HEADER + (middle - 1) * RUN + 5) - before) % WRAP >= permits then
      high = middle
    else
      low = middle + 1
    end
  end
  return low <= upto and base + struct.unpack('>I4', value, HEADER + (low - 1) * RUN + 1) * unit or nil
end

local function sliding_at_once(value, window, limit, cost, calls)
  local unpack, pack, floor = struct.unpack, struct.pack, math.floor
  local base, before, stamp, total, offset, unit = clock.ceil, 0, clock.ceil, 0, 0, 1
  local used, live, last = 0, 1, 0
  while unit * 1073741824 < window do unit = unit * 2 end
  if value then
    last = (#value - HEADER) / RUN
    if last < 1 or last % 1 ~= 0 then
      return nil
    end
    local version, at, dead = unpack('>BI6I4', value)
    if version ~= VERSION then
      return nil
    end
    local newest, sum = unpack('>I4I4', value, HEADER + (last - 1) * RUN + 1)
    local told = at + newest * unit
    local now = math.max(clock.floor, told - unit)
    if told <= clock.ceil + window and told + window > now then
      base, before, stamp, total, offset = at, dead, told, sum, newest
      local high = last
      while live < high do
        local middle = floor((live + high) / 2)
        if base + unpack('>I4', value, HEADER + (middle - 1) * RUN + 1) * unit + window > now then
          high = middle
        else
          live = middle + 1
        end
      end
      if live > 1 then
        before = unpack('>I4', value, HEADER + (live - 2) * RUN + 5)
      end
      used = (total - before) % WRAP
    else
      last = 0
    end
  end

  local remaining = limit > used and limit - used or 0
  local resets = used > 0 and stamp + window or clock.floor
  if cost == 0 then
    return calls, remaining, clock.floor, resets
  elseif cost > limit then
    return 0, remaining, nil, resets
  elseif cost > remaining then
    local enough = stamp_with(used + cost - limit, value, live, last - 1, base, before, unit) or stamp
    -- Not after the newest, in which order the runs of a damaged log may ever be.
    return 0, remaining, math.min(enough, stamp) + window, resets
  end
  local grants = calls == 1 and 1 or math.min(calls, floor(remaining / cost))
  local taken, kept = grants * cost, last
  if last > 0 then
    local newest = math.max(math.ceil((clock.ceil - base) / unit), offset)
    if newest >= WRAP then
      return false
    end
    local now, cell = base + newest * unit, math.ceil(window / CAPACITY)
    if newest == offset or last - live + 1 >= CAPACITY and floor(now / cell) == floor(stamp / cell) then
      kept = last - 1
    end
    offset, stamp = newest, now
  end
  used, total = used + taken, (total + taken) % WRAP
  local enough
  if grants < calls then
    enough = math.min(stamp_with(used + cost - limit, value, live, kept, base, before, unit) or stamp, stamp)
  end
  local new
  if kept < live then
    new = pack('>BI6I4I4I4', VERSION, base, before, offset, total)
  elseif live == 1 then
    new = string.sub(value, 1, HEADER + kept * RUN) .. pack('>I4I4', offset, total)
  else
    local runs = string.sub(value, HEADER + (live - 1) * RUN + 1, HEADER + kept * RUN)
    new = pack('>BI6I4', VERSION, base, before) .. runs .. pack('>I4I4', offset, total)
  end
  return grants, limit - used, enough and enough + window or clock.floor, stamp + window, new, stamp + window
end

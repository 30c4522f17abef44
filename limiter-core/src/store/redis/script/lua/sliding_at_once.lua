-- The sliding window again, for calls that ask of one count and take at once: reading, deciding and writing in one go,
-- without a table in between. It is what servers spend most of their time on. The same as the module's open, evaluate, take
-- and close, one after the other, and tested to be.
--
-- Gives the calls granted, the permits left after them, when the others will fit (nil: never), and when the window is whole
-- again; and if something is to be written, that, the ms when the value is dead, and the place in the value where it goes
-- (nil: it is the whole value). So a long log that only grows is not made anew: its text would cost more than the rest.
-- Gives nil for foreign bytes, and false for a log that has to be rebased, which is the module's to do.
local read, write, floor, ceil, min = struct.unpack, struct.pack, math.floor, math.ceil, math.min

-- Of the runs from `low` to `upto`, the stamp of the first after which so many permits were taken; nil if none is.
local function stamp_with(permits, value, low, upto, base, before, unit)
  local HEADER, RUN, WRAP = 11, 8, 4294967296
  local high = upto + 1
  while low < high do
    local middle = floor((low + high) / 2)
    if (read('>I4', value, HEADER + (middle - 1) * RUN + 5) - before) % WRAP >= permits then
      high = middle
    else
      low = middle + 1
    end
  end
  return low <= upto and base + read('>I4', value, HEADER + (low - 1) * RUN + 1) * unit or nil
end

local function sliding_at_once(value, window, limit, cost, calls)
  local HEADER, RUN, VERSION, CAPACITY, WRAP, LONG = 11, 8, 1, 128, 4294967296, 256
  local base, before, stamp, total, offset, unit = now_ceil, 0, now_ceil, 0, 0, 1
  local used, live, last = 0, 1, 0
  while unit * 1073741824 < window do unit = unit * 2 end
  if value then
    last = (#value - HEADER) / RUN
    if last < 1 or last % 1 ~= 0 then
      return nil
    end
    local version, at, dead = read('>BI6I4', value)
    if version ~= VERSION then
      return nil
    end
    local newest, sum = read('>I4I4', value, HEADER + (last - 1) * RUN + 1)
    local told = at + newest * unit
    local now = told - unit > now_floor and told - unit or now_floor
    if told <= now_ceil + window and told + window > now then
      base, before, stamp, total, offset = at, dead, told, sum, newest
      -- Runs up to here are over. Mostly there are none, or few since the last write: looked for from the oldest on, in
      -- growing steps.
      local over = (now - window - base) / unit
      if over >= 0 then
        local step, high = 1, 1
        while high < last and read('>I4', value, HEADER + (high - 1) * RUN + 1) <= over do
          live, high, step = high + 1, min(high + step, last), step * 2
        end
        while live < high do
          local middle = floor((live + high) / 2)
          if read('>I4', value, HEADER + (middle - 1) * RUN + 1) > over then high = middle else live = middle + 1 end
        end
        if live > 1 then
          before = read('>I4', value, HEADER + (live - 2) * RUN + 5)
        end
      end
      used = (total - before) % WRAP
    else
      last = 0
    end
  end

  local remaining = limit > used and limit - used or 0
  local resets = used > 0 and stamp + window or now_floor
  if cost == 0 then
    return calls, remaining, now_floor, resets
  elseif cost > limit then
    return 0, remaining, nil, resets
  elseif cost > remaining then
    local enough = stamp_with(used + cost - limit, value, live, last - 1, base, before, unit) or stamp
    -- Not after the newest, in which order the runs of a damaged log may ever be.
    return 0, remaining, min(enough, stamp) + window, resets
  end
  local grants = calls == 1 and 1 or min(calls, floor(remaining / cost))
  local taken, kept = grants * cost, last
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
      local cell = ceil(window / CAPACITY)
      if floor(now / cell) == floor(stamp / cell) then kept = last - 1 end
    end
    offset, stamp = newest, now
  end
  used, total = used + taken, (total + taken) % WRAP
  local enough
  if grants < calls then
    enough = min(stamp_with(used + cost - limit, value, live, kept, base, before, unit) or stamp, stamp)
  end
  local lives_until = stamp + window
  enough = enough and enough + window or now_floor
  if live == 1 and kept >= live and #value > LONG then
    return grants, limit - used, enough, lives_until, write('>I4I4', offset, total), lives_until, HEADER + kept * RUN
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
  return grants, limit - used, enough, lives_until, new, lives_until
end

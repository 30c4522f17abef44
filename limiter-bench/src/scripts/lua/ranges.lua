-- The run log read and written by parts: a header with the first runs, then single runs where the search leads. What ends
-- within those first runs is known whole, and written by one SET.
--
-- KEYS     the counts; a key may come again
-- ARGV     as of group.lua, with one kind, of one call and one permit
-- Reply    what `reply` makes of it
-- Clock    the server's own, by TIME
-- Expiry   in the command that writes a whole value, else after what was added
-- Atomic   because a script is
--
-- The value is the product's, but for runs that are over: they stay until they are half of it.
local HEADER, RUN, VERSION, CAPACITY, WRAP, SPARE = 11, 8, 1, 128, 4294967296, 500
local HEAD = HEADER + 8 * RUN
local call, pack, floor, max = redis.call, struct.pack, math.floor, math.max
local window, limit = tonumber(ARGV[3]), tonumber(ARGV[4])
local cell = math.ceil(window / CAPACITY)

local function range(key, first, last)
  return call('GETRANGE', key, HEADER + (first - 1) * RUN, HEADER + last * RUN - 1)
end

-- Gives the permits granted, those left, when there will be one, and when the window is whole again.
local function take(key)
  local head = call('GETRANGE', key, 0, HEAD - 1)
  local whole = #head < HEAD
  local last = ((whole and #head or call('STRLEN', key)) - HEADER) / RUN
  local base, before, newest, total = now_ceil, 0, nil, nil

  -- The offset of a run, and the total so far.
  local function run(index)
    local at = HEADER + (index - 1) * RUN
    if at < #head then
      return struct.unpack('>I4I4', head, at + 1)
    end
    return struct.unpack('>I4I4', range(key, index, index))
  end

  if last >= 1 then
    local _, at, dead = struct.unpack('>BI6I4', head)
    newest, total = run(last)
    if at + newest + window > now_floor then
      base, before = at, dead
    else
      last = 0
    end
  end
  if last < 1 then
    call('SET', key, pack('>BI6I4I4I4', VERSION, base, 0, 0, 1), 'PX', lifetime(base + window - now_floor + SPARE))
    return 1, limit - 1, now_floor, base + window
  end

  local live, high = 1, last
  while live < high do
    local middle = floor((live + high) / 2)
    if base + run(middle) + window > now_floor then
      high = middle
    else
      live = middle + 1
    end
  end
  if live > 1 then
    local _, dead = run(live - 1)
    before = dead
  end
  local used = (total - before) % WRAP
  if used >= limit then
    local low, upto = live, last
    while low < upto do
      local middle = floor((low + upto) / 2)
      local _, sum = run(middle)
      if (sum - before) % WRAP > used - limit then
        upto = middle
      else
        low = middle + 1
      end
    end
    return 0, 0, base + run(low) + window, base + newest + window
  end

  local offset, kept = max(now_ceil - base, newest), last
  local stamp = base + offset
  if offset == newest or last - live + 1 >= CAPACITY and floor(stamp / cell) == floor((base + newest) / cell) then
    kept = last - 1
  end
  local added, lives = pack('>I4I4', offset, (total + 1) % WRAP), stamp + window - now_floor + SPARE
  if whole then
    local runs = string.sub(head, HEADER + (live - 1) * RUN + 1, HEADER + kept * RUN)
    call('SET', key, pack('>BI6I4', VERSION, base, before) .. runs .. added, 'PX', lifetime(lives))
  elseif live > last / 2 then
    local runs = live <= kept and range(key, live, kept) or ''
    call('SET', key, pack('>BI6I4', VERSION, base, before) .. runs .. added, 'PX', lifetime(lives))
  else
    if kept < last then
      call('SETRANGE', key, HEADER + kept * RUN, added)
    else
      call('APPEND', key, added)
    end
    if offset ~= newest then
      call('PEXPIRE', key, lifetime(lives))
    end
  end
  return 1, limit - used - 1, now_floor, stamp + window
end

for index = 1, #KEYS do
  local granted, remaining, retry_at, reset_at = take(KEYS[index])
  tell(index, granted, remaining, max(retry_at * 1000 - now_micros, 0), max(reset_at * 1000 - now_micros, 0))
end
return reply()

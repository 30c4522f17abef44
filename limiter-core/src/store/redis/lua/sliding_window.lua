-- The exact sliding window: at most `max` permits in any half-open window (t - window, t].
-- The arithmetic, and why it is so, is in algorithm/sliding_window.rs; the two agree to the millisecond.
--
-- KEYS[1]  the log, one string: the only key that is touched
-- ARGV[1]  window, milliseconds
-- ARGV[2]  max, permits in any window (1 to 2^32 - 1)
-- ARGV[3]  cost, permits of this call (0 to 2^32 - 1)
-- ARGV[4]  1 takes the permits if they fit, 0 only looks
--
-- Reply    { allowed 1 or 0, remaining, retry after in µs (-1: never), reset after in µs, stamp in ms }; or an error:
--          FOREIGN where the key holds something else, which stays as it is, or what the server said of a command
-- Clock    the server's own, by TIME
-- Expiry   set with the value, in one command: when the last permit is back, and half a second for the clock of expiry
-- Atomic   because a script is; a denial and a look write nothing
--
-- The log  version, base (ms), total before the first run, then runs of (units after the base, total so far);
--          totals are modulo 2^32
local HEADER, RUN, VERSION, CAPACITY, WRAP, SPARE = 11, 8, 1, 128, 4294967296, 500

local window, max, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local floor, ceil = math.floor(micros / 1000), math.ceil(micros / 1000)

local unit = 1
while unit * 1073741824 < window do unit = unit * 2 end

local log = redis.pcall('GET', KEYS[1])
if type(log) == 'table' then
  return log
end

local base, before, count = ceil, 0, 0
if log then
  local version
  count = (#log - HEADER) / RUN
  if count >= 1 and count % 1 == 0 then
    version, base, before = struct.unpack('>BI6I4', log)
  end
  if version ~= VERSION then
    return redis.error_reply('FOREIGN the key holds something else than this limiter writes')
  end
end

local function run(index)
  local offset, total = struct.unpack('>I4I4', log, HEADER + (index - 1) * RUN + 1)
  return base + offset * unit, total, offset
end

-- The first run from `low` on for which `found` holds, as it does for all after it, the last one included.
local function first(low, found)
  local high = count
  while low < high do
    local middle = math.floor((low + high) / 2)
    if found(run(middle)) then high = middle else low = middle + 1 end
  end
  return low
end

-- live: the first run that counts, count + 1 if none does; used: the permits from it on; newest: the last stamp.
local live, used, newest, last_total, last_offset = count + 1, 0, ceil, 0, 0
if count > 0 then
  local stamp, total, offset = run(count)
  -- As far as the last stamp proves that time had come; further ahead than a window, the log is void.
  local now = math.max(floor, stamp - unit)
  if stamp <= ceil + window and stamp + window > now then
    live = first(1, function(at) return at + window > now end)
    if live > 1 then
      local _, dead = run(live - 1)
      before = dead
    end
    used, newest, last_total, last_offset = (total - before) % WRAP, stamp, total, offset
  end
end

local remaining = math.max(max - used, 0)
if cost > remaining then
  local retry = -1
  if cost <= max then
    local missing = used + cost - max
    local enough = first(live, function(_, total) return (total - before) % WRAP >= missing end)
    retry = (run(enough) + window) * 1000 - micros
  end
  local reset = used > 0 and (newest + window) * 1000 - micros or 0
  return { 0, remaining, retry, reset, newest }
end
if cost == 0 or ARGV[4] ~= '1' then
  local reset = used > 0 and (newest + window) * 1000 - micros or 0
  return { 1, remaining, 0, reset, newest }
end

local kept
if live > count then
  base, before, kept, last_total, newest = ceil, 0, '', 0, ceil
  last_offset = 0
else
  kept = string.sub(log, HEADER + (live - 1) * RUN + 1)
  local offset = math.max(math.ceil((ceil - base) / unit), last_offset)
  if offset >= WRAP then
    local start, _, by = run(live)
    local rebased = {}
    for index = live, count do
      local _, total, old = run(index)
      rebased[#rebased + 1] = struct.pack('>I4I4', old - by, total)
    end
    base, kept, offset, last_offset = start, table.concat(rebased), offset - by, last_offset - by
  end
  local stamp = base + offset * unit
  local cell = math.ceil(window / CAPACITY)
  if offset == last_offset or (#kept >= CAPACITY * RUN and math.floor(stamp / cell) == math.floor(newest / cell)) then
    kept = string.sub(kept, 1, -RUN - 1)
  end
  newest, last_offset = stamp, offset
end

local value = struct.pack('>BI6I4', VERSION, base, before) .. kept
  .. struct.pack('>I4I4', last_offset, (last_total + cost) % WRAP)
local stored = redis.pcall('SET', KEYS[1], value, 'PX', newest - floor + window + SPARE)
if stored.err then
  return stored
end
return { 1, remaining - cost, 0, (newest + window) * 1000 - micros, newest }

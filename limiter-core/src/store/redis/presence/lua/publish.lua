-- Adds an entry to the stream of activity.
--
-- KEYS[1]  the stream
-- KEYS[2]  the counts of the limiters that live, which heartbeats write: see heartbeat.lua
-- ARGV[1]  the milliseconds for which an entry is kept
-- ARGV[2]  the most entries
-- ARGV[3]  the text of the entry
--
-- Reply    the number of limiters that live, 0 if none writes heartbeats
-- Clock    the server's, by TIME. The ids of entries are by it too
-- Expiry   of the stream, when its last entry is no longer kept
-- Atomic   because a script is. A user that lacks a permission writes nothing
local stream, counts = KEYS[1], KEYS[2]
local life, most, text = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local call, MAX_INVENTORIES = redis.call, 1000

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The command that trims comes first: without its permission nothing is written.
call('XTRIM', stream, 'MINID', '~', string.format('%.0f', now - life))
local id = call('XADD', stream, 'MAXLEN', '~', most, '*', 'e', text)
-- No limiter has written an id of the future. Behind it the ids would be no times, and no entry would be trimmed.
if tonumber(string.match(id, '^%d+')) > now + life then
  call('PEXPIRE', stream, 0)
  call('XADD', stream, '*', 'e', text)
end
call('PEXPIRE', stream, life)

local limiters = 0
local number_of = redis.pcall('HLEN', counts)
if type(number_of) == 'number' and number_of <= MAX_INVENTORIES then
  local entries = redis.pcall('HGETALL', counts)
  for index = 2, #entries, 2 do
    local number, ends = string.match(entries[index], '^(%d+) (%d+)$')
    if number and tonumber(ends) > now then
      limiters = limiters + number
    end
  end
end
return math.min(limiters, 1000000)

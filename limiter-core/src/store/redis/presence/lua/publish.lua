-- Adds an entry to the stream of activity.
--
-- KEYS[1]  the stream
-- ARGV[1]  the milliseconds for which an entry is kept
-- ARGV[2]  the most entries
-- ARGV[3]  the text of the entry
--
-- Reply    the id of the entry
-- Clock    the server's, by TIME. The ids of entries are by it too
-- Expiry   of the stream, when its last entry is no longer kept
-- Atomic   because a script is. A user that lacks a permission writes nothing
local stream = KEYS[1]
local life, most, text = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local call = redis.call

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- These come first: without their permissions nothing is written.
call('PEXPIRE', stream, life)
call('XTRIM', stream, 'MINID', '~', string.format('%.0f', now - life))
local id = call('XADD', stream, 'MAXLEN', '~', most, '*', 'e', text)
-- No limiter has written an id of the future. Behind it the ids would be no times, and no entry would be trimmed.
if tonumber(string.match(id, '^%d+')) > now + life then
  call('PEXPIRE', stream, 0)
  id = call('XADD', stream, '*', 'e', text)
end
call('PEXPIRE', stream, life)
return id

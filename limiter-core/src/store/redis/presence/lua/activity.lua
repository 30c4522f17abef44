-- Reads a part of the stream of activity, from the newest entry to older ones.
--
-- KEYS[1]  the stream
-- ARGV[1]  the id from which it is read: `+`, or `(` and an id that is left out
-- ARGV[2]  the id up to which it is read: `-`, or `(` and an id that is left out
-- ARGV[3]  the most entries
-- ARGV[4]  the most bytes of the text of an entry
--
-- Reply    the server's milliseconds, the id of the last entry that was read or an empty text, and then the id and the text of
--          each entry that a limiter may have written
-- Clock    the server's, by TIME
-- Expiry   none: nothing is written
local time = redis.call('TIME')
local entries = redis.call('XREVRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])
local longest = tonumber(ARGV[4])
local reply = { string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)), '' }
for _, entry in ipairs(entries) do
  local fields = entry[2]
  reply[2] = entry[1]
  if #fields == 2 and fields[1] == 'e' and #fields[2] <= longest then
    reply[#reply + 1] = entry[1]
    reply[#reply + 1] = fields[2]
  end
end
return reply

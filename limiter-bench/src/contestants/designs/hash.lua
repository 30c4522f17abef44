-- A hash from milliseconds to counts. Each decision adds up the counts of its window.
-- KEYS[1]  the counts
-- ARGV     window in microseconds, max, a number that no other call has
-- reply    1 allowed, 0 denied
-- clock    the server's, in milliseconds: stamps round up, cut-offs down
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local window = math.ceil(ARGV[1] / 1000)
local stamp = time[1] * 1000 + math.ceil(time[2] / 1000)
local counts = redis.call('HGETALL', KEYS[1])
local used, expired = 0, {}
for i = 1, #counts, 2 do
  if tonumber(counts[i]) <= now - window then
    expired[#expired + 1] = counts[i]
  else
    used = used + counts[i + 1]
  end
end
if used >= tonumber(ARGV[2]) then
  return 0
end
for i = 1, #expired, 1000 do
  redis.call('HDEL', KEYS[1], unpack(expired, i, math.min(i + 999, #expired)))
end
redis.call('HINCRBY', KEYS[1], string.format('%.0f', stamp), 1)
redis.call('PEXPIRE', KEYS[1], window + 1)
return 1

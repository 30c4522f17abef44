-- The log as a sorted set, trimmed before it is counted: one member a permit.
-- KEYS[1]  the log
-- ARGV     window in microseconds, max, a number that no other call has
-- reply    1 allowed, 0 denied
-- clock    the server's
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[1])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
  return 0
end
redis.call('ZADD', KEYS[1], now, time[1] .. time[2] .. '-' .. ARGV[3])
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[1] / 1000))
return 1

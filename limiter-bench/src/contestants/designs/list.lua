-- The log as a list of at most max stamps, oldest first. In a full list the oldest stamp decides.
-- KEYS[1]  the log
-- ARGV     window in microseconds, max, a number that no other call has
-- reply    1 allowed, 0 denied
-- clock    the server's
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[2]) then
  if tonumber(redis.call('LINDEX', KEYS[1], 0)) > now - ARGV[1] then
    return 0
  end
  redis.call('LPOP', KEYS[1])
end
redis.call('RPUSH', KEYS[1], string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[1] / 1000))
return 1

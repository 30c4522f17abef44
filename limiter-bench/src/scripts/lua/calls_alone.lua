-- No limiter: the commands of one, with nothing done between them.
-- KEYS     the counts
-- ARGV     as of group.lua, with one kind
redis.call('TIME')
for index = 1, #KEYS do
  redis.call('SET', KEYS[index], redis.call('GET', KEYS[index]) or 'a value of one run, as long', 'PX', ARGV[3])
end
return 1

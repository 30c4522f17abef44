-- The value with its expiry, in one command.
local function keep(key, new, lives)
  redis.call('SET', key, new, 'PX', lifetime(lives))
end

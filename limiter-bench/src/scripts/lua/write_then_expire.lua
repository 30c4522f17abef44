-- The value, and then its expiry.
local function keep(key, new, lives)
  redis.call('SET', key, new)
  redis.call('PEXPIRE', key, lifetime(lives))
end

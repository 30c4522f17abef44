-- The expiry with the first value alone. That is too early for those that follow: no limiter, but all that a longer expiry
-- which is seldom renewed could save.
local function keep(key, new, lives, old)
  if old then
    redis.call('SET', key, new, 'KEEPTTL')
  else
    redis.call('SET', key, new, 'PX', lifetime(lives))
  end
end

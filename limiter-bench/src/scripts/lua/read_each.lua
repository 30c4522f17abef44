-- Each value when its turn comes.
local function value_of(index)
  return redis.call('GET', KEYS[index])
end

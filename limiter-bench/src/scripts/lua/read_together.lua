-- All values in one command, before the first is decided about.
local values = #KEYS == 1 and { redis.call('GET', KEYS[1]) } or redis.call('MGET', unpack(KEYS))
local function value_of(index)
  return values[index]
end

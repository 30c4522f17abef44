-- Records the ms of the clock `now` at which each key expires, as the programs have set it. PTTL would depend on the time
-- between two commands.
local server, expiries = redis, {}
local redis = setmetatable({}, { __index = server })

local function expire_in(key, millis)
  expiries[key] = now[1] * 1000 + math.floor(now[2] / 1000) + tonumber(millis)
end

function redis.pcall(command, key, ...)
  local arguments = { ... }
  if command == 'PEXPIRE' then
    expire_in(key, arguments[1])
  elseif command == 'DEL' then
    expiries[key] = nil
  end
  for index, argument in ipairs(arguments) do
    if command == 'SET' and index > 1 and argument == 'PX' then
      expire_in(key, arguments[index + 1])
    end
  end
  return server.pcall(command, key, ...)
end


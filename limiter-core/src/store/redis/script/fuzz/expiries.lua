-- Records the expiry that the programs set for each key. PTTL would depend on the time between two commands.
local server, expiries = redis, {}
local redis = setmetatable({}, { __index = server })

function redis.pcall(command, key, ...)
  local arguments = { ... }
  if command == 'PEXPIRE' then
    expiries[key] = tonumber(arguments[1])
  elseif command == 'DEL' then
    expiries[key] = nil
  end
  for index, argument in ipairs(arguments) do
    if command == 'SET' and index > 1 and argument == 'PX' then
      expiries[key] = tonumber(arguments[index + 1])
    end
  end
  return server.pcall(command, key, ...)
end


-- What the fuzzing scripts have in common: numbers to pick from, a clock `now` that moves, and values that change.
local random = math.random
local WINDOWS = { 1, 7, 1000, 10000, 86400000, 31622400000 }
local NUMBERS = { 1, 2, 5, 128, 1000, 2147483648, 4294967295 }
local FAR = 2251799813685248

local function hex(value)
  return value and (string.gsub(value, '.', function(byte) return string.format('%02x', string.byte(byte)) end)) or 'none'
end

-- Both ways, from a microsecond to some windows.
local function move_clock(window)
  local by = math.floor(random() * ({ 3, 1000, window * 1000, window * 3000 })[random(1, 4)])
  local micros = now[1] * 1000000 + now[2] + (random(1, 3) == 1 and -by or by)
  micros = math.max(1000000, math.min(micros, 4000000000000000))
  now[1], now[2] = math.floor(micros / 1000000), micros % 1000000
end

-- Some bytes changed, cut off, put in or exchanged.
local function mutate(value)
  for _ = 1, random(0, 3) do
    local at = random(1, math.max(#value, 1))
    local kind = random(1, 7)
    local head, tail = string.sub(value, 1, at - 1), string.sub(value, at + 1)
    if kind <= 3 and #value > 0 then
      local byte = string.byte(value, at)
      value = head .. string.char(bit.bxor(byte, 2 ^ random(0, 7))) .. tail
    elseif kind == 4 then
      value = head .. string.char(255 * random(0, 1)) .. tail
    elseif kind == 5 then
      value = string.sub(value, 1, random(0, #value))
    elseif kind == 6 then
      value = value .. string.rep(string.char(random(0, 255)), 8 * random(0, 3) + random(0, 1) * random(0, 8))
    elseif #value > 11 then
      -- Fields of their own kind in each other's place.
      local from = random(1, #value - 8)
      value = string.sub(value, 1, math.min(at, #value - 8)) .. string.sub(value, from, from + 7) .. string.sub(value, at + 9)
    end
  end
  return value
end

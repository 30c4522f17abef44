-- The common part of the fuzzing scripts: numbers to choose from, a clock `now` that moves, and mutations of values.
local random = math.random
local WINDOWS = { 1, 7, 1000, 10000, 16777216, 86400000, 31622400000 }
local NUMBERS = { 1, 2, 5, 128, 1000, 2147483648, 4294967295 }
local MAX_WAIT_MICROS = 2251799813685248

local function hex(value)
  local function digits(byte) return string.format('%02x', string.byte(byte)) end
  return value and (string.gsub(value, '.', digits)) or 'none'
end

-- Moves the clock forward or back, by a microsecond up to three windows.
local function move_clock(window)
  local by = math.floor(random() * ({ 3, 1000, window * 1000, window * 3000 })[random(1, 4)])
  local micros = now[1] * 1000000 + now[2] + (random(1, 3) == 1 and -by or by)
  micros = math.max(1000000, math.min(micros, 4000000000000000))
  now[1], now[2] = math.floor(micros / 1000000), micros % 1000000
end

-- Returns the milliseconds of a unit of a sliding window.
local function unit_of(window)
  local unit = 1
  while unit * 16777216 < window do unit = unit * 2 end
  return unit
end

-- Returns whether a value has the version and the length of a short log, or of a long one without leases.
local function is_log(value)
  local version = string.byte(value)
  return version == 7 and #value >= 8 and #value <= 63 and (#value % 4 == 0 or #value % 4 == 3 and #value > 7)
    or version == 1 and #value >= 19 and #value % 8 == 3
end

-- Returns the base, the offsets and the permits of the runs of a short log, or of a long one without leases.
local function runs_of(value)
  local base, offsets, permits, total = struct.unpack('>I6', value, 2), {}, {}, 0
  if string.byte(value) == 7 then
    local is_at_base = #value % 4 == 0
    if is_at_base then
      offsets[1], permits[1] = 0, string.byte(value, 8)
    end
    for at = is_at_base and 9 or 8, #value - 3, 4 do
      local gap, more = struct.unpack('>I3B', value, at)
      offsets[#offsets + 1], permits[#permits + 1] = (offsets[#offsets] or 0) + gap, more
    end
    return base, offsets, permits
  end
  total = struct.unpack('>I4', value, 8)
  for at = 12, #value - 7, 8 do
    local offset, sum = struct.unpack('>I4I4', value, at)
    offsets[#offsets + 1], permits[#permits + 1], total = offset, (sum - total) % 4294967296, sum
  end
  return base, offsets, permits
end

-- Returns a log in the long form, if it is a short one.
local function as_long(value)
  if string.byte(value) ~= 7 or not is_log(value) then
    return value
  end
  local base, offsets, permits = runs_of(value)
  local parts, total = { struct.pack('>BI6I4', 1, base, 0) }, 0
  for run, offset in ipairs(offsets) do
    total = total + permits[run]
    parts[#parts + 1] = struct.pack('>I4I4', offset, total)
  end
  return table.concat(parts)
end

-- Returns the run log of a sliding window as one that has leases.
local function as_leased(value)
  value = as_long(value)
  return '\6' .. string.sub(value, 2, 11) .. 'mark' .. string.sub(value, 12)
end

-- Returns the value with some bytes changed, removed, inserted or moved.
local function mutate(value)
  for _ = 1, random(0, 3) do
    local index = random(1, math.max(#value, 1))
    local change = random(1, 7)
    local head, tail = string.sub(value, 1, index - 1), string.sub(value, index + 1)
    if change <= 3 and #value > 0 then
      local byte = string.byte(value, index)
      value = head .. string.char(bit.bxor(byte, 2 ^ random(0, 7))) .. tail
    elseif change == 4 then
      value = head .. string.char(255 * random(0, 1)) .. tail
    elseif change == 5 then
      value = string.sub(value, 1, random(0, #value))
    elseif change == 6 then
      value = value .. string.rep(string.char(random(0, 255)), 4 * random(0, 6) + random(0, 1) * random(0, 8))
    elseif #value > 11 then
      -- Overwrites a field with another one.
      local source = random(1, #value - 8)
      local start = string.sub(value, 1, math.min(index, #value - 8))
      value = start .. string.sub(value, source, source + 7) .. string.sub(value, index + 9)
    end
  end
  return value
end

-- One string, packed by one call at the end.
local told = {}
local function tell(index, granted, remaining, retry, reset)
  local at = 4 * index - 3
  told[at], told[at + 1], told[at + 2], told[at + 3] = granted, remaining, retry, reset
end
local function reply()
  local format = #KEYS == 1 and '>I4I4i8i8' or '>' .. string.rep('I4I4i8i8', #KEYS)
  return { now_micros, struct.pack(format, unpack(told)) }
end

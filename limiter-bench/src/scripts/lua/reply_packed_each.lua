-- One string, packed entry by entry.
local told = {}
local function tell(index, granted, remaining, retry, reset)
  told[index] = struct.pack('>I4I4i8i8', granted, remaining, retry, reset)
end
local function reply()
  return { now_micros, table.concat(told) }
end

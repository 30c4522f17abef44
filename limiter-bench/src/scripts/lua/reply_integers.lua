-- An array of integers: the server's instant, then four for each entry.
local told = { now_micros }
local function tell(index, granted, remaining, retry, reset)
  local at = 4 * index - 2
  told[at], told[at + 1], told[at + 2], told[at + 3] = granted, remaining, retry, reset
end
local function reply()
  return told
end

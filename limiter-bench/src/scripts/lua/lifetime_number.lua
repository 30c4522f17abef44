-- How long a key lives, as a number. The server prints it like one that need not be whole, and then reads that.
local function lifetime(millis)
  return millis
end

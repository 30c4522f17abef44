-- The first part of blocks.lua: a lone call of a key that was not blocked lately ends here if it is admitted, before the
-- script makes any other function. `simple` is sliding_simple.lua.

local DESCRIPTION_BYTES = 23
local described = table.remove(ARGV, 1)
local is_batch = string.byte(described) == 98
-- The key of a lone call's block, and its value. The reply, unless `simple` leaves the call to batch.lua.
local lone_key, lone_block, lone_reply
if is_batch and #KEYS == 2 then
  lone_key, KEYS[2] = KEYS[2], nil
  lone_block = redis.pcall('GET', lone_key)
  if not lone_block then
    lone_reply = simple()
    if lone_reply and struct.unpack('>I4', lone_reply, 9) > 0 then
      return lone_reply
    end
  end
end

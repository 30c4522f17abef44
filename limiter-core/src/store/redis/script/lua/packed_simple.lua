-- Simple decisions about packed counts: sliding_simple.lua, which reads fields instead of keys and writes them by
-- packed_write.lua. script.rs replaces these places. Most calls end here, before packed.lua makes any table.
--
-- A batch of one kind that declares no own keys has seven arguments, and for each key a field of 16 bytes. If this part stops
-- at an entry, it takes back the writes of those before it, since a call that is refused must not have changed any count.
-- Then packed.lua begins anew.
if #ARGV == 7 + #KEYS and #ARGV[#ARGV] == 16 then
  local MAX_FIELD_BYTES, sweeps = 63, 0
  -- The last entry that has written, and its value before; and the values before of a batch.
  local written, before, all_before = 0, nil, #KEYS > 1 and {}
  -- sliding_simple.lua
  all_before = all_before or { before }
  -- The last one first, since a field may come again.
  for index = written, 1, -1 do
    local value, hash, field = all_before[index], KEYS[index], ARGV[7 + index]
    if value then
      redis.pcall('HSET', hash, field, value)
    elseif value == false then
      redis.pcall('HDEL', hash, field)
    end
  end
end

-- Packed counts: a decision of decide.lua or a batch of batch.lua whose counts are fields of shared hashes. The script inside
-- has the name of a field in place of a key, and calls `redis` of this part, which reads fields and keeps writes until the
-- end. packed_end.lua applies them.
--
-- A field has the value that a key would have, if that has at most 63 bytes and no leases. Any other count has moved out, to
-- the key that it would have without a hash, and the field has a marker. When it fits again it returns.
--
-- KEYS     those of the decision or the batch inside, with the hash in place of each packed count's key; then the own key
--          of each declared count
-- ARGV     of the decision or the batch. Then for each request or entry the name of its field (16), empty for one that is not
--          packed; in a batch all are. Then, except for a batch without declared counts: 'd' for a decision or 'b' for a
--          batch, or 'D' or 'B' if a count that grows stays in its hash (1), the number of declared counts (2, big-endian)
--          and the index of each one's request or entry, from 0 (2)
--
-- Reply    as without hashes. Or MOVEDOUT and indices: these counts have moved out, or have to, and are not declared.
--          No count has changed then, and the caller sends the call again with their own keys
-- A marker 0 (1), and the ms from which the own key has expired (6)
-- Clock    the server's, by TIME
-- Expiry   of a hash: the end of a quarter of the window, counted from 1970, in which its last count and its last marker
--          expire, and half a second. A key would set its own in the same command; here it is compared after the value is
--          written, by the same script, and set if it is too soon. Nothing makes it sooner. So it is not compared if the
--          value before expires in the same quarter
-- Atomic   because a script is. Nothing is written before it is clear that all of it fits
local MAX_FIELD_BYTES, LEASED_VERSION, MARKER_BYTES = 63, 6, 7
local server, error_reply, byte = redis, redis.error_reply, string.byte
local fields_end, letter, described = #ARGV, 'b', ARGV[#ARGV]
-- No field has an odd length.
if #described % 2 == 1 then
  fields_end, letter = fields_end - 1, string.sub(described, 1, 1)
else
  described = 'b\0\0'
end
local is_batch, has_to_stay = letter == 'b' or letter == 'B', letter == 'B' or letter == 'D'

-- By the names of fields: the hash, the value now or false, and the index of the first request or entry, from 0.
local hashes, values, indices = {}, {}, {}
-- By the names of fields, of counts that have it: the own key that is declared, the ms of the marker, and the error of a key
-- of another type.
local owns, markers, failures = nil, nil, nil
do
  local fields, declared = #KEYS, struct.unpack('>I2', described, 2)
  if declared > 0 then
    owns, fields = {}, fields - declared
    for number = 1, declared do
      owns[struct.unpack('>I2', described, 2 + 2 * number)] = KEYS[fields + number]
    end
    for at = #KEYS, fields + 1, -1 do
      KEYS[at] = nil
    end
  end
  local call, moved = server.pcall, nil
  for index = 1, fields do
    local field, hash = ARGV[fields_end - fields + index], KEYS[index]
    if values[field] == nil and field ~= '' then
      local value = call('HGET', hash, field)
      hashes[field], indices[field] = hash, index - 1
      local own = owns and owns[index - 1]
      if own then
        owns[field] = own
      end
      if type(value) == 'table' then
        if not string.find(value.err, 'WRONGTYPE', 1, true) then
          return value
        end
        failures = failures or {}
        failures[field], value = value, false
      elseif value and byte(value) == 0 and #value == MARKER_BYTES then
        local _, expires_at = struct.unpack('>BI6', value)
        value, markers = false, markers or {}
        -- One that is dead counts as none, and is replaced.
        markers[field] = expires_at > now_floor and expires_at or 0
        if expires_at > now_floor and own then
          value = call('GET', own)
          if type(value) == 'table' then
            if not string.find(value.err, 'WRONGTYPE', 1, true) then
              return value
            end
            failures = failures or {}
            failures[field], value = value, false
          end
        elseif expires_at > now_floor then
          moved = (moved or 'MOVEDOUT') .. ' ' .. index - 1
        end
      end
      values[field] = value
    end
    if values[field] ~= nil then
      KEYS[index] = field
    end
  end
  if moved then
    return error_reply(moved)
  end
end

-- The names of the fields that change, and by them: the value before, ms from now until the value expires, if this call sets
-- it, and the offset of the bytes that replace the tail of the own key, if nothing else changes there.
local changed, before, ttls, tails = {}, {}, {}, nil
-- Of counts that do not fit into a field: true.
local outs
local OK = { ok = 'OK' }

-- Runs a command of the script inside about a packed count.
local function run(command, field, text, bytes, ttl, condition)
  local value = values[field]
  if command == 'GET' then
    return failures and failures[field] or value
  elseif command == 'MGET' then
    local all = {}
    for index = 1, #KEYS do
      all[index] = values[KEYS[index]]
    end
    return all
  elseif condition == 'NX' and failures and failures[field] then
    -- The script inside writes so what had no value for it. A key of another type has one.
    return false
  end
  local is_first = before[field] == nil
  if is_first then
    before[field], changed[#changed + 1] = value, field
  end
  if command == 'SET' then
    values[field], ttls[field] = text, ttl
    if #text > MAX_FIELD_BYTES or byte(text) == LEASED_VERSION then
      outs = outs or {}
      outs[field] = true
    elseif outs then
      outs[field] = nil
    end
    if tails then
      tails[field] = nil
    end
    return OK
  elseif command == 'SETRANGE' then
    local offset = tonumber(text)
    values[field] = string.sub(value, 1, offset) .. bytes .. string.sub(value, offset + #bytes + 1)
    outs, tails = outs or {}, tails or {}
    outs[field], tails[field] = true, is_first and markers and markers[field] and offset or nil
  elseif command == 'PEXPIRE' then
    ttls[field] = text
  elseif command == 'DEL' then
    values[field], ttls[field] = false, nil
    if outs then
      outs[field] = nil
    end
  else
    return error_reply('ERR a packed count has no ' .. command)
  end
  return 1
end

local redis = { call = run, pcall = run, error_reply = error_reply }
if not is_batch then
  -- Other requests of the decision, and the mark of a receipt, have keys.
  local function calling(of_server)
    return function(command, name, ...)
      if values[name] ~= nil then
        return run(command, name, ...)
      end
      return of_server(command, name, ...)
    end
  end
  redis.call, redis.pcall = calling(server.call), calling(server.pcall)
end

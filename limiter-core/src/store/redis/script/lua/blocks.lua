-- Blocks of keys, around a decision of decide.lua or a batch of batch.lua. A key that is blocked is denied, and its counters
-- are not read. A denial by a counter begins the block of its rule. blocks_lone.lua runs before this part.
--
-- KEYS     those of the decision or the batch inside, and then the key of each block; a key may come again
-- ARGV[1]  'd' for a decision or 'b' for a batch, and then 23 bytes for each block, big-endian: the index of its request or
--          its entry, from 0 (2), the calls of the entry (4), ms of the first block (6) and of the longest one (6),
--          thousandths by which each further one is longer (4), and a sum (1): 1 if a denial begins it, 2 if attempts
--          extend it
-- then the arguments of the decision or the batch
--
-- Reply    as without blocks. For a key that is blocked, by this call or an earlier one, retry after is -2 minus the µs until
--          its end. Only that is known of a key that was blocked before: the other numbers are 0. 'forget' deletes the blocks
-- A value  version, end (ms), length (ms). What is no such value counts as none, and the next block replaces it
-- Clock    the server's, by TIME
-- Expiry   set with the value: half a second after its end. Of a block that grows, so long after the longest one from then
-- Atomic   because a script is. A block is written after the decision. If the server rejects it, the denial stands alone
local VALUE, VALUE_BYTES, VERSION, EXPIRY_SLACK_MS, EXTENSION_PAUSE_MS = '>BI6I6', 13, 1, 500, 1000
-- ms by which the clock may step back in a block, and of the longest block.
local CLOCK_SLACK_MS, MAX_LENGTH_MS = 1000, 31622400000
local ENTRY, ENTRY_BYTES, BLOCKED = '>I4I4i8i8', 24, -2
local unpack_bytes, pack_bytes = struct.unpack, struct.pack

local block_count = (#described - 1) / DESCRIPTION_BYTES
local block_keys, block_values = { lone_key }, lone_key and { lone_block }
if not lone_key then
  local first_block = #KEYS - block_count + 1
  block_keys = { unpack(KEYS, first_block) }
  for index = #KEYS, first_block, -1 do
    KEYS[index] = nil
  end
end
local request_count = #KEYS

-- Returns the index, from 1, and the number of calls of a block's entry.
local function entry_of(number)
  local index, calls = unpack_bytes('>I2I4', described, 2 + (number - 1) * DESCRIPTION_BYTES)
  return index + 1, calls
end

-- Returns the ms of the first block and of the longest one, thousandths, and whether a denial begins it and an attempt
-- extends it.
local function terms_of(number)
  local first, longest, factor, flags = unpack_bytes('>I6I6I4B', described, 8 + (number - 1) * DESCRIPTION_BYTES)
  return first, longest, factor, flags % 2 == 1, flags >= 2
end

-- The end and the length of the last block of each key that was blocked lately.
local ends_of, length_of = {}, {}
-- An error of the server, but for that of a key of another type, which has no value.
local read_error
local function read_blocks()
  block_values = block_values or block_count == 1 and { redis.pcall('GET', block_keys[1]) }
    or redis.pcall('MGET', unpack(block_keys))
  local failure = block_values.err and block_values or block_values[1]
  if type(failure) == 'table' and not string.find(failure.err, 'WRONGTYPE', 1, true) then
    read_error = failure
    return false
  end
  local is_any_known = false
  for number = 1, block_count do
    local value = block_values[number]
    if type(value) == 'string' and #value == VALUE_BYTES then
      local version, ends, length = unpack_bytes(VALUE, value)
      if version == VERSION and length <= MAX_LENGTH_MS then
        ends_of[block_keys[number]], length_of[block_keys[number]], is_any_known = ends, length, true
      end
    end
  end
  return is_any_known
end

-- A block that ends much later than its length from now is from before a step of the clock.
local function is_in_force(key)
  local ends = ends_of[key]
  return ends and now_floor < ends and ends - now_floor <= length_of[key] + CLOCK_SLACK_MS
end

local function write(number, length)
  local key, first, longest = block_keys[number], terms_of(number)
  local ends, kept = now_ceil + length, longest > first and longest or 0
  local value, ttl = pack_bytes(VALUE, VERSION, ends, length), ends - now_floor + kept + EXPIRY_SLACK_MS
  local stored = redis.pcall('SET', key, value, 'PX', string.format('%d', ttl))
  if stored.err then
    return false
  end
  ends_of[key], length_of[key] = ends, length
  return true
end

-- Returns the end of a block if it is in force, after an attempt.
local function attempted(number)
  local key = block_keys[number]
  if not is_in_force(key) then
    return nil
  end
  local _, _, _, begins, extends = terms_of(number)
  if begins and extends and ends_of[key] - now_ceil + EXTENSION_PAUSE_MS <= length_of[key] then
    write(number, length_of[key])
  end
  return ends_of[key]
end

-- Begins a block after a denial, if a denial does. Returns its end if it is in force then.
local function begin(number)
  local key, first, longest, factor, begins = block_keys[number], terms_of(number)
  if not begins then
    return nil
  end
  if not is_in_force(key) then
    local length, ends = first, ends_of[key]
    -- None grows from one of a clock that has stepped back.
    if longest > first and ends and ends <= now_ceil and now_ceil < ends + longest then
      length = math.min(math.max(math.floor(length_of[key] * factor / 1000), first), longest)
    end
    if not write(number, length) then
      return nil
    end
  end
  return ends_of[key]
end

local function retry_until(ends)
  return BLOCKED - (ends * 1000 - now_micros)
end

if not is_batch then
  local operation = ARGV[1]
  if operation == 'forget' then
    local reply = decide()
    for _, key in ipairs(block_keys) do
      local deleted = redis.pcall('DEL', key)
      if type(deleted) == 'table' then
        return deleted
      end
    end
    return reply
  end
  -- The end of the block that ends last, and the index of its request.
  local last_end, blocked
  for number = 1, read_blocks() and block_count or 0 do
    local ends = attempted(number)
    if ends and ends > (last_end or 0) then
      last_end, blocked = ends, entry_of(number)
    end
  end
  if read_error then
    return read_error
  end
  if blocked then
    local reply = { 0, blocked - 1, 0, retry_until(last_end), 0, now_micros, 0 }
    if operation == 'report' or operation == 'survey' then
      ARGV[1] = 'survey'
      local levels = decide()
      if levels.err then
        return levels
      end
      for at = #reply + 1, #levels do
        reply[at] = levels[at]
      end
    end
    return reply
  end
  local denials = {}
  local reply = decide(denials)
  -- A decision that is final begins none: its caller is not to come again.
  if reply.err or reply[1] == 1 or reply[4] < 0 then
    return reply
  end
  local is_of_decider
  for number = 1, block_count do
    local index = entry_of(number)
    local ends = denials[index] and begin(number)
    if ends and ends > (last_end or 0) then
      last_end, blocked, is_of_decider = ends, index, false
    end
    is_of_decider = is_of_decider or ends and ends == last_end and index == reply[2] + 1
  end
  if last_end then
    if not is_of_decider then
      -- The reply is about the request whose block is the last one to end.
      reply[2], reply[3], reply[5] = blocked - 1, 0, 0
    end
    reply[4] = retry_until(last_end)
  end
  return reply
end

-- The ends of the entries that are blocked already, and the index of each other entry by its place in the batch inside.
local blocked_until, indices = {}, nil
for number = 1, read_blocks() and block_count or 0 do
  local ends = attempted(number)
  if ends then
    blocked_until[entry_of(number)], indices = ends, {}
  end
end
if read_error then
  return read_error
end
if indices then
  local FIELDS = 6
  local has_many_kinds, first_entry_kind = ARGV[1] ~= '1', 2 + ARGV[1] * FIELDS
  for index = 1, request_count do
    if not blocked_until[index] then
      local place = #indices + 1
      indices[place], KEYS[place] = index, KEYS[index]
      if has_many_kinds then
        ARGV[first_entry_kind + place - 1] = ARGV[first_entry_kind + index - 1]
      end
    end
  end
  for index = request_count, #indices + 1, -1 do
    KEYS[index] = nil
  end
end
local reply = lone_reply
if not reply then
  reply = #KEYS > 0 and batch() or { now_micros, '' }
end
if type(reply) == 'string' then
  reply = { now_micros, string.sub(reply, 9) }
elseif reply.err then
  return reply
end
local packed, places, failed = reply[2], nil, nil
if indices then
  places = {}
  for place, index in ipairs(indices) do
    places[index] = place
  end
end
for at = 3, #reply, 2 do
  failed = failed or {}
  local index = indices and indices[reply[at] + 1] or reply[at] + 1
  failed[index], reply[at] = true, index - 1
end
for number = 1, block_count do
  local index, calls = entry_of(number)
  local place = index
  if places then
    place = places[index]
  end
  if place and not (failed and failed[index]) then
    local at = (place - 1) * ENTRY_BYTES
    if unpack_bytes('>I4', packed, at + 1) < calls and unpack_bytes('>i8', packed, at + 9) >= 0 then
      local ends = begin(number)
      if ends then
        packed = string.sub(packed, 1, at + 8) .. pack_bytes('>i8', retry_until(ends)) .. string.sub(packed, at + 17)
      end
    end
  end
end
if indices then
  local entries = {}
  for index = 1, request_count do
    local place = places[index]
    entries[index] = place and string.sub(packed, (place - 1) * ENTRY_BYTES + 1, place * ENTRY_BYTES)
      or pack_bytes(ENTRY, 0, 0, retry_until(blocked_until[index]), 0)
  end
  -- What is packed behind the entries is about leases.
  packed = table.concat(entries) .. string.sub(packed, #indices * ENTRY_BYTES + 1)
end
reply[2] = packed
return reply

-- Blocks of keys, around a decision of decide.lua or a batch of batch.lua. A key that is blocked is denied, and its counters
-- are not read. A denial by a counter begins the block of its rule.
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
local DESCRIPTION, DESCRIPTION_BYTES = '>I2I4I6I6I4B', 23
local VALUE, VALUE_BYTES, VERSION, EXPIRY_SLACK_MS, EXTENSION_PAUSE_MS = '>BI6I6', 13, 1, 500, 1000
local ENTRY, ENTRY_BYTES, BLOCKED = '>I4I4i8i8', 24, -2
local unpack_bytes, pack_bytes = struct.unpack, struct.pack

local described = table.remove(ARGV, 1)
local blocks, block_keys = {}, {}
local count = (#described - 1) / DESCRIPTION_BYTES
local requests = #KEYS - count
for number = 1, count do
  local index, calls, first, longest, factor, flags =
    unpack_bytes(DESCRIPTION, described, 2 + (number - 1) * DESCRIPTION_BYTES)
  block_keys[number] = KEYS[requests + number]
  blocks[number] = {
    key = block_keys[number], index = index + 1, calls = calls, first = first, longest = longest, factor = factor,
    begins = flags % 2 == 1, extends = flags >= 2,
  }
end
for index = #KEYS, requests + 1, -1 do
  KEYS[index] = nil
end

-- The state of each key: `ends` and `length`, if it was blocked lately.
local states = {}
local function read_states()
  local values = count == 1 and { redis.pcall('GET', block_keys[1]) } or redis.call('MGET', unpack(block_keys))
  for number, key in ipairs(block_keys) do
    local value, state = values[number], {}
    if type(value) == 'string' and #value == VALUE_BYTES then
      local version, ends, length = unpack_bytes(VALUE, value)
      if version == VERSION then
        state.ends, state.length = ends, length
      end
    end
    states[key] = states[key] or state
  end
end

-- A block that ends later than its length from now is from before a step of the clock.
local function is_in_force(state)
  return state.ends and now_floor < state.ends and state.ends - now_floor <= state.length + 1
end

local function write(block, length)
  local ends, kept = now_ceil + length, block.longest > block.first and block.longest or 0
  local value, ttl = pack_bytes(VALUE, VERSION, ends, length), ends - now_floor + kept + EXPIRY_SLACK_MS
  local stored = redis.pcall('SET', block.key, value, 'PX', string.format('%d', ttl))
  if stored.err then
    return false
  end
  states[block.key] = { ends = ends, length = length }
  return true
end

-- Returns the end of the block if it is in force, after an attempt.
local function attempted(block)
  local state = states[block.key]
  if not is_in_force(state) then
    return nil
  end
  if block.extends and block.begins and state.ends - now_ceil + EXTENSION_PAUSE_MS <= state.length then
    write(block, state.length)
  end
  return states[block.key].ends
end

-- Begins the block after a denial. Returns its end, if it is in force then.
local function begin(block)
  local state, length = states[block.key], block.first
  if not is_in_force(state) then
    if block.longest > block.first and state.ends and now_ceil < state.ends + block.longest then
      length = math.min(math.max(math.floor(state.length * block.factor / 1000), block.first), block.longest)
    end
    if not write(block, length) then
      return nil
    end
  end
  return states[block.key].ends
end

local function retry_until(ends)
  return BLOCKED - (ends * 1000 - now_micros)
end

if string.sub(described, 1, 1) == 'd' then
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
  read_states()
  local first, last_end
  for _, block in ipairs(blocks) do
    local ends = attempted(block)
    if ends then
      first, last_end = math.min(first or block.index, block.index), math.max(last_end or ends, ends)
    end
  end
  if first then
    local reply = { 0, first - 1, 0, retry_until(last_end), 0, now_micros, 0 }
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
  if reply.err or reply[1] == 1 then
    return reply
  end
  for _, block in ipairs(blocks) do
    local ends = block.begins and denials[block.index] and begin(block)
    last_end = ends and math.max(last_end or ends, ends) or last_end
  end
  if last_end then
    reply[4] = retry_until(last_end)
  end
  return reply
end

read_states()
-- The ends of the entries that are blocked already, and the indices of the others.
local ends_of, indices = {}, {}
local is_any_blocked = false
for _, block in ipairs(blocks) do
  local ends = attempted(block)
  ends_of[block.index], is_any_blocked = ends, is_any_blocked or ends
end
if is_any_blocked then
  local FIELDS = 6
  local has_many_kinds, first_entry_kind = ARGV[1] ~= '1', 2 + ARGV[1] * FIELDS
  local kept = 0
  for index = 1, requests do
    if not ends_of[index] then
      kept = kept + 1
      indices[kept], KEYS[kept] = index, KEYS[index]
      if has_many_kinds then
        ARGV[first_entry_kind + kept - 1] = ARGV[first_entry_kind + index - 1]
      end
    end
  end
  for index = requests, kept + 1, -1 do
    KEYS[index] = nil
  end
end
local reply = { now_micros, '' }
if #KEYS > 0 then
  reply = batch()
end
if type(reply) == 'string' then
  if not is_any_blocked and unpack_bytes('>I4', reply, 9) >= blocks[1].calls then
    return reply
  end
  reply = { now_micros, string.sub(reply, 9) }
elseif reply.err then
  return reply
end
local packed, places, failed = reply[2], {}, {}
for place = 1, #KEYS do
  places[indices[place] or place] = place
end
for at = 3, #reply, 2 do
  local place = reply[at] + 1
  local index = indices[place] or place
  failed[index], reply[at] = true, index - 1
end
for _, block in ipairs(blocks) do
  local place = places[block.index]
  if place and block.begins and not failed[block.index] then
    local at = (place - 1) * ENTRY_BYTES
    local granted, _, retry = unpack_bytes('>I4I4i8', packed, at + 1)
    local ends = granted < block.calls and retry >= 0 and begin(block)
    if ends then
      packed = string.sub(packed, 1, at + 8) .. pack_bytes('>i8', retry_until(ends)) .. string.sub(packed, at + 17)
    end
  end
end
if is_any_blocked then
  local entries = {}
  for index = 1, requests do
    local place = places[index]
    entries[index] = place and string.sub(packed, (place - 1) * ENTRY_BYTES + 1, place * ENTRY_BYTES)
      or pack_bytes(ENTRY, 0, 0, retry_until(ends_of[index]), 0)
  end
  -- What is packed behind the entries is about leases.
  packed = table.concat(entries) .. string.sub(packed, #KEYS * ENTRY_BYTES + 1)
end
reply[2] = packed
return reply

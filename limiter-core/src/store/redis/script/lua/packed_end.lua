-- The last part of packed.lua: it applies the writes of the script inside. `batch` and `decide` are that script.

local reply
if is_batch then
  reply = batch()
else
  reply = decide()
end
if type(reply) == 'table' and reply.err or #changed == 0 then
  return reply
end

-- A marker is in force longer than it must be, by this part of the time and so many ms at most, so that most writes need no
-- other. While the slot moves, calls of a dead count wait until it is not.
local MARGIN, MAX_MARGIN_MS, SLACK_MS = 4, 1000, 500
local call, unpack_bytes, pack_bytes = server.pcall, struct.unpack, struct.pack

-- A count that does not fit moves out. If its key is not declared, nothing is written.
if outs then
  local moved
  for _, field in ipairs(changed) do
    if outs[field] and not (owns and owns[field]) then
      if has_to_stay then
        outs[field] = nil
      else
        moved = (moved or 'MOVEDOUT') .. ' ' .. indices[field]
      end
    end
  end
  if moved then
    return error_reply(moved)
  end
end

-- Returns the place of the terms of a request or an entry: algorithm and window.
local function terms_at(index)
  if not is_batch then
    return 3 + index * 5
  end
  return 2 + 6 * (ARGV[1] ~= '1' and ARGV[2 + ARGV[1] * 6 + index] or 0)
end

-- Returns a time in ms that no value of a count outlives.
local function longest_life(field)
  return 2 * ARGV[terms_at(indices[field]) + 1] + 2 * SLACK_MS
end

-- Writes the key of a count that has moved out. Returns an error, or the marker, which outlives the key, and the ms that it
-- is in force.
local function write_own(field, ttl)
  local own, marker, offset, stored = owns[field], markers and markers[field] or 0, tails and tails[field], nil
  if not ttl and marker == 0 then
    -- A change in place sets no expiry: the hash has it, unless that was lost.
    ttl = call('PTTL', hashes[field])
    if type(ttl) == 'table' then
      return ttl
    end
    ttl = ttl > 0 and ttl or longest_life(field)
  end
  local ttl_text = ttl and string.format('%d', ttl)
  if offset then
    stored = call('SETRANGE', own, string.format('%d', offset), string.sub(values[field], offset + 1))
    if type(stored) ~= 'table' and ttl then
      stored = call('PEXPIRE', own, ttl_text)
    end
  elseif ttl then
    stored = call('SET', own, values[field], 'PX', ttl_text)
  else
    stored = call('SET', own, values[field], 'KEEPTTL')
  end
  if type(stored) == 'table' and stored.err then
    return stored
  elseif ttl and marker < now_floor + ttl then
    ttl = ttl + math.min(math.floor(ttl / MARGIN), MAX_MARGIN_MS)
    return nil, pack_bytes('>BI6', 0, now_floor + ttl), ttl
  end
end

local failure, failed_at
for number, field in ipairs(changed) do
  local value, hash, ttl, stored = values[field], hashes[field], ttls[field], nil
  local is_out = outs and outs[field]
  if is_out then
    stored, value, ttl = write_own(field, ttl and tonumber(ttl))
  end
  if value then
    stored = call('HSET', hash, field, value)
    if ttl and type(stored) ~= 'table' then
      -- The expiry of packed_write.lua, which relies on it.
      local window = ARGV[terms_at(indices[field]) + 1]
      local due, quarter = now_floor + ttl, (window - window % 4) / 4 + 1
      due = due - due % quarter + quarter - now_floor
      stored = call('PTTL', hash)
      if type(stored) ~= 'table' and stored < due then
        -- The server would format a number as a decimal fraction.
        stored = call('PEXPIRE', hash, string.format('%d', due + SLACK_MS))
      end
    end
  elseif not is_out and (before[field] or markers and markers[field]) then
    stored = call('HDEL', hash, field)
  end
  if type(stored) == 'table' then
    failure, failed_at = stored, number
    break
  end
end
-- The own keys of counts that have returned go last, since a failure cannot bring them back.
for _, field in ipairs(not failure and markers and owns and changed or {}) do
  if markers[field] and owns[field] and not (outs and outs[field]) then
    local deleted = call('DEL', owns[field])
    if type(deleted) == 'table' then
      failure, failed_at = deleted, #changed
      break
    end
  end
end
if failure then
  -- The ACL may forbid a command. No hash is left without an expiry, and a call that fails takes no permits.
  for number = 1, failed_at do
    local field = changed[number]
    local marker, hash = markers and markers[field], hashes[field]
    if marker and owns and owns[field] and before[field] then
      -- Only if it is there: it would have no expiry.
      call('SET', owns[field], before[field], 'XX', 'KEEPTTL')
    end
    if marker then
      call('HSET', hash, field, pack_bytes('>BI6', 0, marker))
    elseif before[field] then
      call('HSET', hash, field, before[field])
    else
      call('HDEL', hash, field)
    end
    if call('PTTL', hash) == -1 then
      -- Its last field was deleted meanwhile.
      call('PEXPIRE', hash, string.format('%d', longest_life(field)))
    end
  end
  if not is_batch then
    return failure
  end
  -- The other entries of a batch keep their replies, as they do if keys cannot be written. So do those of a count that fails,
  -- before the first one that takes permits.
  local entries, replies, leases, failed = type(reply) == 'string' and string.sub(reply, 9) or reply[2], {}, {}, { now_micros }
  local has_failed, lease_at = {}, 24 * #KEYS
  for index, field in ipairs(KEYS) do
    local at, entry = terms_at(index - 1), string.sub(entries, 24 * index - 23, 24 * index)
    local is_leased = ARGV[at] == 'leased_window'
    if before[field] ~= nil and (is_leased or ARGV[at + 4] ~= '0' and unpack_bytes('>I4', entry) > 0) then
      has_failed[field] = true
    end
    has_failed[index] = has_failed[field]
    replies[index] = has_failed[field] and string.rep('\0', 24) or entry
    if is_leased then
      leases[#leases + 1] = has_failed[field] and string.rep('\0', 16) or string.sub(entries, lease_at + 1, lease_at + 16)
      lease_at = lease_at + 16
    end
  end
  failed[2] = table.concat(replies) .. table.concat(leases)
  for index = 1, #KEYS do
    if has_failed[index] then
      failed[#failed + 1], failed[#failed + 2] = index - 1, failure
    end
  end
  for at = 3, type(reply) == 'table' and #reply or 0, 2 do
    if not has_failed[reply[at] + 1] then
      failed[#failed + 1], failed[#failed + 2] = reply[at], reply[at + 1]
    end
  end
  return failed
end

local sweeps = 0
for _, field in ipairs(changed) do
  local rate = (before[field] or markers and markers[field]) and WRITES or ADDS
  if (now_micros + byte(field) + indices[field]) % rate == 0 and sweeps < MAX_SWEEPS then
    sweeps = sweeps + 1
    local at = terms_at(indices[field])
    sweep(hashes[field], ARGV[at], tonumber(ARGV[at + 1]), now_floor)
  end
end
return reply

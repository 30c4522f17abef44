-- Runs random decisions and batches on packed counts by `packed`, and the same ones on keys of their own by `decide` and
-- `batch`. Both must return the same replies and leave the same values. All read the time from `now`.
--
-- KEYS     two hashes, the keys that the packed counts may move to, and as many keys for the other programs
-- ARGV     algorithm, rounds, seed, and 1 if each write sweeps its hash
--
-- Reply    { calls, refused, moved out, returned, swept, foreign, stayed }: the number of each; or a text that describes the problem
local algorithm, rounds, sweeps = ARGV[1], tonumber(ARGV[2]), ARGV[4] == '1'
math.randomseed(tonumber(ARGV[3]))
local COUNTS = (#KEYS - 2) / 2
local KEYS_AT, PLAIN_AT = 2, 2 + COUNTS
local MAX_FIELD_BYTES, MARGIN_MS = 63, 500

local of_server = redis.pcall
local function now_ms()
  return now[1] * 1000 + math.floor(now[2] / 1000)
end
function redis.pcall(command, key, ...)
  if command == 'PTTL' then
    return expiries[key] and expiries[key] - now_ms() or -1
  end
  local reply = of_server(command, key, ...)
  if command == 'HDEL' and server.call('EXISTS', key) == 0 then
    expiries[key] = nil
  end
  return reply
end
redis.call = redis.pcall

local function hash_of(count)
  return KEYS[count % 2 + 1]
end
local function field_of(count)
  return string.format('%016d', count * 7919)
end

-- Returns the value of a packed count, and whether it has moved out.
local function packed_value(count)
  local field = server.call('HGET', hash_of(count), field_of(count))
  if field and #field == 7 and string.byte(field) == 0 then
    local _, expires_at = struct.unpack('>BI6', field)
    if expires_at <= now_ms() then
      return false, false
    end
    return server.call('GET', KEYS[KEYS_AT + count]), true, expires_at
  end
  return field, false
end

-- Returns all that the packed counts have in the server. A refused call may have made the expiry of a hash later.
local function snapshot()
  local parts = {}
  for _, hash in ipairs({ KEYS[1], KEYS[2] }) do
    local fields = server.call('HGETALL', hash)
    local pairs_of_hash = {}
    for at = 1, #fields, 2 do
      pairs_of_hash[#pairs_of_hash + 1] = fields[at] .. '=' .. hex(fields[at + 1])
    end
    table.sort(pairs_of_hash)
    parts[#parts + 1] = table.concat(pairs_of_hash, ' ')
  end
  for count = 1, COUNTS do
    parts[#parts + 1] = hex(server.call('GET', KEYS[KEYS_AT + count])) .. '@' .. tostring(expiries[KEYS[KEYS_AT + count]])
  end
  return table.concat(parts, ' ')
end

-- Calls `packed` about these counts, and about one more key if there is one. Returns the reply and the refusals.
local function call_packed(is_batch, has_to_stay, counts, words, other)
  local declared, refusals = {}, 0
  if other or random(1, 8) == 1 then
    for index = 1, #counts do
      declared[index] = true
    end
  end
  while true do
    local keys, own, indices, fields = {}, {}, {}, {}
    for index, count in ipairs(counts) do
      keys[index], fields[index] = hash_of(count), field_of(count)
      if declared[index] then
        own[#own + 1], indices[#indices + 1] = KEYS[KEYS_AT + count], struct.pack('>I2', index - 1)
      end
    end
    keys[#keys + 1] = other
    if other then
      fields[#fields + 1] = ''
    end
    for _, key in ipairs(own) do
      keys[#keys + 1] = key
    end
    local arguments = { unpack(words) }
    for _, field in ipairs(fields) do
      arguments[#arguments + 1] = field
    end
    if not is_batch or has_to_stay or #own > 0 then
      local letter = is_batch and 'b' or 'd'
      letter = has_to_stay and string.upper(letter) or letter
      arguments[#arguments + 1] = letter .. struct.pack('>I2', #own) .. table.concat(indices)
    end
    local before = snapshot()
    local ok, reply = pcall(packed, keys, arguments)
    if not ok then
      return nil, 'failed: ' .. tostring(reply)
    end
    if type(reply) ~= 'table' or not reply.err or string.sub(reply.err, 1, 8) ~= 'MOVEDOUT' then
      return reply, refusals
    end
    -- A sweep may have deleted dead counts.
    if not sweeps and snapshot() ~= before then
      return nil, 'a refusal that has changed something'
    end
    refusals = refusals + 1
    local is_new = false
    for index in string.gmatch(string.sub(reply.err, 9), '%d+') do
      is_new = is_new or not declared[index + 1]
      declared[index + 1] = true
      local _, is_out = packed_value(counts[index + 1])
      if has_to_stay and not is_out then
        return nil, 'a refusal of a count that has to stay'
      end
    end
    if not is_new then
      return nil, 'a refusal of counts that are declared: ' .. reply.err
    end
  end
end

local function text_of(reply)
  if type(reply) ~= 'table' then
    return hex(tostring(reply))
  elseif reply.err then
    return reply.err
  end
  local parts = {}
  for index, part in ipairs(reply) do
    parts[index] = text_of(part)
  end
  return '{' .. table.concat(parts, ' ') .. '}'
end

-- Returns whether a key has expired. A sweep does not know the cell of a log, of at most 100 ms.
local function has_expired(plain)
  return expiries[plain] and expiries[plain] - (sweeps and 100 or 0) <= now_ms()
end

local function edges_of(window)
  local start = now_ms() - now_ms() % window
  return string.format('%.0f %.0f %.0f %.0f', start - window, start, start + window, start + 2 * window)
end

-- Returns a log of a sliding window with up to 130 runs.
local function any_log(window)
  local unit = 1
  while unit * 1073741824 < window do unit = unit * 2 end
  local runs, total = ({ random(1, 6), random(6, 8), random(30, 130) })[random(1, 3)], 0
  local span = math.floor(random() * window)
  local log = { struct.pack('>BI6I4', 1, math.max(now_ms() - span, 0), 4294967295 - random(0, 60)) }
  for run = 1, runs do
    total = total + random(1, 2)
    log[#log + 1] = struct.pack('>I4I4', math.floor(span * run / runs / unit), (4294967235 + total) % 4294967296)
  end
  return table.concat(log)
end

-- Gives a count and its plain key the same value.
local function set(count, value, window)
  local hash, field, own, plain = hash_of(count), field_of(count), KEYS[KEYS_AT + count], KEYS[PLAIN_AT + count]
  local expires_at = now_ms() + window + 500
  server.call('DEL', own)
  server.call('SET', plain, value)
  expiries[plain], expiries[own] = expires_at, nil
  -- A quarter of a window later, as the program sets it. A stamp may be up to a cell later than it is.
  local hash_expires_at = expires_at + math.floor(window / 4) + 101
  expiries[hash] = math.max(expiries[hash] or 0, hash_expires_at)
  if #value > MAX_FIELD_BYTES or string.byte(value) == 6 then
    server.call('HSET', hash, field, struct.pack('>BI6', 0, expires_at))
    server.call('SET', own, value)
    expiries[own] = expires_at
  else
    server.call('HSET', hash, field, value)
  end
end

local seen = { 0, 0, 0, 0, 0, 0, 0 }
local OPERATIONS = { 'take', 'take', 'take', 'report', 'look', 'survey', 'refund', 'charge', 'settle', 'once', 'forget' }
local window = WINDOWS[random(3, #WINDOWS)]

-- Returns the words of a decision, and whether it uses a receipt.
local function any_decision(requests)
  local operation, words = OPERATIONS[random(1, #OPERATIONS)], {}
  local is_settlement = operation == 'settle' or operation == 'once'
  local stamp = string.format('%.0f', now[1] * 1000000 + now[2] - math.floor(random() * window * 1000))
  words[1], words[2] = operation == 'settle' and 'charge' or operation, (is_settlement or operation == 'refund') and stamp or '0'
  for _ = 1, requests do
    local cost = string.format('%d', random(0, 3))
    if is_settlement and random(1, 2) == 1 then
      cost = '0 ' .. random(1, 3) .. ' ' .. random(0, 2)
    end
    words[#words + 1], words[#words + 2] = algorithm, string.format('%.0f', window)
    words[#words + 1] = string.format('%d', ({ 5, 8, 40, 4294967295 })[random(1, 4)])
    words[#words + 1] = algorithm == 'calendar' and edges_of(window) or '5'
    words[#words + 1] = cost
  end
  if operation == 'once' then
    words[#words + 1] = string.format('%.0f', now[1] * 1000000 + now[2] + random(-1, 5) * 1000000)
    words[#words + 1] = string.format('%.0f', random(0, 1) * MAX_WAIT_MICROS)
  end
  return words, operation == 'once'
end

-- Returns the words of a batch of so many entries.
local function any_batch(entries)
  local words, indices, kinds = {}, {}, random(1, 3)
  words[1] = string.format('%d', kinds)
  local is_simple = random(1, 3) == 1
  for _ = 1, kinds do
    local is_leased = algorithm == 'sliding_window' and not is_simple and random(1, 4) == 1
    words[#words + 1], words[#words + 2] = is_leased and 'leased_window' or algorithm, string.format('%.0f', window)
    words[#words + 1] = string.format('%d', ({ 5, 8, 40, 4294967295 })[random(1, 4)])
    local burst = algorithm == 'calendar' and edges_of(window) or '5'
    if is_leased then
      burst = random(1, 2) == 1 and '' or struct.pack('>I4I4I4I6I4', random(0, 20), random(1, 3), random(0, 2), now_ms(), random(1, 3))
    end
    words[#words + 1], words[#words + 2] = burst, string.format('%d', random(0, 3))
    words[#words + 1] = is_simple and '1' or not is_leased and random(1, 5) == 1 and '+' or string.format('%d', random(1, 4))
  end
  for index = 1, kinds > 1 and entries or 0 do
    words[#words + 1] = string.format('%d', random(0, kinds - 1))
  end
  return words
end

local function set_mark(mark, is_set)
  server.call('DEL', mark)
  if is_set then
    server.call('SET', mark, '')
  end
end

for round = 1, rounds do
  if sweeps then
    local micros = now[1] * 1000000 + now[2] + math.floor(random() * ({ 3, 1000, window * 100, window * 3000 })[random(1, 4)])
    now[1], now[2] = math.floor(micros / 1000000), micros % 1000000
  else
    move_clock(window)
  end
  for count = 1, COUNTS do
    local field, own, plain = field_of(count), KEYS[KEYS_AT + count], KEYS[PLAIN_AT + count]
    if not sweeps and has_expired(plain) then
      redis.call('HDEL', hash_of(count), field)
      server.call('DEL', own, plain)
    elseif not packed_value(count) and has_expired(plain) then
      server.call('DEL', plain)
    end
  end
  if random(1, 6) == 1 and algorithm == 'sliding_window' then
    set(random(1, COUNTS), any_log(window), window)
  elseif random(1, 12) == 1 and not sweeps then
    -- Foreign bytes stay for ever otherwise.
    local count = random(1, COUNTS)
    redis.call('HDEL', hash_of(count), field_of(count))
    server.call('DEL', KEYS[KEYS_AT + count], KEYS[PLAIN_AT + count])
    expiries[KEYS[PLAIN_AT + count]] = nil
  elseif random(1, 20) == 1 and not sweeps then
    local count = random(1, COUNTS)
    local value = mutate(packed_value(count) or 'foreign')
    -- A key has no such value as a marker.
    if string.byte(value) ~= 0 then
      set(count, value, window)
    end
  end
  local is_batch, counts, plain = random(1, 2) == 1, {}, {}
  for index = 1, is_batch and random(1, 6) or random(1, 3) do
    counts[index] = random(1, COUNTS)
    plain[index] = KEYS[PLAIN_AT + counts[index]]
  end
  local words, has_mark, expected
  if is_batch then
    words = any_batch(#counts)
  else
    words, has_mark = any_decision(#counts)
  end
  local was_out = {}
  for count = 1, COUNTS do
    local _, is_out = packed_value(count)
    was_out[count] = is_out
  end
  local mark = has_mark and KEYS[1] .. ':mark' or nil
  local had_mark = has_mark and random(1, 4) == 1
  if has_mark then
    set_mark(mark, had_mark)
  end
  local has_to_stay = not sweeps and random(1, 10) == 1
  local reply, refusals = call_packed(is_batch, has_to_stay, counts, words, mark)
  if not reply then
    return refusals .. ': round ' .. round .. ', ' .. table.concat(words, ' ')
  end
  if has_mark then
    set_mark(mark, had_mark)
    plain[#plain + 1] = mark
  end
  expected = is_batch and batch(plain, words) or not is_batch and decide(plain, words)
  local text = table.concat(words, ' ')
  if text_of(reply) ~= text_of(expected) then
    return 'another reply: round ' .. round .. ', ' .. hex(text) .. ': ' .. text_of(reply) .. ' ' .. text_of(expected)
  end
  seen[1], seen[2] = seen[1] + 1, seen[2] + refusals
  if string.find(text_of(reply), 'FOREIGN', 1, true) then
    seen[6] = seen[6] + 1
  end
  for count = 1, COUNTS do
    local plain_key = KEYS[PLAIN_AT + count]
    local value, is_out, marked_until = packed_value(count)
    local expected_value = server.call('GET', plain_key)
    if not value and expected_value and has_expired(plain_key) then
      expected_value = false
      seen[5] = seen[5] + 1
      server.call('DEL', plain_key)
    end
    if value ~= expected_value then
      return 'another value: round ' .. round .. ', ' .. hex(text) .. ': ' .. hex(value) .. ' ' .. hex(expected_value)
    end
    local expires_at, hash_expires_at = expiries[plain_key], expiries[hash_of(count)]
    if value and expires_at then
      local own_expires_at = is_out and expiries[KEYS[KEYS_AT + count]] or hash_expires_at
      if not hash_expires_at or own_expires_at < expires_at or is_out and (own_expires_at > marked_until or marked_until > hash_expires_at) then
        return 'an early expiry: round ' .. round .. ', ' .. tostring(own_expires_at) .. ' before ' .. tostring(expires_at)
      end
    end
    local fits = value and #value <= MAX_FIELD_BYTES and string.byte(value) ~= 6
    if value and is_out and fits and not was_out[count] then
      return 'a count moved out although it fits: round ' .. round
    end
    if value and not is_out and not fits then
      seen[7] = seen[7] + 1
    end
    seen[3] = seen[3] + (is_out and not was_out[count] and 1 or 0)
    seen[4] = seen[4] + (value and not is_out and was_out[count] and 1 or 0)
  end
end
return seen

-- Runs `group`, which reads the time from `now`, on values that were changed at random, and puts the same calls to
-- `decide` one by one: what they say, and what they leave, has to be the same.
--
-- KEYS     pairs of keys with the same values: one for the group, one for single calls
-- ARGV     algorithm, rounds, seed
--
-- Reply    { foreign, granted, left over, refused }: entries of each kind; or a text that tells what went wrong
local algorithm, rounds = ARGV[1], tonumber(ARGV[2])
math.randomseed(tonumber(ARGV[3]))
local MOST_CALLS = 5

-- The count of a key, but for the last byte of a token bucket: it tells of calls, and nothing there depends on it.
local function held(key)
  local value = redis.call('GET', key)
  if value and algorithm == 'token_bucket' then
    value = string.sub(value, 1, -2)
  end
  return value
end

-- The log of a sliding window with many runs, as calls one after the other leave it.
local function long_log(window)
  local unit = 1
  while unit * 1073741824 < window do unit = unit * 2 end
  local now_ms, runs, total = now[1] * 1000 + math.floor(now[2] / 1000), random(30, 140), 0
  local span = math.floor(random() * window * random(1, 3) / 2)
  local log = { struct.pack('>BI6I4', 1, math.max(now_ms - span, 0), 0) }
  for run = 1, runs do
    total = total + random(1, 3)
    log[#log + 1] = struct.pack('>I4I4', math.floor(span * run / runs / unit), total)
  end
  return table.concat(log)
end

local function any_entry(window)
  local entry = { pair = random(1, #KEYS / 2), window = window, calls = random(1, MOST_CALLS) }
  entry.max, entry.burst = NUMBERS[random(1, #NUMBERS)], NUMBERS[random(1, #NUMBERS)]
  if algorithm ~= 'token_bucket' and algorithm ~= 'leaky_bucket' then
    entry.burst = entry.max
  end
  if algorithm == 'leaky_bucket' then
    entry.calls = 1
  end
  entry.cost = random(1, 3) > 1 and random(0, 5) or NUMBERS[random(1, #NUMBERS)]
  return entry
end

local function words_of(...)
  local words = {}
  for index, number in ipairs({ ... }) do
    words[index] = string.format('%.0f', number)
  end
  return words
end

-- What the group says of each entry, or why it cannot be read.
local function read(reply, entries)
  if #reply < 2 or #reply[2] ~= 24 * entries or #reply % 2 ~= 0 then
    return nil, 'of another length'
  end
  local told = {}
  for index = 1, entries do
    local granted, remaining, retry_high, retry_low, reset_high, reset_low =
      struct.unpack('>I4I4i4I4i4I4', reply[2], 24 * index - 23)
    told[index] = { granted, remaining, retry_high * 4294967296 + retry_low, reset_high * 4294967296 + reset_low }
  end
  for index = 3, #reply, 2 do
    told[reply[index] + 1].err = reply[index + 1].err
  end
  return told
end

-- What is wrong with what the group says of an entry, if anything; and of what kind it is.
local function compare(entry, told)
  local granted, last = 0, nil
  for _ = 1, entry.calls do
    local words = words_of(entry.window, entry.max, entry.burst, entry.cost)
    last = decide({ KEYS[2 * entry.pair] }, { 'take', '0', algorithm, unpack(words) })
    if last.err or last[1] == 0 then
      break
    end
    granted = granted + 1
  end
  if last.err or told.err then
    return last.err ~= told.err and 'another error than alone' or nil, 1
  end
  if told[1] ~= granted or told[2] ~= math.floor(last[3]) or told[4] ~= math.floor(last[5]) then
    return 'another answer than alone: ' .. table.concat(last, ' ') .. ' after ' .. granted
  end
  if granted < entry.calls and told[3] ~= math.floor(last[4]) then
    return 'another wait than alone: ' .. last[4]
  end
  return nil, granted == entry.calls and 2 or granted > 0 and 3 or 4
end

local seen = { 0, 0, 0, 0 }
local values = {}
for round = 1, rounds do
  local window = WINDOWS[random(1, #WINDOWS)]
  move_clock(window)
  for pair = 1, #KEYS / 2 do
    local value = values[pair] and mutate(values[pair])
    -- A new one every few rounds.
    if random(1, 8) == 1 then
      value = nil
    elseif random(1, 4) == 1 and algorithm == 'sliding_window' then
      value = long_log(window)
    end
    for _, key in ipairs({ KEYS[2 * pair - 1], KEYS[2 * pair] }) do
      redis.call('DEL', key)
      if value then
        redis.call('SET', key, value)
      end
    end
  end
  local entries, keys, words, kinds, places = {}, {}, {}, {}, {}
  for index = 1, random(1, 6) do
    local entry = kinds[random(1, 3)]
    if entry then
      entry = setmetatable({ pair = random(1, #KEYS / 2) }, { __index = entry })
    else
      entry = any_entry(window)
      entry.kind = #kinds
      kinds[#kinds + 1] = entry
      words[#words + 1] = algorithm
      for _, word in ipairs(words_of(window, entry.max, entry.burst, entry.cost, entry.calls)) do
        words[#words + 1] = word
      end
    end
    entries[index], keys[index], places[index] = entry, KEYS[2 * entry.pair - 1], tostring(entry.kind)
  end
  table.insert(words, 1, tostring(#kinds))
  for index = 1, #kinds > 1 and #places or 0 do
    words[#words + 1] = places[index]
  end
  local said = table.concat(words, ' ')
  local fine, reply = pcall(group, keys, words)
  local answers, problem
  if fine and not reply.err then
    answers, problem = read(reply, #entries)
  end
  if not answers then
    reply = problem or type(reply) == 'table' and reply.err or reply
    return 'failed: ' .. tostring(reply) .. ': round ' .. round .. ', ' .. said
  end
  for index, entry in ipairs(entries) do
    local told = answers[index]
    local wrong, kind = compare(entry, told)
    if wrong then
      local text = told.err or table.concat(told, ' ')
      return wrong .. ': round ' .. round .. ', entry ' .. index .. ' of ' .. said .. ': ' .. text
    end
    seen[kind] = seen[kind] + 1
  end
  for pair = 1, #KEYS / 2 do
    local together, alone = KEYS[2 * pair - 1], KEYS[2 * pair]
    -- Written a few milliseconds apart.
    local apart = math.abs(redis.call('PTTL', together) - redis.call('PTTL', alone))
    if held(together) ~= held(alone) or apart > 400 then
      return 'left something else than alone: round ' .. round .. ', ' .. said .. ', ' .. hex(held(alone)) .. ', '
        .. hex(held(together))
    end
    values[pair] = redis.call('GET', together) or nil
  end
end
return seen

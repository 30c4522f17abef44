-- Runs `batch` on values that were changed at random, and makes the same calls by `decide` one by one. Both must return
-- the same replies and write the same values, except that a batch may leave expired runs in a log. Both read the time from
-- `now`.
--
-- KEYS     pairs of keys with the same values: one for the batch, one for single calls
-- ARGV     algorithm, rounds, seed
--
-- Reply    { foreign, granted, granted in part, denied, untrimmed, charged, charged in part, charged beyond the limit, stayed
--          short, became long, became short }: the number of entries of each, and of values that a batch has left untrimmed
--          or in such a form; or a text that describes the problem
local algorithm, rounds = ARGV[1], tonumber(ARGV[2])
math.randomseed(tonumber(ARGV[3]))
local MAX_CALLS = 5
-- The longest log that has been changed in place: docs/operations.md states what the server reserves for it.
local MAX_UNTRIMMED_BYTES = 1264
-- A longer log may be changed in place.
local MIN_APPEND_BYTES = 256

-- Returns the value of a key. Of a token bucket without the last byte, which depends on the number of calls and has no
-- effect there.
local function comparable(key)
  local value = redis.call('GET', key)
  if value and algorithm == 'token_bucket' then
    value = string.sub(value, 1, -2)
  end
  return value
end

-- Returns the value of the second key if that of the first has the same form and the same runs. A long log of the first may
-- have expired runs before them, and be short in the second. Several calls may move the base where one does not.
local function with_same_runs(batched, single, unit)
  local log, value = redis.call('GET', batched), comparable(single)
  if algorithm ~= 'sliding_window' or not log or not value or log == value or not is_log(log) or not is_log(value) then
    return comparable(batched), value
  end
  local base, offsets, permits = runs_of(log)
  local single_base, single_offsets, single_permits = runs_of(value)
  local expired = #offsets - #single_offsets
  if expired < 0 or (expired > 0 or string.byte(log) ~= string.byte(value)) and #log <= MIN_APPEND_BYTES then
    return log, value
  end
  for run, offset in ipairs(single_offsets) do
    if base + offsets[expired + run] * unit ~= single_base + offset * unit or permits[expired + run] ~= single_permits[run] then
      return log, value
    end
  end
  return value, value
end

-- Returns the newest stamp of a log in ms, or nil.
local function newest_stamp(log, window)
  if not log or string.byte(log) == 7 and not is_log(log) or string.byte(log) ~= 7 and #log < 19 then
    return nil
  end
  local base, newest = struct.unpack('>I6', log, 2), nil
  if string.byte(log) == 7 then
    local _, offsets = runs_of(log)
    newest = offsets[#offsets]
  else
    newest = struct.unpack('>I4', log, #log - 7)
  end
  return base + newest * unit_of(window)
end

-- Returns the ms at which a log may expire before a batch: half a second after the end of its newest stamp's cell and a
-- window; without the cell, as an older release sets it; or at once, if the log comes from a server whose clock is ahead.
local function any_expiry(log, window)
  local stamp = newest_stamp(log, window)
  if not stamp then
    return nil
  end
  if stamp > now[1] * 1000 + math.ceil(now[2] / 1000) then
    return 1
  end
  local cell = math.max(math.min(math.floor(window / 8), 100), 1)
  return (random(1, 2) == 1 and stamp or (math.floor(stamp / cell) + 1) * cell) + window + 500
end

-- Returns whether the expiry of a key is that of the other one, or at least late enough and as it was.
local function has_right_expiry(batched, single, before, window)
  local stamp, expiry = newest_stamp(redis.call('GET', batched), window), expiries[batched]
  return expiry == expiries[single]
    or algorithm == 'sliding_window' and stamp and expiry == before and expiry >= stamp + window + 400
end

-- Returns the log of a sliding window: short, long, or with leases; with several runs, many, about as many as a log keeps
-- apart, or about as many as a short log has or becomes short with. Its newest stamp is now, 1 ms ahead, or up to half a
-- window ago. Its totals often wrap at 2^32, and sometimes it is nearly full, or has runs that are just too large for a
-- short log. Gaps are up to the largest of a short log. The first run of every third short log is at the base.
local function any_log(window)
  local unit, total = unit_of(window), 0
  local is_short = random(1, 2) == 1
  local counts = { random(1, 30), random(30, 220), random(126, 130), random(5, 9), random(12, 16) }
  local runs = is_short and ({ random(1, 14), random(13, 14) })[random(1, 2)] or counts[random(1, 5)]
  local age = ({ 0, -1, math.floor(random() * window / 2) })[random(1, 3)]
  local now_ms = now[1] * 1000 + math.floor(now[2] / 1000) - age
  local span = math.floor(random() * window * random(1, 4) / 2)
  local first = ({ 0, 4294967295 - random(0, 60), 4294967295 * random() })[random(1, 3)]
  local full_run = not is_short and random(1, 20) == 1 and random(1, runs)
  local odds_of_large = random(1, 3) == 1 and 4 or 1000
  local base = math.max(now_ms - span, 0)
  -- The base may be as long ago as the first gap can be.
  local earlier = random(1, 3) == 1 and math.min(({ 16777215, 16777214, 100 })[random(1, 3)], math.floor(base / unit)) or 0
  local log, before = { struct.pack('>BI6I4', 1, base - earlier * unit, first) }, 0
  if is_short then
    log[1] = struct.pack('>BI6', 7, base - earlier * unit)
  end
  local is_at_base = is_short and random(1, 3) == 1
  for run = 1, runs do
    local permits = random(1, odds_of_large) == 1 and random(250, is_short and 255 or 260) or random(1, 3)
    total = total + (run == full_run and 4294967295 - 300 * runs or permits)
    local offset = earlier + math.floor(span * run / runs / unit)
    if is_short then
      -- The base is later, if the first gap would be too large.
      local gap = math.min(offset - before, 16777215)
      if run == 1 and is_at_base then
        log[1] = struct.pack('>BI6B', 7, base + (gap - earlier) * unit, permits)
      else
        log[#log + 1] = struct.pack('>I3B', gap, permits)
      end
    else
      log[#log + 1] = struct.pack('>I4I4', offset, (math.floor(first) + total) % 4294967296)
    end
    before = offset
  end
  local value = table.concat(log)
  return random(1, 6) == 1 and as_leased(value) or value
end

local function any_entry(window)
  local entry = { pair = random(1, #KEYS / 2), window = window, calls = random(1, MAX_CALLS) }
  entry.max, entry.burst = NUMBERS[random(1, #NUMBERS)], NUMBERS[random(1, #NUMBERS)]
  if algorithm ~= 'token_bucket' and algorithm ~= 'leaky_bucket' then
    entry.burst = entry.max
  end
  if algorithm == 'leaky_bucket' then
    entry.calls = 1
  end
  entry.cost = random(1, 3) > 1 and random(0, 5) or NUMBERS[random(1, #NUMBERS)]
  if algorithm == 'sliding_window' and random(1, 6) == 1 then
    entry.cost = random(250, 260)
  end
  -- Without a lease, such an entry is decided as any other.
  entry.is_leased = algorithm == 'sliding_window' and random(1, 3) == 1
  entry.is_charge = not entry.is_leased and random(1, 8) == 1
  if entry.is_charge then
    entry.calls = 1
    entry.cost = random(1, 3) > 1 and random(0, 20) or NUMBERS[random(1, #NUMBERS)]
  end
  return entry
end

local function words_of(...)
  local words = {}
  for index, number in ipairs({ ... }) do
    words[index] = string.format('%.0f', number)
  end
  return words
end

-- Returns the reply to each entry, or nil and the reason why it cannot be read.
local function read(reply, entries, leases)
  if type(reply) == 'string' then
    -- A lone decision.
    reply = { 0, string.sub(reply, 9) }
  end
  if #reply < 2 or #reply[2] ~= 24 * entries + 16 * leases or #reply % 2 ~= 0 then
    return nil, 'unexpected length'
  end
  for index = 1, leases do
    if struct.unpack('>I4', reply[2], 24 * entries + 16 * index - 15) ~= 0 then
      return nil, 'a lease that is not wanted'
    end
  end
  local entry_replies = {}
  for index = 1, entries do
    local granted, remaining, retry_high, retry_low, reset_high, reset_low =
      struct.unpack('>I4I4i4I4i4I4', reply[2], 24 * index - 23)
    local retry, reset = retry_high * 4294967296 + retry_low, reset_high * 4294967296 + reset_low
    entry_replies[index] = { granted, remaining, retry, reset }
  end
  for index = 3, #reply, 2 do
    entry_replies[reply[index] + 1].err = reply[index + 1].err
  end
  return entry_replies
end

-- Returns the difference to a single charge, or nil, and the index of the kind in `seen`.
local function compare_charge(entry, reply)
  local words = words_of(entry.window, entry.max, entry.burst, entry.cost)
  local single = decide({ KEYS[2 * entry.pair] }, { 'charge', '0', algorithm, unpack(words) })
  if single.err or reply.err then
    return single.err ~= reply.err and 'another error than a single charge' or nil, 1
  end
  for index, number in ipairs({ entry.cost - single[2], single[3], single[4], single[5] }) do
    if reply[index] ~= math.floor(number) then
      return 'another reply than a single charge: ' .. table.concat(single, ' ')
    end
  end
  if reply[3] > 0 and reply[2] > 0 then
    return 'permits left beyond the limit'
  end
  return nil, single[2] > 0 and 7 or single[4] > 0 and 8 or 6
end

-- Returns the difference to single calls, or nil, and the index of the kind in `seen`.
local function compare(entry, reply)
  if entry.is_charge then
    return compare_charge(entry, reply)
  end
  local granted, last = 0, nil
  for _ = 1, entry.calls do
    local words = words_of(entry.window, entry.max, entry.burst, entry.cost)
    last = decide({ KEYS[2 * entry.pair] }, { 'take', '0', algorithm, unpack(words) })
    if last.err or last[1] == 0 then
      break
    end
    granted = granted + 1
  end
  if last.err or reply.err then
    return last.err ~= reply.err and 'another error than a single call' or nil, 1
  end
  if reply[1] ~= granted or reply[2] ~= math.floor(last[3]) or reply[4] ~= math.floor(last[5]) then
    return 'another reply than single calls: ' .. table.concat(last, ' ') .. ' after ' .. granted
  end
  if granted < entry.calls and reply[3] ~= math.floor(last[4]) then
    return 'another wait than single calls: ' .. last[4]
  end
  return nil, granted == entry.calls and 2 or granted > 0 and 3 or 4
end

local seen = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
local values = {}
for round = 1, rounds do
  local window = WINDOWS[random(1, #WINDOWS)]
  move_clock(window)
  if random(1, 4) == 1 then
    -- On a whole millisecond, a stamp 1 ms ahead of it is ahead of the clock.
    now[2] = now[2] - now[2] % 1000
  end
  local expiries_before, values_before = {}, {}
  for pair = 1, #KEYS / 2 do
    local value = values[pair] and mutate(values[pair])
    -- A new value every few rounds.
    if random(1, 8) == 1 then
      value = nil
    elseif random(1, 3) == 1 and algorithm == 'sliding_window' then
      value = any_log(window)
    end
    values_before[pair] = value
    expiries_before[pair] = value and algorithm == 'sliding_window' and any_expiry(value, window) or nil
    for _, key in ipairs({ KEYS[2 * pair - 1], KEYS[2 * pair] }) do
      redis.call('DEL', key)
      expiries[key] = expiries_before[pair]
      if value then
        redis.call('SET', key, value, 'PX', 86400000)
      end
    end
  end
  local entries, keys, words, kinds, entry_kinds, leases = {}, {}, {}, {}, {}, 0
  -- A batch of a sliding window often has one kind with one call in each entry: sliding_simple.lua decides most of those.
  local is_sliding = algorithm == 'sliding_window'
  local is_lone = random(1, is_sliding and 4 or 2) == 1
  local has_one_kind = is_sliding and not is_lone and random(1, 3) == 1
  for index = 1, is_lone and 1 or random(1, 6) do
    local entry = kinds[has_one_kind and 1 or random(1, 3)]
    if entry then
      entry = setmetatable({ pair = random(1, #KEYS / 2) }, { __index = entry })
    else
      entry = any_entry(window)
      entry.calls = (is_lone or has_one_kind) and 1 or entry.calls
      entry.kind = #kinds
      kinds[#kinds + 1] = entry
      words[#words + 1] = entry.is_leased and 'leased_window' or algorithm
      for _, word in ipairs(words_of(window, entry.max, entry.burst, entry.cost, entry.calls)) do
        words[#words + 1] = word
      end
      if entry.is_leased then
        words[#words - 2] = ''
      elseif entry.is_charge then
        words[#words] = '+'
      end
    end
    leases = leases + (entry.is_leased and 1 or 0)
    entries[index], keys[index], entry_kinds[index] = entry, KEYS[2 * entry.pair - 1], tostring(entry.kind)
  end
  table.insert(words, 1, tostring(#kinds))
  for index = 1, #kinds > 1 and #entry_kinds or 0 do
    words[#words + 1] = entry_kinds[index]
  end
  local arguments = table.concat(words, ' ')
  local ok, reply = pcall(batch, keys, words)
  local replies, problem
  if ok and (type(reply) == 'string' or not reply.err) then
    replies, problem = read(reply, #entries, leases)
  end
  if not replies then
    reply = problem or type(reply) == 'table' and reply.err or reply
    return 'failed: ' .. tostring(reply) .. ': round ' .. round .. ', ' .. arguments
  end
  for index, entry in ipairs(entries) do
    local entry_reply = replies[index]
    local difference, kind = compare(entry, entry_reply)
    if difference then
      local text = entry_reply.err or table.concat(entry_reply, ' ')
      return difference .. ': round ' .. round .. ', entry ' .. index .. ' of ' .. arguments .. ': ' .. text
    end
    seen[kind] = seen[kind] + 1
  end
  for pair = 1, #KEYS / 2 do
    local batched, single = KEYS[2 * pair - 1], KEYS[2 * pair]
    local has_same_expiry = has_right_expiry(batched, single, expiries_before[pair], window)
      and (redis.call('PTTL', batched) == -1) == (redis.call('PTTL', single) == -1)
    local by_batch, by_calls = with_same_runs(batched, single, unit_of(window))
    local is_too_long = #(redis.call('GET', batched) or '') > MAX_UNTRIMMED_BYTES and by_batch ~= comparable(batched)
    if by_batch ~= by_calls or not has_same_expiry or is_too_long then
      return 'wrote another value than single calls: round ' .. round .. ', ' .. arguments .. ', '
        .. hex(by_calls) .. ', ' .. hex(by_batch)
    end
    values[pair] = redis.call('GET', batched) or nil
    if algorithm == 'sliding_window' and values[pair] and #by_batch < #values[pair] then
      seen[5] = seen[5] + 1
    end
    if algorithm == 'sliding_window' and values[pair] and values_before[pair] and values[pair] ~= values_before[pair] then
      local was_short, is_short = string.byte(values_before[pair]) == 7, string.byte(values[pair]) == 7
      local form = was_short and is_short and 9 or was_short and 10 or is_short and 11
      seen[form or 9] = seen[form or 9] + (form and 1 or 0)
      if is_short and not is_log(values[pair]) then
        return 'a short value of another length: ' .. hex(values[pair])
      end
    end
  end
end
return seen

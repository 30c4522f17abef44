-- Runs `decide` on values that were changed at random, and checks its replies. `decide` reads the time from `now`.
--
-- KEYS[1]  the key
-- ARGV     algorithm, rounds, seed
--
-- Reply    { foreign, allowed, denied, charged, charged in part, used receipts, ended receipts }: the number of each; or a
--          text that describes the problem
local key, algorithm, rounds = KEYS[1], ARGV[1], tonumber(ARGV[2])
math.randomseed(tonumber(ARGV[3]))
local mark = key .. ':mark'

local function is_charge(action)
  return action == 'charge' or action == 'settle' or action == 'once'
end

-- Calls the script. 'settle' is a charge that may return permits, and 'once' does that for a receipt, which ends in `left` µs.
local function call_decide(action, window, max, burst, cost, left)
  local is_settlement = action == 'settle' or action == 'once'
  local has_stamp = action == 'refund' or is_settlement
  local second_argument = has_stamp and random(0, 1) * random(0, 2000000000) * 1000000 or random(0, 1) * MAX_WAIT_MICROS
  local words = { action == 'settle' and 'charge' or action, string.format('%.0f', second_argument), algorithm }
  for _, number in ipairs({ window, max, burst, cost }) do
    words[#words + 1] = string.format('%.0f', number)
  end
  if is_settlement and random(1, 2) == 1 then
    words[#words] = string.format('%s %.0f %.0f', words[#words], NUMBERS[random(1, #NUMBERS)], random(0, 1) * random(0, 5))
  end
  local keys = { key }
  if action == 'once' then
    keys[2] = mark
    words[#words + 1] = string.format('%.0f', now[1] * 1000000 + now[2] + left)
    words[#words + 1] = string.format('%.0f', random(0, 1) * MAX_WAIT_MICROS)
  end
  local ok, reply = pcall(decide, keys, words)
  return ok, reply, table.concat(words, ' ')
end

local function is_sane(reply, window, max_remaining, action)
  if #reply ~= ((action == 'report' or action == 'survey') and 9 or 7) then
    return 'not as many numbers as it should have'
  end
  for _, number in ipairs(reply) do
    if type(number) ~= 'number' or number ~= math.floor(number) or math.abs(number) > 9007199254740992 then
      return 'no whole number'
    end
  end
  local max_wait = algorithm == 'token_bucket' or algorithm == 'leaky_bucket'
  -- The clock may be behind by one window, and permits may count for two.
  max_wait = max_wait and MAX_WAIT_MICROS + window * 1000 or 3 * (window + 1) * 1000
  local allowed, deciding, remaining, retry, reset, _, delay = unpack(reply)
  local is_wait = reset >= 0 and reset <= max_wait and delay >= 0 and delay <= max_wait
  if deciding ~= 0 or remaining < 0 or remaining > max_remaining or not is_wait then
    return 'out of bounds'
  end
  if reply[8] and (reply[8] ~= remaining or reply[9] ~= reset) then
    return 'a report that differs from the reply'
  end
  if allowed == 1 and retry ~= 0 or allowed == 0 and (retry < -1 or retry > max_wait) then
    return 'a wait out of bounds'
  end
  if allowed ~= 0 and allowed ~= 1 then
    return 'neither allowed nor denied'
  end
end

-- Returns the problem of the reply to a charge, or nil. `next` is the reply to a look for one permit afterwards.
local function problem_of_charge(reply, next, window, max, burst, cost)
  local _, uncounted, remaining, overdrawn, reset = unpack(reply)
  local capacity = algorithm == 'leaky_bucket' and burst + 1 or algorithm == 'token_bucket' and burst or max
  local most = (algorithm == 'token_bucket' or algorithm == 'leaky_bucket') and burst or 4294967295
  if #reply ~= 5 then
    return 'a charge with another number of numbers'
  elseif uncounted < 0 or uncounted > cost or overdrawn < 0 then
    return 'a charge out of bounds'
  elseif remaining > 0 and (overdrawn > 0 or uncounted > 0 and capacity < most) then
    return 'permits left after a charge that does not fit'
  elseif next[3] ~= remaining or next[5] ~= reset then
    return 'another reply to a look than to a charge'
  elseif overdrawn > 0 and next[1] == 1 then
    return 'a call is allowed beyond the limit'
  end
end

-- Returns the problem of the reply to a receipt that changes nothing, or nil.
local function problem_of_receipt(reply, left, was_marked, is_changed)
  if #reply ~= 1 or is_changed then
    return 'a receipt that changes something has such a reply'
  elseif reply[1] ~= (left <= 0 and -2 or -1) or left > 0 and not was_marked then
    return 'another reason than it has'
  elseif not was_marked and redis.call('EXISTS', mark) == 1 then
    return 'a mark of a receipt that has ended'
  end
end

local foreign, allowed, denied, charged, in_part, used, ended = 0, 0, 0, 0, 0, 0, 0
local value = ''
for round = 1, rounds do
  local window, max, burst = WINDOWS[random(1, #WINDOWS)], NUMBERS[random(1, #NUMBERS)], NUMBERS[random(1, #NUMBERS)]
  if algorithm ~= 'token_bucket' and algorithm ~= 'leaky_bucket' then
    burst = max
  end
  local cost = random(1, 2) == 1 and random(0, 5) or NUMBERS[random(1, #NUMBERS)]
  -- Every few rounds a valid value of a few permits, which later rounds go on to change.
  if round % 8 == 1 then
    redis.call('DEL', key)
    for _ = 1, ({ random(1, 3), random(12, 16) })[random(1, 2)] do
      call_decide('take', window, 4294967295, 4294967295, ({ random(1, 3), random(250, 260) })[random(1, 8) == 1 and 2 or 1])
      -- By a microsecond up to a gap between runs.
      now[2] = now[2] + random(1, math.max(1, math.floor(math.min(window, 900) * 1000 / 16)))
      now[1], now[2] = now[1] + math.floor(now[2] / 1000000), now[2] % 1000000
    end
    value = redis.call('GET', key) or ''
    if algorithm == 'sliding_window' then
      value = ({ value, as_long(value), as_leased(value) })[random(1, 3)]
    end
  end
  move_clock(window)
  local before = mutate(value)
  redis.call('SET', key, before)
  local actions = { 'take', 'take', 'report', 'look', 'survey', 'refund', 'forget', 'charge', 'settle', 'once', 'once' }
  local action = actions[random(1, #actions)]
  if is_charge(action) and random(1, 2) == 1 then
    cost = 4294967295 - random(0, 1)
  end
  local left, was_marked = ({ -1000000, 0, 1, 3600000000 })[random(1, 4)], random(1, 3) == 1
  redis.call('DEL', mark)
  if was_marked then
    redis.call('SET', mark, '')
  end
  local ok, reply, words = call_decide(action, window, max, burst, cost, left)
  local after = redis.call('GET', key)
  local changes_nothing = action == 'once' and (left <= 0 or was_marked)
  local problem
  if not ok then
    problem = 'failed: ' .. tostring(type(reply) == 'table' and reply.err or reply)
  elseif reply.err then
    foreign = foreign + 1
    problem = string.sub(reply.err, 1, 8) ~= 'FOREIGN ' and reply.err or after ~= before and 'touched what is foreign'
  elseif changes_nothing then
    used, ended = used + (reply[1] == -1 and 1 or 0), ended + (reply[1] == -2 and 1 or 0)
    problem = problem_of_receipt(reply, left, was_marked, after ~= before)
  else
    problem = not is_charge(action) and is_sane(reply, window, burst, action)
    if action == 'forget' and after and string.sub(after, 1, 1) ~= '\6' then
      problem = problem or 'kept what is not on lease'
    end
    if is_charge(action) then
      charged, in_part = charged + 1, in_part + (reply[2] > 0 and 1 or 0)
    elseif reply[1] == 1 then
      allowed = allowed + 1
    else
      denied = denied + 1
      problem = problem or after ~= before and 'a denial wrote'
    end
    if algorithm == 'sliding_window' and after and string.byte(after) == 7 and not is_log(after) then
      problem = problem or 'a short value of another length'
    end
    -- The script can read the value that it has written.
    local second_ok, second_reply = call_decide('look', window, max, burst, 1)
    local is_readable = second_ok and second_reply and not second_reply.err
    if not problem and not (is_readable and not is_sane(second_reply, window, burst)) then
      problem = 'wrote what it cannot read'
    elseif not problem and is_charge(action) then
      problem = problem_of_charge(reply, second_reply, window, max, burst, cost)
    end
    if action == 'once' and redis.call('EXISTS', mark) == 0 then
      problem = problem or 'a receipt that was used has no mark'
    end
    value = after or ''
  end
  if problem then
    local reply_text = ok and not reply.err and table.concat(reply, ' ') or ''
    return problem .. ': round ' .. round .. ', ' .. words .. ', ' .. hex(before) .. ' -> ' .. reply_text .. ', '
      .. hex(after)
  end
end
return { foreign, allowed, denied, charged, in_part, used, ended }

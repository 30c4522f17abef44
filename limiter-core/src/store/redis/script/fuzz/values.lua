-- Runs `decide` on values that were changed at random, and checks its replies. `decide` reads the time from `now`.
--
-- KEYS[1]  the key
-- ARGV     algorithm, rounds, seed
--
-- Reply    { foreign, allowed, denied }: the number of each; or a text that describes the problem
local key, algorithm, rounds = KEYS[1], ARGV[1], tonumber(ARGV[2])
math.randomseed(tonumber(ARGV[3]))
local function call_decide(action, window, max, burst, cost)
  local second_argument =
    action == 'refund' and random(0, 1) * random(0, 2000000000) * 1000000 or random(0, 1) * MAX_WAIT_MICROS
  local words = { action, string.format('%.0f', second_argument), algorithm }
  for _, number in ipairs({ window, max, burst, cost }) do
    words[#words + 1] = string.format('%.0f', number)
  end
  local ok, reply = pcall(decide, { key }, words)
  return ok, reply, table.concat(words, ' ')
end

local function is_sane(reply, window, max_remaining, action)
  if #reply ~= (action == 'report' and reply[1] == 1 and 9 or 7) then
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

local foreign, allowed, denied = 0, 0, 0
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
    for _ = 1, random(1, 3) do
      call_decide('take', window, 4294967295, 4294967295, random(1, 3))
    end
    value = redis.call('GET', key) or ''
    if algorithm == 'sliding_window' and random(1, 2) == 1 then
      value = as_leased(value)
    end
  end
  move_clock(window)
  local before = mutate(value)
  redis.call('SET', key, before)
  local action = ({ 'take', 'take', 'report', 'look', 'refund', 'forget' })[random(1, 6)]
  local ok, reply, words = call_decide(action, window, max, burst, cost)
  local after = redis.call('GET', key)
  local problem
  if not ok then
    problem = 'failed: ' .. tostring(type(reply) == 'table' and reply.err or reply)
  elseif reply.err then
    foreign = foreign + 1
    problem = string.sub(reply.err, 1, 8) ~= 'FOREIGN ' and reply.err or after ~= before and 'touched what is foreign'
  else
    problem = is_sane(reply, window, burst, action)
    if action == 'forget' and after and string.sub(after, 1, 1) ~= '\6' then
      problem = problem or 'kept what is not on lease'
    end
    if reply[1] == 1 then
      allowed = allowed + 1
    else
      denied = denied + 1
      problem = problem or after ~= before and 'a denial wrote'
    end
    -- The script can read the value that it has written.
    local second_ok, second_reply = call_decide('look', window, max, burst, 1)
    local is_readable = second_ok and second_reply and not second_reply.err
    if not problem and not (is_readable and not is_sane(second_reply, window, burst)) then
      problem = 'wrote what it cannot read'
    end
    value = after or ''
  end
  if problem then
    local reply_text = ok and not reply.err and table.concat(reply, ' ') or ''
    return problem .. ': round ' .. round .. ', ' .. words .. ', ' .. hex(before) .. ' -> ' .. reply_text .. ', '
      .. hex(after)
  end
end
return { foreign, allowed, denied }

-- Runs `decide`, which reads the time from `now`, on values that were changed at random, and judges what it says.
--
-- KEYS[1]  the key
-- ARGV     algorithm, rounds, seed
--
-- Reply    { foreign, allowed, denied }: how often each; or a text that tells what went wrong
local key, algorithm, rounds = KEYS[1], ARGV[1], tonumber(ARGV[2])
math.randomseed(tonumber(ARGV[3]))
local function ask(action, window, max, burst, cost)
  local with = action == 'refund' and random(0, 1) * random(0, 2000000000) * 1000000 or random(0, 1) * FAR
  local words = { action, string.format('%.0f', with), algorithm }
  for _, number in ipairs({ window, max, burst, cost }) do
    words[#words + 1] = string.format('%.0f', number)
  end
  local fine, reply = pcall(decide, { key }, words)
  return fine, reply, table.concat(words, ' ')
end

local function is_sane(reply, window, most)
  if #reply ~= 7 then
    return 'not seven numbers'
  end
  for _, number in ipairs(reply) do
    if type(number) ~= 'number' or number ~= math.floor(number) or math.abs(number) > 9007199254740992 then
      return 'no whole number'
    end
  end
  local longest = algorithm == 'token_bucket' or algorithm == 'leaky_bucket'
  -- A clock that is behind by a window, and what counts for up to two.
  longest = longest and FAR + window * 1000 or 3 * (window + 1) * 1000
  local allowed, which, remaining, retry, reset, _, delay = unpack(reply)
  if which ~= 0 or remaining < 0 or remaining > most or reset < 0 or reset > longest or delay < 0 or delay > longest then
    return 'out of bounds'
  end
  if allowed == 1 and retry ~= 0 or allowed == 0 and (retry < -1 or retry > longest) then
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
  -- A valid value every few rounds, of a few permits; what comes of it goes on to be changed.
  if round % 8 == 1 then
    redis.call('DEL', key)
    for _ = 1, random(1, 3) do
      ask('take', window, 4294967295, 4294967295, random(1, 3))
    end
    value = redis.call('GET', key) or ''
  end
  move_clock(window)
  local before = mutate(value)
  redis.call('SET', key, before)
  local action = ({ 'take', 'take', 'take', 'look', 'refund' })[random(1, 5)]
  local fine, reply, words = ask(action, window, max, burst, cost)
  local after = redis.call('GET', key)
  local wrong
  if not fine then
    wrong = 'failed: ' .. tostring(type(reply) == 'table' and reply.err or reply)
  elseif reply.err then
    foreign = foreign + 1
    wrong = string.sub(reply.err, 1, 8) ~= 'FOREIGN ' and reply.err or after ~= before and 'touched what is foreign'
  else
    wrong = is_sane(reply, window, burst)
    if reply[1] == 1 then
      allowed = allowed + 1
    else
      denied = denied + 1
      wrong = wrong or after ~= before and 'a denial wrote'
    end
    -- What was written can be read again.
    local again, told = ask('look', window, max, burst, 1)
    if not wrong and not (again and told and not told.err and not is_sane(told, window, burst)) then
      wrong = 'wrote what it cannot read'
    end
    value = after or ''
  end
  if wrong then
    local said = fine and not reply.err and table.concat(reply, ' ') or ''
    return wrong .. ': round ' .. round .. ', ' .. words .. ', ' .. hex(before) .. ' -> ' .. said .. ', ' .. hex(after)
  end
end
return { foreign, allowed, denied }

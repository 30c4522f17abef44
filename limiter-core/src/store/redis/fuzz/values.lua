-- Runs `decide`, which reads the time from `now`, on values that were changed at random, and judges what it says.
--
-- KEYS[1]  the key
-- ARGV     algorithm, rounds, seed
--
-- Reply    { foreign, allowed, denied }: how often each; or a text that tells what went wrong
local key, algorithm, rounds = KEYS[1], ARGV[1], tonumber(ARGV[2])
math.randomseed(tonumber(ARGV[3]))
local random = math.random
local WINDOWS = { 1, 7, 1000, 10000, 86400000, 31622400000 }
local NUMBERS = { 1, 2, 5, 128, 1000, 2147483648, 4294967295 }
local FAR = 2251799813685248

local function hex(value)
  return value and (string.gsub(value, '.', function(byte) return string.format('%02x', string.byte(byte)) end)) or 'none'
end

local function ask(action, window, max, burst, cost)
  local with = action == 'refund' and random(0, 1) * random(0, 2000000000) * 1000000 or random(0, 1) * FAR
  local words = { action, string.format('%.0f', with), algorithm }
  for _, number in ipairs({ window, max, burst, cost }) do
    words[#words + 1] = string.format('%.0f', number)
  end
  local fine, reply = pcall(decide, { key }, words)
  return fine, reply, table.concat(words, ' ')
end

-- Both ways, from a microsecond to some windows.
local function move_clock(window)
  local by = math.floor(random() * ({ 3, 1000, window * 1000, window * 3000 })[random(1, 4)])
  local micros = now[1] * 1000000 + now[2] + (random(1, 3) == 1 and -by or by)
  micros = math.max(1000000, math.min(micros, 4000000000000000))
  now[1], now[2] = math.floor(micros / 1000000), micros % 1000000
end

-- Some bytes changed, cut off, put in or exchanged.
local function mutate(value)
  for _ = 1, random(0, 3) do
    local at = random(1, math.max(#value, 1))
    local kind = random(1, 7)
    local head, tail = string.sub(value, 1, at - 1), string.sub(value, at + 1)
    if kind <= 3 and #value > 0 then
      local byte = string.byte(value, at)
      value = head .. string.char(bit.bxor(byte, 2 ^ random(0, 7))) .. tail
    elseif kind == 4 then
      value = head .. string.char(255 * random(0, 1)) .. tail
    elseif kind == 5 then
      value = string.sub(value, 1, random(0, #value))
    elseif kind == 6 then
      value = value .. string.rep(string.char(random(0, 255)), 8 * random(0, 3) + random(0, 1) * random(0, 8))
    elseif #value > 11 then
      -- Fields of their own kind in each other's place.
      local from = random(1, #value - 8)
      value = string.sub(value, 1, math.min(at, #value - 8)) .. string.sub(value, from, from + 7) .. string.sub(value, at + 9)
    end
  end
  return value
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

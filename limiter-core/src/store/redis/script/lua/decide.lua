-- One decision over any number of keys: all of them allow, and each takes its permits; or none does.
--
-- KEYS     the counts that the questions are about, one a question; a key may come twice
-- ARGV[1]  'take' takes the permits if they fit, 'look' takes nothing, 'refund' gives them back, 'forget' deletes the counts
-- ARGV[2]  in µs: how long a 'take' may wait for its turn, or when what a 'refund' gives back was taken
-- then, for each key:
--   algorithm   what `make` makes a module of
--   window      milliseconds
--   max         permits in any window (1 to 2^32 - 1)
--   burst       what a bucket holds (1 to 2^32 - 1)
--   cost        permits to take or give back (0 to 2^32 - 1)
--
-- Reply    { allowed 1 or 0, which, remaining, retry after in µs (-1: never), reset after in µs, stamp in µs, delay until
--          the turn in µs }: `which` is the question, from 0, that `remaining` and `reset` are about, the first that
--          denies or the one with the least left; or an error: FOREIGN where a key holds something else, which stays
--          as it is, or what the server said of a command
-- Clock    the server's own, by TIME
-- Expiry   set with the value, in one command: when the last permit is back, and half a second for the clock of expiry
-- Atomic   because a script is, and because nothing is written before everything is known; a denial and a look write
--          nothing
--
-- A module has evaluate(count, question); take(count, question); refund(count, question, stamp), which tells whether it
-- changes anything; and scale, the µs in a unit of its instants. One that keeps a count as a string has open(value,
-- window), which gives the count or nil for foreign bytes, and close(count), which gives the value and the ms when it is
-- dead, or nil where nothing is left. One that keeps something else has load(key, window), which gives the count or nil
-- and an error, and store(count), which writes it and its expiry, and gives what the server said.
local FIELDS, SPARE = 5, 500

local counts, asked, modules = {}, {}, {}
for index, key in ipairs(KEYS) do
  local at = 2 + (index - 1) * FIELDS
  local name = ARGV[at + 1]
  local module = modules[name] or make(name)
  modules[name] = module
  local question = {
    -- The window is in the names of strings.
    id = module.load and key .. ' ' .. ARGV[at + 2] or key,
    algorithm = module,
    window = tonumber(ARGV[at + 2]),
    max = tonumber(ARGV[at + 3]),
    burst = ARGV[at + 4], -- for those to read who need it: a number costs something
    cost = tonumber(ARGV[at + 5]),
    pending = 0,
    max_wait = 0,
  }
  asked[index] = question
  local count, failure = counts[question.id], nil
  if not count then
    if module.load then
      count, failure = module.load(key, question.window)
    else
      local value = redis.pcall('GET', key)
      if type(value) == 'table' then
        return value
      end
      count = module.open(value, question.window)
    end
    if not count then
      return failure or redis.error_reply('FOREIGN a key holds something else than this limiter writes')
    end
    counts[question.id] = count
  end
  question.pending = count.pending or 0
  count.pending = question.pending + question.cost
end

-- What the questions say together: `which` is the first that denies, or the one with the least left.
local function evaluate()
  local denied, which, least, reset_at, delay, retry_at = false, nil, nil, nil, nil, now_micros
  for index, question in ipairs(asked) do
    local module = question.algorithm
    local allowed, remaining, fits_at, resets_at, waits = module.evaluate(counts[question.id], question)
    if not denied and (not allowed or not which or remaining < least) then
      denied, which, least, reset_at, delay = not allowed, index, remaining, resets_at * module.scale, waits or 0
    end
    if not fits_at then
      retry_at = nil
    elseif retry_at then
      retry_at = math.max(retry_at, fits_at * module.scale)
    end
  end
  return denied, which, least, reset_at, delay, retry_at
end

local function reply(allowed, which, remaining, reset_at, delay, retry_at)
  local retry = -1
  if retry_at then
    retry = math.max(retry_at - now_micros, 0)
  end
  return { allowed, which - 1, remaining, retry, math.max(reset_at - now_micros, 0), now_micros, delay }
end

local NOTHING = { 1, 0, 0, 0, 0, now_micros, 0 }
local gives_back = ARGV[1] == 'refund'
local changed = {}
local delay
if ARGV[1] == 'forget' then
  for _, key in ipairs(KEYS) do
    local deleted = redis.pcall('DEL', key)
    if type(deleted) == 'table' then
      return deleted
    end
  end
  return NOTHING
elseif gives_back then
  for _, question in ipairs(asked) do
    if question.cost > 0 and question.algorithm.refund(counts[question.id], question, tonumber(ARGV[2])) then
      changed[question.id] = question.algorithm
    end
  end
else
  if #asked == 1 then
    asked[1].max_wait = tonumber(ARGV[2])
  end
  local denied, which, remaining, reset_at, waits, retry_at = evaluate()
  if denied then
    return reply(0, which, remaining, reset_at, 0, retry_at)
  elseif ARGV[1] == 'look' then
    return reply(1, which, remaining, reset_at, waits, now_micros)
  end
  delay = waits
  for _, question in ipairs(asked) do
    if question.cost > 0 then
      question.algorithm.take(counts[question.id], question)
      changed[question.id] = question.algorithm
    end
    question.pending, question.cost = 0, 0
  end
end

for id, algorithm in pairs(changed) do
  local stored
  if algorithm.store then
    stored = algorithm.store(counts[id])
  else
    local value, expires_at = algorithm.close(counts[id])
    if value then
      stored = redis.pcall('SET', id, value, 'PX', math.max(expires_at - now_floor, 0) + SPARE)
    else
      stored = redis.pcall('DEL', id)
    end
  end
  if type(stored) == 'table' and stored.err then
    return stored
  end
end
if gives_back then
  return NOTHING
end
local _, which, remaining, reset_at = evaluate()
return reply(1, which, remaining, reset_at, delay, now_micros)

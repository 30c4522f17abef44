-- Many decisions in one call, each about one count, one after the other.
--
-- KEYS     the counts, one an entry; a key may come again, with another limit or cost
-- ARGV[1]  how many kinds of entries there are
-- then, for each kind:
--   algorithm   what `make` makes a module of, one that keeps its count in a string
--   window      milliseconds
--   max         permits in any window (1 to 2^32 - 1)
--   burst       what a bucket holds (1 to 2^32 - 1)
--   cost        permits that a call takes (0 to 2^32 - 1)
--   calls       how many calls an entry stands for: they are granted one after the other, whole calls only
-- then, if there are several, the kind of each entry, from 0
--
-- Reply    { stamp in µs, a string, then for each entry that failed its place, from 0, and the error }. The string has 24
--          bytes for each entry, big-endian: calls granted (4), permits left after them (4), retry after in µs for the
--          calls that were not (8; -1: never), reset after in µs (8); zeros where it failed
-- Clock    the server's own, by TIME
-- Expiry   as for one decision, set with the value
-- Atomic   because a script is. A denial writes nothing. A key that holds something else is left as it is: one of another
--          type reads as if it were not there, so what was not there is written only if it still is not
local FIELDS, SPARE = 6, 500
local FOREIGN = 'FOREIGN a key holds something else than this limiter writes'

local values
if #KEYS == 1 then
  local value = redis.pcall('GET', KEYS[1])
  if type(value) == 'table' then
    return { clock.micros, string.rep('\0', 24), 0, value }
  end
  values = { value }
else
  values = redis.call('MGET', unpack(KEYS))
end

-- The same by any module, one step after the other.
local modules, question = {}, { pending = 0, patience = 0 }
local function decide(value, asked)
  local module = modules[asked.algorithm] or make(asked.algorithm)
  modules[asked.algorithm] = module
  local count = module.open(value, asked.window)
  if not count then
    return nil
  end
  question.max, question.burst, question.cost = asked.max, asked.burst, asked.cost
  local allowed, remaining, retry_at, reset_at = module.judge(count, question)
  local grants, new, dead_at = 0, nil, nil
  if allowed then
    grants = asked.calls
    if asked.cost > 0 then
      grants = math.min(grants, math.floor(remaining / asked.cost))
      if asked.algorithm == 'leaky_bucket' then
        grants = 1
      end
      question.cost = grants * asked.cost
      module.take(count, question)
      question.cost = grants < asked.calls and asked.cost or 0
      allowed, remaining, retry_at, reset_at = module.judge(count, question)
      new, dead_at = module.close(count)
    end
  end
  retry_at = retry_at and retry_at * module.scale
  return grants, remaining, retry_at, reset_at * module.scale, new, dead_at
end

local keys, kinds, latest, lifetimes, several = KEYS, {}, {}, {}, ARGV[1] ~= '1'
local first_of_all = 2 + ARGV[1] * FIELDS
local micros, floor_now = clock.micros, clock.floor
local answers, reply = {}, { micros, '' }
for index = 1, #keys do
  local key, kind = keys[index], several and ARGV[first_of_all + index - 1] or '0'
  local asked = kinds[kind]
  if not asked then
    local at = 2 + kind * FIELDS
    asked = {
      algorithm = ARGV[at],
      window = tonumber(ARGV[at + 1]),
      max = tonumber(ARGV[at + 2]),
      burst = ARGV[at + 3],
      cost = tonumber(ARGV[at + 4]),
      calls = tonumber(ARGV[at + 5]),
      slides = ARGV[at] == 'sliding_window',
    }
    kinds[kind] = asked
  end
  local value = latest[key] or values[index]
  local grants, remaining, retry_at, reset_at, new, dead_at
  if asked.slides then
    grants, remaining, retry_at, reset_at, new, dead_at =
      sliding_at_once(value, asked.window, asked.max, asked.cost, asked.calls)
    if grants then
      retry_at, reset_at = retry_at and retry_at * 1000, reset_at * 1000
    end
  end
  if grants == nil and not asked.slides or grants == false then
    grants, remaining, retry_at, reset_at, new, dead_at = decide(value, asked)
  end
  local wrong = not grants and FOREIGN
  if new then
    -- As text, once for all that live as long: the server would print each as a decimal fraction.
    local lives = dead_at > floor_now and dead_at - floor_now + SPARE or SPARE
    local text = lifetimes[lives] or string.format('%d', lives)
    lifetimes[lives] = text
    local stored
    if value then
      stored = redis.pcall('SET', key, new, 'PX', text)
    else
      stored = redis.pcall('SET', key, new, 'PX', text, 'NX')
    end
    if not stored then
      wrong = FOREIGN
    elseif stored.err then
      wrong = stored
    else
      latest[key] = new
    end
  end
  local at = 4 * index - 3
  if wrong then
    reply[#reply + 1] = index - 1
    reply[#reply + 1] = wrong == FOREIGN and redis.error_reply(FOREIGN) or wrong
    answers[at], answers[at + 1], answers[at + 2], answers[at + 3] = 0, 0, 0, 0
  else
    answers[at], answers[at + 1] = grants, remaining
    answers[at + 2] = retry_at and (retry_at > micros and retry_at - micros or 0) or -1
    answers[at + 3] = reset_at > micros and reset_at - micros or 0
  end
end
reply[2] = struct.pack('>' .. string.rep('I4I4i8i8', #keys), unpack(answers))
return reply

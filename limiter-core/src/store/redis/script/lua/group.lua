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
-- Expiry   as for one decision, set with the value; just after it where a value is changed in its place
-- Atomic   because a script is. A denial writes nothing. A key that holds something else is left as it is: one of another
--          type reads as if it were not there, so what was not there is written only if it still is not
local FIELDS, SPARE = 6, 500
local FOREIGN = 'FOREIGN a key holds something else than this limiter writes'
local ENTRY = 'I4I4i8i8'
-- Of a value that was changed in its place.
local CHANGED = {}
local keys, argv = KEYS, ARGV

local values
if #keys == 1 then
  local value = redis.pcall('GET', keys[1])
  if type(value) == 'table' then
    return { now_micros, string.rep('\0', 24), 0, value }
  end
  values = { value }
else
  values = redis.call('MGET', unpack(keys))
end

-- The same by any module, one step after the other.
local modules
local function by_module(value, algorithm, window, limit, burst, cost, calls)
  modules = modules or {}
  local module = modules[algorithm] or make(algorithm)
  modules[algorithm] = module
  local count = module.open(value, window)
  if not count then
    return nil
  end
  local question = { max = limit, burst = burst, cost = cost, pending = 0, max_wait = 0 }
  local allowed, remaining, retry_at, reset_at = module.evaluate(count, question)
  local grants, new, expires_at = 0, nil, nil
  if allowed then
    grants = calls
    if cost > 0 then
      grants = math.min(grants, math.floor(remaining / cost))
      if algorithm == 'leaky_bucket' then
        grants = 1
      end
      question.cost = grants * cost
      module.take(count, question)
      question.cost = grants < calls and cost or 0
      allowed, remaining, retry_at, reset_at = module.evaluate(count, question)
      new, expires_at = module.close(count)
    end
  end
  retry_at = retry_at and retry_at * module.scale
  return grants, remaining, retry_at, reset_at * module.scale, new, expires_at
end

local several, kind = argv[1] ~= '1', nil
local first_of_all = 2 + argv[1] * FIELDS
local algorithm, window, limit, burst, cost, calls
local lives, text
local latest, answers, failures = {}, {}, nil
for index = 1, #keys do
  local key, its = keys[index], several and argv[first_of_all + index - 1] or '0'
  if its ~= kind then
    kind = its
    local at = 2 + kind * FIELDS
    algorithm, window, limit, burst = argv[at], tonumber(argv[at + 1]), tonumber(argv[at + 2]), argv[at + 3]
    cost, calls = tonumber(argv[at + 4]), tonumber(argv[at + 5])
  end
  local value = latest[key]
  if value == nil then
    value = values[index]
  elseif value == CHANGED then
    value = redis.call('GET', key)
  end
  local grants, remaining, retry_at, reset_at, new, expires_at, place
  if algorithm == 'sliding_window' then
    grants, remaining, retry_at, reset_at, new, expires_at, place =
      sliding_at_once(value, window, limit, cost, calls)
    if grants then
      retry_at, reset_at = retry_at and retry_at * 1000, reset_at * 1000
    end
  end
  if grants == false or grants == nil and algorithm ~= 'sliding_window' then
    grants, remaining, retry_at, reset_at, new, expires_at =
      by_module(value, algorithm, window, limit, burst, cost, calls)
  end
  local wrong = not grants and FOREIGN
  if new then
    -- As text, once for all that live as long: the server would print each as a decimal fraction.
    local left = expires_at > now_floor and expires_at - now_floor + SPARE or SPARE
    if left ~= lives then
      lives, text = left, string.format('%d', left)
    end
    local stored
    if place then
      stored, new = redis.pcall('SETRANGE', key, place, new), CHANGED
      if type(stored) ~= 'table' then
        stored = redis.pcall('PEXPIRE', key, text)
        if stored ~= 1 then
          -- As where that is not permitted. What is taken must not be forgotten too early, so it is not.
          redis.pcall('SET', key, value, 'KEEPTTL')
        end
        stored = type(stored) == 'table' and stored or stored == 1 and {}
      end
    elseif value then
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
    failures = failures or {}
    failures[#failures + 1] = index - 1
    failures[#failures + 1] = wrong == FOREIGN and redis.error_reply(FOREIGN) or wrong
    answers[at], answers[at + 1], answers[at + 2], answers[at + 3] = 0, 0, 0, 0
  else
    local retry = retry_at and (retry_at > now_micros and retry_at - now_micros or 0) or -1
    local reset = reset_at > now_micros and reset_at - now_micros or 0
    if #keys == 1 then
      return { now_micros, struct.pack('>' .. ENTRY, grants, remaining, retry, reset) }
    end
    answers[at], answers[at + 1], answers[at + 2], answers[at + 3] = grants, remaining, retry, reset
  end
end
return { now_micros, struct.pack('>' .. string.rep(ENTRY, #keys), unpack(answers)), unpack(failures or {}) }

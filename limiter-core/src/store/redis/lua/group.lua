-- Many decisions in one call, each about one count, one after the other.
--
-- KEYS     the counts, one an entry; a key may come again, with another limit or cost
-- ARGV     for each entry:
--   algorithm   what `make` makes a module of, one that keeps its count in a string
--   window      milliseconds
--   max         permits in any window (1 to 2^32 - 1)
--   burst       what a bucket holds (1 to 2^32 - 1)
--   cost        permits that a call takes (0 to 2^32 - 1)
--   calls       how many calls there are of this kind: they are granted one after the other, whole calls only
--
-- Reply    { stamp in µs, then for each entry { calls granted, permits left after them, retry after in µs for the calls
--          that were not (-1: never), reset after in µs } or an error, which is that entry's alone }
-- Clock    the server's own, by TIME
-- Expiry   as for one decision, set with the value
-- Atomic   because a script is. Each key is read once and written once, whatever entries it has; a denial writes nothing. A
--          key that holds something else is left as it is: one of another type reads as if it were not there, so what was
--          not there is written only if it still is not
local FIELDS, SPARE = 6, 500

local values
if #KEYS == 1 then
  local value = redis.pcall('GET', KEYS[1])
  if type(value) == 'table' then
    return { clock.micros, value }
  end
  values = { value }
else
  values = redis.call('MGET', unpack(KEYS))
end

local modules, counts, granted, changed = {}, {}, {}, {}
local replies = { clock.micros }
for index = 1, #KEYS do
  local key, at = KEYS[index], (index - 1) * FIELDS
  local name = ARGV[at + 1]
  local module = modules[name] or make(name)
  modules[name] = module
  local count = counts[key]
  if count == nil then
    count = module.open(values[index], tonumber(ARGV[at + 2])) or false
    counts[key] = count
  end
  if count then
    local cost, calls = tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
    local question = { max = tonumber(ARGV[at + 3]), burst = ARGV[at + 4], cost = cost, pending = 0, patience = 0 }
    local told = module.judge(count, question)
    local grants, left, retry_at, reset_at = 0, told.remaining, told.retry_at, told.reset_at
    if told.allowed then
      grants = calls
      if cost > 0 then
        grants = math.min(calls, math.floor(told.remaining / cost))
        question.cost = grants * cost
        if not count.entries then
          changed[#changed + 1] = key
          count.entries, count.fresh, count.module = {}, not values[index], module
        end
        count.entries[#count.entries + 1] = index
        module.take(count, question)
        question.cost = grants < calls and cost or 0
        told = module.judge(count, question)
        left, retry_at, reset_at = told.remaining, told.retry_at, told.reset_at
      end
    end
    local retry = -1
    if retry_at then
      retry = math.max(retry_at * module.scale - clock.micros, 0)
    end
    replies[index + 1] = { grants, left, retry, math.max(reset_at * module.scale - clock.micros, 0) }
  else
    replies[index + 1] = redis.error_reply('FOREIGN a key holds something else than this limiter writes')
  end
end

for _, key in ipairs(changed) do
  local count = counts[key]
  local value, dead_at = count.module.close(count)
  local lives = math.max(dead_at - clock.floor, 0) + SPARE
  local stored
  if count.fresh then
    stored = redis.pcall('SET', key, value, 'PX', lives, 'NX')
      or redis.error_reply('FOREIGN a key holds something else than this limiter writes')
  else
    stored = redis.pcall('SET', key, value, 'PX', lives)
  end
  if stored.err then
    for _, index in ipairs(count.entries) do
      replies[index + 1] = stored
    end
  end
end
return replies

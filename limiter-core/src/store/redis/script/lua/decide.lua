-- One decision about any number of keys. If all of them allow it, each takes its permits; otherwise none does.
--
-- KEYS     the keys of the counters, one for each request; a key may come twice. 'once' has one more: the mark of a receipt
-- ARGV[1]  'take' takes the permits if they fit, 'report' does that too and replies more, 'look' takes nothing, 'survey'
--          takes nothing and replies more, 'refund' returns them, 'charge' takes them whether they fit or not and returns
--          others, 'once' does that unless the mark exists, and sets it, 'forget' deletes the counters, except for permits
--          that may be on lease
-- ARGV[2]  in µs: the longest delay that a 'take' accepts, or the stamp of the permits that a 'refund' or a 'charge'
--          returns
-- then, for each request:
--   algorithm   the argument of `make`, which returns the module
--   window      milliseconds
--   max         permits in any window (1 to 2^32 - 1)
--   burst       the capacity of a bucket (1 to 2^32 - 1), or the edges of a calendar; in a 'refund' the permits that the
--               call keeps
--   cost        permits to take or to return (0 to 2^32 - 1). Where several requests of one call's rules share a counter:
--               that, then the permits of earlier requests that count as taken, then the permits that this request takes,
--               or '-' for an observed request. Observed ones take nothing, deny nothing and come last. Where a 'charge'
--               returns permits: 0, then the permits that it returns, then those that the call keeps
-- then, of 'once': the µs at which the receipt ends, and the µs for which this server is known to have lost no permits.
--   It returns only younger ones
--
-- Reply    { allowed 1 or 0, deciding request, remaining, retry after in µs (-1: never), reset after in µs, stamp in
--          µs, delay until the turn in µs }. The deciding request, counted from 0, is the one of `remaining` and `reset
--          after`: the first that denies, or the one with the least remaining. After a 'report' and a 'survey',
--          remaining and reset after of each request follow, as they are now. Those of observed ones follow only a 'report'
--          that is allowed: before the call if it would be denied; then allowed 1 or 0 and retry after. Or an error: FOREIGN
--          if a key holds a value of another kind, which stays as it is, or EDGES of calendar.lua, or the server's error of
--          a command
--          After a 'charge': { stamp in µs, then for each request permits that its counter had no room for, permits left,
--          permits beyond the limit, reset after in µs }. After 'once' also { -1 } if the mark exists, or { -2 } if the
--          receipt has ended
-- Clock    the server's, by TIME
-- Expiry   set with the value, in one command: when the last permit expires, plus half a second of slack, as the expiry
--          clock may differ
-- Atomic   because a script is, and because it writes only after all requests are evaluated; a denial and a look write
--          nothing
--
-- A module has these functions. Its instants are in units of `scale` µs.
--   evaluate(counter, request)       returns allowed, remaining, retry at (nil: never), reset at, delay (nil: none)
--   fill(counter, request)           returns the permits that count, those that the limit allows, and the most that may be
--                                    taken whether they fit or not
--   take(counter, request)           takes the permits
--   refund(counter, request, stamp)  returns permits to the counter; returns true if that may change it
-- A module whose counter is a string also has
--   open(value, window, burst)       returns the counter; nil for foreign bytes; nil and an error if it needs other edges
--   forget(counter)                  if it has leases: removes all other permits, and returns true if some are left
--   close(counter)                   returns the value and the ms at which it expires; nil for an empty counter
-- and another module has
--   load(key, window)                returns the counter; nil and an error if there is none
--   store(counter)                   writes the counter with its expiry; returns the error if the server rejects it
-- `denials`, which blocks.lua gives, gets the indices of the requests whose counters deny and are not final.
local FIELDS, EXPIRY_SLACK_MS = 5, 500

local operation, mark = ARGV[1], nil
if operation == 'once' then
  operation, mark = 'charge', table.remove(KEYS)
end
local counters, requests, modules = {}, {}, {}
for index, key in ipairs(KEYS) do
  local at = 2 + (index - 1) * FIELDS
  local name = ARGV[at + 1]
  local module = modules[name] or make(name)
  modules[name] = module
  local cost, pending, taken = tonumber(ARGV[at + 5]), nil, nil
  if not cost then
    cost, pending, taken = string.match(ARGV[at + 5], '(%d+) (%d+) (.+)')
    cost, pending = tonumber(cost), tonumber(pending)
  end
  local request = {
    -- The name of a string contains the window.
    id = module.load and key .. ' ' .. ARGV[at + 2] or key,
    algorithm = module,
    -- Arithmetic reads a number faster than a function.
    window = ARGV[at + 2] + 0,
    max = ARGV[at + 3] + 0,
    burst = ARGV[at + 4], -- text: only the buckets need the number
    cost = cost,
    taken = taken and tonumber(taken),
    is_observed = taken == '-',
    pending = 0,
    max_wait = 0,
  }
  requests[index] = request
  local counter, failure = counters[request.id], nil
  if not counter then
    if module.load then
      counter, failure = module.load(key, request.window)
    else
      local value = redis.pcall('GET', key)
      if type(value) == 'table' then
        return value
      end
      counter, failure = module.open(value, request.window, request.burst)
    end
    if not counter then
      return failure or redis.error_reply('FOREIGN a key holds something else than this limiter writes')
    end
    counters[request.id] = counter
  end
  request.pending = pending or counter.pending or 0
  counter.pending = request.pending + request.cost
end

-- Merges the outcomes of all requests. The deciding one is the first that denies, or the one with the least remaining.
local function evaluate()
  local denied, deciding, least, reset_at, delay, retry_at = false, nil, nil, nil, nil, now_micros
  for index, request in ipairs(requests) do
    if request.is_observed then
      break
    end
    local module = request.algorithm
    local allowed, remaining, fits_at, resets_at, waits = module.evaluate(counters[request.id], request)
    if denials and not allowed and fits_at then
      denials[index] = true
    end
    if not denied and (not allowed or not deciding or remaining < least) then
      denied, deciding, least, reset_at, delay = not allowed, index, remaining, resets_at * module.scale, waits or 0
    end
    if not fits_at then
      retry_at = nil
    elseif retry_at then
      retry_at = math.max(retry_at, fits_at * module.scale)
    end
  end
  return denied, deciding, least, reset_at, delay, retry_at
end

local function reply(allowed, deciding, remaining, reset_at, delay, retry_at)
  local retry = -1
  if retry_at then
    retry = math.max(retry_at - now_micros, 0)
  end
  return { allowed, deciding - 1, remaining, retry, math.max(reset_at - now_micros, 0), now_micros, delay }
end

-- Adds the level of each request to a reply that takes nothing, if the operation replies more.
local function add_levels(numbers)
  if operation == 'report' or operation == 'survey' then
    for _, request in ipairs(requests) do
      if request.is_observed then
        break
      end
      request.pending, request.cost = 0, 0
      local _, left, _, resets_at = request.algorithm.evaluate(counters[request.id], request)
      numbers[#numbers + 1] = left
      numbers[#numbers + 1] = math.max(resets_at * request.algorithm.scale - now_micros, 0)
    end
  end
  return numbers
end

local is_refund = operation == 'refund'
local changed = {}
local delay
if operation == 'forget' then
  for index, key in ipairs(KEYS) do
    local module, counter = requests[index].algorithm, counters[requests[index].id]
    if module.forget and module.forget(counter) then
      changed[key] = module
    else
      local deleted = redis.pcall('DEL', key)
      if type(deleted) == 'table' then
        return deleted
      end
    end
  end
elseif operation == 'charge' then
  -- On one counter either all requests return permits, or none does.
  local may_return = true
  if mark then
    local at = 2 + #KEYS * FIELDS
    local left = tonumber(ARGV[at + 1]) - now_micros
    if left <= 0 then
      return { -2 }
    end
    -- Nothing below can fail, except for want of memory, which would fail here.
    local marked = redis.pcall('SET', mark, '', 'PX', math.ceil(left / 1000) + EXPIRY_SLACK_MS, 'NX')
    if not marked then
      return { -1 }
    elseif marked.err then
      return marked
    end
    may_return = tonumber(ARGV[2]) > now_micros - tonumber(ARGV[at + 2])
  end
  for _, request in ipairs(requests) do
    local module, counter = request.algorithm, counters[request.id]
    if request.taken and may_return then
      local returned = { cost = request.pending, burst = request.taken, max = request.max }
      if module.refund(counter, returned, tonumber(ARGV[2])) then
        changed[request.id] = module
      end
    end
    local _, _, room = module.fill(counter, request)
    local permits = math.min(request.cost, room)
    counter.uncounted = (counter.uncounted or 0) + request.cost - permits
    if permits > 0 then
      request.cost = permits
      module.take(counter, request)
      changed[request.id] = module
    end
    request.pending, request.cost = 0, 0
  end
elseif is_refund then
  for _, request in ipairs(requests) do
    if request.cost > 0 and request.algorithm.refund(counters[request.id], request, tonumber(ARGV[2])) then
      changed[request.id] = request.algorithm
    end
  end
else
  if #requests == 1 then
    requests[1].max_wait = tonumber(ARGV[2])
  end
  local denied, deciding, remaining, reset_at, waits, retry_at = evaluate()
  if denied then
    return add_levels(reply(0, deciding, remaining, reset_at, 0, retry_at))
  elseif operation == 'look' or operation == 'survey' then
    return add_levels(reply(1, deciding, remaining, reset_at, waits, now_micros))
  end
  delay = waits
  for _, request in ipairs(requests) do
    if request.is_observed then
      request.before = { request.algorithm.evaluate(counters[request.id], request) }
    end
  end
  for _, request in ipairs(requests) do
    request.cost = request.is_observed and 0 or request.taken or request.cost
    if request.cost > 0 then
      request.algorithm.take(counters[request.id], request)
      changed[request.id] = request.algorithm
    end
    request.pending, request.cost = 0, 0
  end
end

for id, algorithm in pairs(changed) do
  local stored
  if algorithm.store then
    stored = algorithm.store(counters[id])
  else
    local value, expires_at = algorithm.close(counters[id])
    if value then
      -- The server would format a number as a decimal fraction.
      local ttl = math.max(expires_at - now_floor, 0) + EXPIRY_SLACK_MS
      stored = redis.pcall('SET', id, value, 'PX', string.format('%d', ttl))
    else
      stored = redis.pcall('DEL', id)
    end
  end
  if type(stored) == 'table' and stored.err then
    return stored
  end
end
if is_refund or operation == 'forget' then
  return { 1, 0, 0, 0, 0, now_micros, 0 }
end
if operation == 'charge' then
  local charged = { now_micros }
  for index, request in ipairs(requests) do
    local module, counter = request.algorithm, counters[request.id]
    local uncounted = counter.uncounted
    if module.load then
      counter = module.load(KEYS[index], request.window)
    end
    local _, remaining, _, reset_at = module.evaluate(counter, request)
    local used, capacity = module.fill(counter, request)
    charged[#charged + 1], charged[#charged + 2] = uncounted, remaining
    charged[#charged + 1], charged[#charged + 2] =
      math.max(used - capacity, 0), math.max(reset_at * module.scale - now_micros, 0)
  end
  return charged
end
local _, deciding, remaining, reset_at = evaluate()
local allowed = reply(1, deciding, remaining, reset_at, delay, now_micros)
if operation == 'report' then
  for _, request in ipairs(requests) do
    local module, before = request.algorithm, request.before
    local _, left, _, resets_at = module.evaluate(counters[request.id], request)
    if before and not before[1] then
      left, resets_at = before[2], before[4]
    end
    allowed[#allowed + 1], allowed[#allowed + 2] = left, math.max(resets_at * module.scale - now_micros, 0)
    if before then
      local fits_at = before[3]
      allowed[#allowed + 1] = before[1] and 1 or 0
      allowed[#allowed + 1] = fits_at and math.max(fits_at * module.scale - now_micros, 0) or -1
    end
  end
end
return allowed

-- A batch of decisions, each about one counter, made one after the other. sliding_simple.lua runs before this part, and
-- may have decided the first entries.
--
-- KEYS     the keys of the counters, one for each entry; a key may come again, with another limit or cost
-- ARGV[1]  the number of kinds of entries
-- then, for each kind:
--   algorithm   the argument of `make`; its module keeps the counter in a string. Or 'leased_window': a sliding window
--               whose permits may be leased
--   window      milliseconds
--   max         permits in any window (1 to 2^32 - 1)
--   burst       the capacity of a bucket (1 to 2^32 - 1), or the edges of a calendar. Of a leased window: nothing, or 22 bytes, big-endian: permits
--               wanted as a lease (4), the mark of a log that has none (4), unused permits of an earlier lease (4), the
--               end of that lease in ms (6) and its mark (4)
--   cost        permits that a call takes (0 to 2^32 - 1)
--   calls       the number of equal calls in an entry, which are granted one after the other; or '+' for a charge: its
--               permits are taken whether they fit or not
-- then, if there are several kinds, the kind of each entry, counted from 0
--
-- Reply    EDGES of calendar.lua, and nothing has changed. Or { stamp in µs, a string, then for each failed entry its index, from 0, and the error }. The string has 24
--          bytes for each entry, big-endian: calls granted (4), permits left after them (4), retry after in µs of the
--          denied calls (8; -1: never), reset after in µs (8); zeros for a failed entry. Then 16 bytes for each entry of
--          a leased window: permits leased (4), the mark of the log (4), the end of the lease in ms (8). Without a lease
--          the latter is the newest stamp of the log if it is ahead of the clock, and else 0. If a log with leases was
--          read and no call is denied, retry after is that of one permit more
--          The numbers of a charge: permits counted, permits left, permits beyond the limit, reset after in µs
--          A lone call of a sliding window mostly gets the short reply of sliding_simple.lua instead
-- Clock    the server's, by TIME
-- Expiry   as in decide.lua, set with the value. Where a value is changed in place it is set right after it, unless it is
--          set already
-- Atomic   because a script is. A denial writes nothing here. A foreign value stays as it is. MGET returns nil for a key of
--          another type, so a key without a value is written with NX
local FIELDS, EXPIRY_SLACK_MS = 6, 500
local FOREIGN = 'FOREIGN a key holds something else than this limiter writes'
local ENTRY = 'I4I4i8i8'
-- Marks a value that SETRANGE has changed.
local CHANGED_IN_PLACE = {}
local keys, argv = KEYS, ARGV

local values
if #keys == 1 then
  local value = lone_value
  if value == nil then
    value = redis.pcall('GET', keys[1])
  end
  if type(value) == 'table' then
    return { now_micros, string.rep('\0', argv[2] == 'leased_window' and 40 or 24), 0, value }
  end
  values = { value }
else
  -- An error fails the batch. If sliding_simple.lua has decided entries, it fails the others.
  values = redis[decided == 0 and 'call' or 'pcall']('MGET', unpack(keys))
  if values.err then
    local failures = {}
    for index = decided, #keys - 1 do
      failures[#failures + 1], failures[#failures + 2] = index, values
    end
    return { now_micros, packed .. string.rep('\0', 24 * (#keys - decided)), unpack(failures) }
  end
end

local modules, leased_window
local function module_of(algorithm)
  modules = modules or {}
  local module = modules[algorithm] or make(algorithm)
  modules[algorithm] = module
  return module
end

-- Decides by the module of an algorithm.
local function by_module(value, algorithm, window, limit, burst, cost, calls)
  local module = module_of(algorithm)
  local counter = module.open(value, window, burst)
  if not counter then
    return nil
  end
  local request = { max = limit, burst = burst, cost = cost, pending = 0, max_wait = 0 }
  if not calls then
    local used, capacity, room = module.fill(counter, request)
    local counted, new, expires_at = math.min(cost, room), nil, nil
    if counted > 0 then
      request.cost = counted
      module.take(counter, request)
      new, expires_at = module.close(counter)
    end
    request.cost = 0
    local _, remaining, _, reset_at = module.evaluate(counter, request)
    return counted, remaining, math.max(used + counted - capacity, 0), reset_at * module.scale, new, expires_at
  end
  local allowed, remaining, retry_at, reset_at = module.evaluate(counter, request)
  local grants, new, expires_at = 0, nil, nil
  if allowed then
    grants = calls
    if cost > 0 then
      grants = math.min(grants, math.floor(remaining / cost))
      if algorithm == 'leaky_bucket' then
        grants = 1
      end
      request.cost = grants * cost
      module.take(counter, request)
      request.cost = grants < calls and cost or 0
      allowed, remaining, retry_at, reset_at = module.evaluate(counter, request)
      new, expires_at = module.close(counter)
    end
  end
  retry_at = retry_at and retry_at * module.scale
  return grants, remaining, retry_at, reset_at * module.scale, new, expires_at
end

local has_many_kinds, kind = argv[1] ~= '1', nil
local first_entry_kind = 2 + argv[1] * FIELDS
local has_calendar = false
for at = 2, first_entry_kind - 1, FIELDS do
  has_calendar = has_calendar or argv[at] == 'calendar'
end
-- Nothing has been decided then. A batch with edges that do not fit is sent again as a whole, so it must write nothing.
for index = 1, has_calendar and #keys or 0 do
  local at = 2 + (has_many_kinds and argv[first_entry_kind + index - 1] or 0) * FIELDS
  if argv[at] == 'calendar' then
    local _, failure = module_of('calendar').open(values[index], tonumber(argv[at + 1]), argv[at + 3])
    if failure then
      return failure
    end
  end
end
local algorithm, window, limit, burst, cost, calls
local ttl, ttl_text
local latest, replies, leases, failures = {}, {}, nil, nil
for index = decided + 1, #keys do
  local key, entry_kind = keys[index], has_many_kinds and argv[first_entry_kind + index - 1] or '0'
  if entry_kind ~= kind then
    kind = entry_kind
    local at = 2 + kind * FIELDS
    algorithm, window, limit, burst = argv[at], tonumber(argv[at + 1]), tonumber(argv[at + 2]), argv[at + 3]
    cost, calls = tonumber(argv[at + 4]), tonumber(argv[at + 5])
  end
  local value = latest[key]
  if value == nil then
    value = values[index]
  elseif value == CHANGED_IN_PLACE then
    value = redis.call('GET', key)
  end
  local grants, remaining, retry_at, reset_at, new, expires_at, write_offset, lease, is_emptied
  local is_leased = algorithm == 'leased_window'
  if algorithm == 'sliding_window' then
    grants, remaining, retry_at, reset_at, new, expires_at, write_offset =
      sliding_at_once(value, window, limit, cost, calls)
  elseif is_leased then
    leased_window = leased_window or make('leased_window')
    grants, remaining, retry_at, reset_at, new, expires_at, write_offset, lease, is_emptied =
      leased_window(sliding_at_once, value, window, limit, cost, calls, burst)
  end
  if grants then
    retry_at, reset_at = calls and retry_at and retry_at * 1000 or retry_at, reset_at * 1000
  elseif not is_leased then
    grants, remaining, retry_at, reset_at, new, expires_at =
      by_module(value, algorithm, window, limit, burst, cost, calls)
  end
  local failure = not grants and FOREIGN
  if is_emptied then
    local deleted = redis.pcall('DEL', key)
    if type(deleted) == 'table' then
      failure = deleted
    else
      latest[key] = false
    end
  elseif new then
    if expires_at then
      -- The text is made once for all values with the same TTL. The server would format a number as a decimal fraction.
      local new_ttl = expires_at > now_floor and expires_at - now_floor + EXPIRY_SLACK_MS or EXPIRY_SLACK_MS
      if new_ttl ~= ttl then
        ttl, ttl_text = new_ttl, string.format('%d', new_ttl)
      end
    end
    local stored
    if write_offset then
      stored, new = redis.pcall('SETRANGE', key, write_offset, new), CHANGED_IN_PLACE
      if type(stored) ~= 'table' then
        stored = not expires_at and 1 or redis.pcall('PEXPIRE', key, ttl_text)
        if stored ~= 1 then
          -- The ACL may forbid PEXPIRE. Permits must not expire too early, so the change is undone.
          redis.pcall('SET', key, value, 'KEEPTTL', 'XX')
        end
        stored = type(stored) == 'table' and stored or stored == 1 and {}
      end
    elseif value then
      stored = redis.pcall('SET', key, new, 'PX', ttl_text)
    else
      stored = redis.pcall('SET', key, new, 'PX', ttl_text, 'NX')
    end
    if not stored then
      failure = FOREIGN
    elseif stored.err then
      failure = stored
    else
      latest[key] = new
    end
  end
  local at = 4 * index - 3
  if failure then
    failures = failures or {}
    failures[#failures + 1] = index - 1
    failures[#failures + 1] = failure == FOREIGN and redis.error_reply(FOREIGN) or failure
    lease = is_leased and string.rep('\0', 16)
    replies[at], replies[at + 1], replies[at + 2], replies[at + 3] = 0, 0, 0, 0
  else
    local retry = retry_at and (retry_at > now_micros and retry_at - now_micros or 0) or -1
    if not calls then
      retry = retry_at
    end
    local reset = reset_at > now_micros and reset_at - now_micros or 0
    if #keys == 1 then
      local reply = struct.pack('>' .. ENTRY, grants, remaining, retry, reset)
      return { now_micros, lease and reply .. lease or reply }
    end
    replies[at], replies[at + 1], replies[at + 2], replies[at + 3] = grants, remaining, retry, reset
  end
  if lease then
    leases = leases or {}
    leases[#leases + 1] = lease
  end
end
local last_packed = struct.pack('>' .. string.rep(ENTRY, #keys - decided), unpack(replies, 4 * decided + 1, 4 * #keys))
packed = decided > 0 and packed .. last_packed or last_packed
return { now_micros, leases and packed .. table.concat(leases) or packed, unpack(failures or {}) }

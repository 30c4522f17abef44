-- The slots of calls that run at once: those that each process has of a key, and the processes that wait for some.
--
-- KEYS     the keys, one for each message; a key may come again
-- ARGV[1]  'send', or 'peek' or 'reset' of one key. The other arguments are those of 'send'
-- ARGV[2]  the id of the process (8 bytes)
-- ARGV[3]  the messages, 19 bytes each, big-endian: number (4), then 2 bytes each: slots of running calls, slots that the
--          process may use until the reply, slots wanted, slots that its first waiting call needs, slots that its waiting
--          calls need, the limit, the slot time in 10 ms; then 1 if it has waited for long (1)
-- ARGV[4]  the start of the names of channels. The id in hex is the rest
--
-- Value    A head of 24 bytes: version (1), slots of all entries (4), first end (6), last end (6), least slot time in 10
--          ms (2), number of entries that wait (2), zeros (3). The first end may be too early and the last one too late.
--          Then 32 bytes for each process: id (8), end (6), number (4), slots (2), slot time in 10 ms (2), slots that it
--          waits for (2), slots that its first waiting call needs (2), place in the line of those that wait (6). Times are
--          in ms. A value of another version or length is damaged, and counts as none
-- Reply    of 'send': 18 bytes for each message: state (1), slots granted (2), slots that may be used (2), the share of a
--          process (2), 1 if another process waits with less than its share (1), slots of all (4), other processes that
--          wait (2), and if less is granted than wanted the ms until the first end of another process (4; 2^32 - 1: none)
--          of 'peek': 16 bytes for each process: id (8), slots (2), slots that it waits for (2), ms until its end (4)
--          of 'reset': 1
-- Notices  The key is published on the channel of a process that should send a message
-- Clock    the server's, by TIME
-- Expiry   1 to 2 s after the last end
-- Atomic   because a script is. A message whose number is not new writes nothing
local HEAD, ENTRY, MESSAGE, VERSION, MAX_ENTRIES, WRAP, NEVER = 24, 32, 19, 1, 1024, 4294967296, 4294967295
-- Up to this size a value is written as a whole, since that is one command.
local MAX_WHOLE_BYTES = 100
-- The longest time in which a process without slots waits for the next message.
local MAX_WAIT_MS = 2000
local FRESH, STALE, FULL, DAMAGED = 0, 1, 2, 3
local unpack, pack, sub, find, call, now = struct.unpack, struct.pack, string.sub, string.find, redis.call, now_floor

-- Reads a value: false if there is none. The second result is true if it is damaged, the third an error of the server.
local function load(key)
  local value = redis.pcall('GET', key)
  local size = value and #value or 0
  if not value or size > HEAD and size % ENTRY == HEAD and string.byte(value) == VERSION then
    return value
  elseif type(value) == 'table' and not find(value.err, 'WRONGTYPE', 1, true) then
    return false, false, value
  end
  return false, true
end

-- Removes the entries that have ended. Those that end too late are shortened: the clock has stepped back. Returns the
-- value, whether it differs, whether entries have ended, and the numbers of the head.
local function clean(value)
  local pieces, from, has_ended = {}, 1, false
  local sum, first, last, least_unit, waiters = 0, nil, 0, 65535, 0
  for at = HEAD + 1, #value, ENTRY do
    local ends, _, slots, unit, waiting = unpack('>I6I4I2I2I2', value, at + 8)
    local latest = now + unit * 10
    if ends <= now or ends > latest then
      pieces[#pieces + 1] = sub(value, from, at - 1)
      from = at + ENTRY
      if ends > latest then
        ends = latest
        pieces[#pieces + 1] = ends > now and sub(value, at, at + 7) .. pack('>I6', ends) .. sub(value, at + 14, from - 1)
          or ''
      end
    end
    if ends > now then
      sum, first, last = sum + slots, first and first < ends and first or ends, last > ends and last or ends
      least_unit = least_unit < unit and least_unit or unit
      waiters = waiters + (waiting > 0 and 1 or 0)
    else
      has_ended = true
    end
  end
  local is_changed = from > 1
  if is_changed then
    pieces[#pieces + 1] = sub(value, from)
    value = first and table.concat(pieces)
  end
  return value or false, is_changed, has_ended, sum, first, last, least_unit, waiters
end

-- The slots of a waiting entry with less than its share that none behind it in the line may have.
local function due(slots, waiting, least, least_share)
  local part = least_share - slots
  part = waiting < part and waiting or part
  return part > least - slots and part or least - slots
end

-- Returns the first end of another entry; nil if there is none.
local function first_end_of_others(value, own)
  local first
  for at = HEAD + 1, value and #value or 0, ENTRY do
    local ends = at ~= own and unpack('>I6', value, at + 8)
    if ends and (not first or ends < first) then first = ends end
  end
  return first
end

-- Returns the other entries that wait, in their order: first those with less than their share, then by their places.
local function line(value, own, least_share)
  local entries = {}
  for at = HEAD + 1, #value, ENTRY do
    local waiting = at ~= own and unpack('>I2', value, at + 22) or 0
    if waiting > 0 then
      local slots, _, _, least, since = unpack('>I2I2I2I2I6', value, at + 18)
      local is_hungry = slots < least_share
      entries[#entries + 1] = {
        id = sub(value, at, at + 7), is_hungry = is_hungry, since = since,
        due = is_hungry and due(slots, waiting, least, least_share) or waiting,
      }
    end
  end
  table.sort(entries, function(a, b)
    if a.is_hungry ~= b.is_hungry then return a.is_hungry end
    return a.since < b.since
  end)
  return entries
end

local function expiry(last)
  return string.format('%d', last - last % 1000 + 2000 - now)
end

local operation = ARGV[1]
if operation ~= 'send' then
  local key = KEYS[1]
  local value, is_damaged, problem = load(key)
  if problem then return problem end
  local stored = value
  value = value and clean(value)
  local pieces, sum, first, last, least_unit = {}, 0, nil, 0, 65535
  for at = HEAD + 1, value and #value or 0, ENTRY do
    local id, ends, number, slots, unit, waiting = unpack('>c8I6I4I2I2I2', value, at)
    if operation == 'peek' then
      pieces[#pieces + 1] = pack('>c8I2I2I4', id, slots, waiting, ends - now)
    elseif slots > 0 then
      sum, first, last = sum + slots, first and first < ends and first or ends, last > ends and last or ends
      least_unit = least_unit < unit and least_unit or unit
      pieces[#pieces + 1] = pack('>c8I6I4I2I2I2I2I6', id, ends, number, slots, unit, 0, 0, 0)
    end
  end
  if operation == 'peek' then
    return table.concat(pieces)
  elseif first then
    local head = pack('>BI4I6I6I2I2I3', VERSION, sum, first, last, least_unit, 0, 0)
    call('SET', key, head .. table.concat(pieces), 'PX', expiry(last))
  elseif stored or is_damaged then
    call('DEL', key)
  end
  return 1
end

local id, messages, replies = ARGV[2], ARGV[3], ''

local function notify(entry_id, key)
  local name = string.gsub(entry_id, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
  -- The user of the connection may not be allowed to.
  redis.pcall('PUBLISH', ARGV[4] .. name, key)
end

for index = 1, #KEYS do
  local key, state = KEYS[index], FRESH
  local number, run, hold, want, least, waiting, max, unit, asks_again =
    unpack('>I4I2I2I2I2I2I2I2B', messages, (index - 1) * MESSAGE + 1)
  local value, is_damaged, problem = load(key)
  if problem then return problem end
  local is_stored, is_changed, is_cleaned, has_ended = value or is_damaged, is_damaged, false, false
  local sum, first, last, least_unit, waiters = 0, nil, nil, 0, 0
  if is_damaged then
    state = DAMAGED
  elseif value then
    sum, first, last, least_unit, waiters = unpack('>I4I6I6I2I2', value, 2)
    if first <= now or last > now + least_unit * 10 or first > last then
      is_cleaned = true
      value, is_changed, has_ended, sum, first, last, least_unit, waiters = clean(value)
    end
  end
  local old_last = last

  -- The entry of the process.
  local own = value and find(value, id, HEAD + 1, true)
  while own and (own - HEAD - 1) % ENTRY ~= 0 do
    own = find(value, id, own + 1, true)
  end
  local own_slots, own_waiting, own_since = 0, 0, 0
  local others, wanted = value and (#value - HEAD) / ENTRY or 0, want
  if own then
    local own_number
    own_number, own_slots, own_waiting, own_since = unpack('>I4I2xxI2xxI6', value, own + 14)
    others = others - 1
    local lead = (own_number - number) % WRAP
    state = lead < WRAP / 2 and STALE or FRESH
  elseif others >= MAX_ENTRIES then
    -- Calls that run must count. It gets no more, and does not wait.
    state, wanted, waiting = FULL, run, 0
  end

  -- The head of a damaged value may have less.
  local in_use = sum > own_slots and sum - own_slots or 0
  local other_waiters = own_waiting > 0 and waiters > 0 and waiters - 1 or waiters
  local claimants = (wanted > 0 or run > 0) and others + 1 or others
  local share = claimants > 1 and (max - max % claimants) / claimants or max
  local least_share = share > 1 and share or 1
  local room = max > in_use and max - in_use or 0
  local is_fresh, granted = state ~= STALE, 0
  local ahead, others_wait, latest, first_other, is_hungry, floor = 0, 0, now, nil, false, run
  if is_fresh then
    if own then
      floor = own_slots > run and own_slots or run
      floor = hold < floor and hold or floor
    end
    is_hungry = waiting > 0 and floor < least_share
    granted = floor
  end
  if other_waiters > 0 then
    for at = HEAD + 1, #value, ENTRY do
      local ends, _, slots, _, other_waiting, other_least, since = unpack('>I6I4I2I2I2I2I6', value, at + 8)
      if at ~= own and (not first_other or ends < first_other) then first_other = ends end
      if at ~= own and other_waiting > 0 then
        latest = since >= latest and since + 1 or latest
        if slots < least_share then
          others_wait = 1
          if not is_hungry or own_waiting == 0 or since < own_since then
            ahead = ahead + due(slots, other_waiting, other_least, least_share)
          end
        end
      end
    end
  end
  if is_fresh and wanted > floor then
    local part = room - ahead
    part = part < wanted and part or wanted
    if part > floor and part >= least then
      granted = part
    end
  end

  if is_fresh then
    local waits = waiting > 0 and granted < wanted
    local entry
    if granted > 0 or waits then
      local ends = unit * 10
      ends = now + (granted == 0 and ends > MAX_WAIT_MS and MAX_WAIT_MS or ends)
      local missing, since = 0, 0
      if waits then
        missing = waiting < wanted - granted and waiting or wanted - granted
        -- One that got something goes to the end of the line.
        since = own_waiting > 0 and granted <= own_slots and own_since or latest
      end
      entry = id .. pack('>I6I4I2I2I2I2I6', ends, number, granted, unit, missing, waits and least or 0, since)
      if others == 0 then
        first, last, least_unit = ends, ends, unit
      else
        first, last = first < ends and first or ends, last > ends and last or ends
        least_unit = least_unit < unit and least_unit or unit
      end
    end
    sum, waiters = in_use + granted, waits and other_waiters + 1 or other_waiters
    if not entry and others == 0 then
      if is_stored then call('DEL', key) end
    elseif entry or own or is_cleaned then
      local head = pack('>BI4I6I6I2I2I3', VERSION, sum, first, last, least_unit, waiters, 0)
      if is_changed or not value or own and not entry or #value <= MAX_WHOLE_BYTES then
        local body = entry or ''
        if own then
          body = sub(value, HEAD + 1, own - 1) .. body .. sub(value, own + ENTRY)
        elseif value then
          body = sub(value, HEAD + 1) .. body
        end
        call('SET', key, head .. body, 'PX', expiry(last))
      else
        call('SETRANGE', key, '0', head)
        if entry then
          call('SETRANGE', key, string.format('%d', own and own - 1 or #value), entry)
        end
        -- Seldom needed: the expiry is rounded up.
        if last - last % 1000 ~= old_last - old_last % 1000 then
          call('PEXPIRE', key, expiry(last))
        end
      end
    end

    -- Free slots, for those that wait.
    local free = max - sum
    if other_waiters > 0 and free > 0 and (granted < own_slots or has_ended or own_waiting > 0 and not waits) then
      for _, other in ipairs(line(value, own, least_share)) do
        notify(other.id, key)
        free = free - other.due
        if free <= 0 then break end
      end
    end
    -- Those that have more than their share should give some back.
    if waits and granted < least_share and (own_waiting == 0 or asks_again % 2 == 1) then
      for at = HEAD + 1, value and #value or 0, ENTRY do
        if at ~= own and unpack('>I2', value, at + 18) > share then
          notify(sub(value, at, at + 7), key)
        end
      end
    end
  end

  local first_end = NEVER
  if granted < want then
    first_other = first_other or first_end_of_others(value, own)
    first_end = first_other and math.max(first_other - now, 0) or NEVER
  end
  local allow = granted < room and granted or room
  replies = replies
    .. pack('>BI2I2I2BI4I2I4', state, granted, allow, share, others_wait, sum, other_waiters, first_end)
end
return replies

-- Writes that an instance lives, or that it has ended.
--
-- KEYS[1]  the members of its inventory: a sorted set by the time at which each of them ends
-- KEYS[2]  the counts: a hash of inventories, each with its number of members and the end of the last one
-- KEYS[3]  the text of its inventory
-- KEYS[4]  exists while the counts need not be swept
-- KEYS[5]  exists while the members of its inventory need not be counted
-- KEYS[6]  the members of the inventory that it had before, if that is another one
-- ARGV[1]  the milliseconds after which it ends without a further heartbeat
-- ARGV[2]  the digest of its inventory
-- ARGV[3]  its member; empty if it has ended, or only asks
-- ARGV[4]  its member before; empty if it has written none
-- ARGV[5]  the text of its inventory; empty if the store should have it
-- ARGV[6]  the digest of the inventory that it had before, with KEYS[6]
--
-- Reply    1 if the store lacks the text of the inventory, or else 0; then each inventory with its number of members
-- Clock    the server's, by TIME
-- Expiry   of each key, when its last member ends. It is set by the command behind the one that writes
-- Atomic   because a script is. One that is refused in the middle leaves keys that expire
local members, counts, inventory, swept, counted, members_before = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local life, digest, member, member_before, text = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local call, MAX_INVENTORIES, MAX_LIFE = redis.call, 1000, 60000

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stop = string.format('%.0f', now + life)

-- Removes the members that have ended, and writes the number of the others.
local function count(set, of)
  call('ZREMRANGEBYSCORE', set, '-inf', string.format('%.0f', now))
  local number = call('ZCARD', set)
  if number == 0 then
    call('HDEL', counts, of)
  else
    call('HSET', counts, of, number .. ' ' .. stop)
    call('PEXPIRE', counts, life)
  end
end

-- The number of an inventory's members. Nil if they have all ended, and for what no limiter has written.
local function number_of(of, entry)
  local number, ends = string.match(entry, '^(%d+) (%d+)$')
  number, ends = tonumber(number), tonumber(ends)
  if #of == 32 and ends and ends > now and ends <= now + MAX_LIFE and number < 2 ^ 32 then
    return number
  end
end

-- Removes the inventories whose members have all ended, and what no limiter has written. So many as no fleet has are removed
-- together: each limiter that lives writes its own again.
local function sweep()
  if call('HLEN', counts) > MAX_INVENTORIES then
    call('PEXPIRE', counts, 0)
    count(members, digest)
  end
  local entries = call('HGETALL', counts)
  for index = 1, #entries, 2 do
    if not number_of(entries[index], entries[index + 1]) then
      call('HDEL', counts, entries[index])
    end
  end
end

-- The reply, with the inventories whose members have not all ended.
local function reply(lacks_text)
  local found = {lacks_text}
  if call('HLEN', counts) > MAX_INVENTORIES then
    return found
  end
  local entries = call('HGETALL', counts)
  for index = 1, #entries, 2 do
    local number = number_of(entries[index], entries[index + 1])
    if number then
      found[#found + 1] = entries[index]
      found[#found + 1] = number
    end
  end
  return found
end

if member_before == '' then
  -- Commands that change nothing. They fail if the user lacks a permission, before anything is written.
  call('ZREM', members, '')
  call('HDEL', counts, '')
  call('PEXPIRE', members, life)
  call('HLEN', counts)
end
if member_before ~= '' and member_before ~= member or members_before then
  call('ZREM', members_before or members, member_before)
end
if members_before then
  count(members_before, ARGV[6])
end
if member == '' then
  if member_before ~= '' then
    count(members, digest)
  end
  return reply(0)
end

call('ZADD', members, stop, member)
call('PEXPIRE', members, life)
-- A large fleet is counted once in a fifteenth of a life, and with each member that comes or goes.
if call('SET', counted, '', 'NX', 'PX', math.ceil(life / 15)) or member_before == '' or members_before then
  count(members, digest)
end
if call('SET', swept, '', 'NX', 'PX', life) or member_before == '' then
  sweep()
end
if text ~= '' then
  call('SET', inventory, text, 'PX', life)
  return reply(0)
end
return reply(1 - call('PEXPIRE', inventory, life))

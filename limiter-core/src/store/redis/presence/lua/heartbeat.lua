-- Writes that an instance lives, or that it has ended, and replies how many live.
--
-- KEYS[1]  the members of its inventory: a sorted set by the time at which each of them ends
-- KEYS[2]  the counts: a hash of inventories, each with its number of members and the end of the last one
-- KEYS[3]  the summary of the counts, a text: each inventory and its number
-- KEYS[4]  the time of the summary
-- KEYS[5]  the time of the number of its inventory
-- KEYS[6]  the text of its inventory
-- KEYS[7]  the members of the inventory that it had before, if that is another one
-- ARGV[1]  the milliseconds after which it ends without a further heartbeat
-- ARGV[2]  the digest of its inventory
-- ARGV[3]  its member; empty if it has ended, or only asks
-- ARGV[4]  its member before; empty if it has written none
-- ARGV[5]  the text of its inventory; empty if the store should have it
-- ARGV[6]  the digest of the inventory that it had before, with KEYS[7]
--
-- Reply    1 if the store lacks the text of the inventory, or else 0; the summary
-- Clock    the server's, by TIME
-- Expiry   of each key, when its last member ends. It is set by the command behind the one that writes
-- Atomic   because a script is. One that is refused in the middle leaves keys that expire
-- Cost     a large fleet is counted once in a fifteenth of a life, and with each member that comes or goes
local members, counts, summary, summed, counted, inventory, members_before = unpack(KEYS)
local life, digest, member, member_before, text, digest_before = unpack(ARGV)
local call, MAX_INVENTORIES, MAX_ENTRIES, MAX_LIFE = redis.call, 1000, 10000, 60000

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stop = string.format('%.0f', now + life)
local fresh = math.ceil(life / 15)
local is_first = member_before == ''

-- Returns whether the time of a key is no longer new, and sets it to now then.
local function renew(key)
  local at = tonumber(call('GET', key) or '')
  local is_due = not at or at > now or now - at >= fresh
  if is_due then
    call('SET', key, string.format('%.0f', now), 'PX', fresh)
  end
  return is_due
end

-- What most heartbeats of a large fleet do.
local is_counted = false
if member == member_before and not is_first and not members_before and text == '' then
  if call('ZADD', members, stop, member) == 1 then
    call('PEXPIRE', members, life)
  end
  is_counted = renew(counted)
  if is_counted then
    call('PEXPIRE', members, life)
  else
    return {0, call('GET', summary) or ''}
  end
end

-- Removes the members that have ended and those of an end that no limiter writes, and writes the number of the others.
local function count(set, of)
  call('ZREMRANGEBYSCORE', set, '-inf', string.format('%.0f', now))
  call('ZREMRANGEBYSCORE', set, string.format('%.0f', now + MAX_LIFE), '+inf')
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
  ends = tonumber(ends)
  if #of == 32 and ends and ends > now and ends <= now + MAX_LIFE and #number < 7 then
    return number
  end
end

-- Writes and returns the summary. Removes the inventories whose members have all ended, and what no limiter has written. So
-- many as no fleet has are removed together: each limiter that lives writes its own again. Many are summed up as one, of which
-- no limiter knows the rules.
local function sum_up()
  if call('HLEN', counts) > MAX_ENTRIES then
    call('PEXPIRE', counts, 0)
    count(members, digest)
  end
  local words, entries, total = {}, call('HGETALL', counts), 0
  for index = 1, #entries, 2 do
    local number = number_of(entries[index], entries[index + 1])
    if number then
      words[#words + 1] = entries[index] .. ' ' .. number
      total = total + number
    else
      call('HDEL', counts, entries[index])
    end
  end
  if #words > MAX_INVENTORIES then
    words = {string.rep('0', 32) .. ' ' .. string.format('%.0f', total)}
  end
  if #words == 0 then
    call('PEXPIRE', summary, 0)
    return ''
  end
  local found = table.concat(words, ' ')
  call('SET', summary, found, 'PX', life)
  return found
end

if is_first then
  -- Commands that change nothing. They fail if the user lacks a permission, before anything is written. SET and HSET have no
  -- such form.
  call('ZREM', members, '')
  call('ZREMRANGEBYSCORE', members, 1, 0)
  call('ZCARD', members)
  call('HDEL', counts, '')
  call('PEXPIRE', members, life)
  call('HLEN', counts)
  call('GET', summary)
elseif not is_counted then
  call('ZREM', members_before or members, member_before)
end
if members_before then
  count(members_before, digest_before)
end
if member == '' then
  if is_first then
    return {0, call('GET', summary) or ''}
  end
  count(members, digest)
  return {0, sum_up()}
end
if not is_counted then
  call('ZADD', members, stop, member)
  call('PEXPIRE', members, life)
end

count(members, digest)
local lacks_text = 0
if text ~= '' then
  call('SET', inventory, text, 'PX', life)
else
  lacks_text = 1 - call('PEXPIRE', inventory, life)
end
if renew(summed) or is_first or members_before then
  return {lacks_text, sum_up()}
end
return {lacks_text, call('GET', summary) or ''}

-- What `publish.lua` and `restore.lua`, which follow it, have in common: commands that may fail, and the history.
--
-- The version is `number SHA-1:time in µs`, with `:restored` behind it after `restore.lua`, or `number SHA-1` by versions of
-- the limiter without that script. After a failover one number can be that of two texts. An entry of the history is a line
-- `number time in µs, bytes so far, bytes of who, bytes of why`, and behind it who, why and the text.

-- The error of a command. It is the reply as it is: Redis 6.2 would put a text of its own around an error that is raised.
local failure

-- Runs a command. Its error ends the change that `reply_of` runs.
local function call(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    failure = reply
    error('', 0)
  end
  return reply
end

-- The reply of a change, or the error of its command.
local function reply_of(change)
  local is_done, reply = pcall(change)
  if not is_done and not failure then
    error(reply, 0)
  end
  return failure or reply
end

-- The number, the time, the bytes so far and the text of an entry; nothing for a foreign value.
local function parse_entry(entry)
  local header, body = string.match(entry or '', '^([^\n]*)\n(.*)$')
  local number, micros, total, who, why = string.match(header or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  if number then
    return number, micros, tonumber(total), string.sub(body, who + why + 1)
  end
end

-- The bytes of all entries up to and with this one.
local function bytes_so_far(entry)
  local _, _, total = parse_entry(entry)
  return total or 0
end

-- Adds an entry before the newest one. Returns the bytes of all.
local function add_entry(history_key, newest, number, micros, who, why, text)
  local body = who .. why .. text
  local total = bytes_so_far(newest) + #body
  local header = { number, micros, string.format('%.0f', total), #who, #why }
  call('LPUSH', history_key, table.concat(header, ' ') .. '\n' .. body)
  return total
end


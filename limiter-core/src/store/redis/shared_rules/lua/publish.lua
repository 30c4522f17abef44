-- Publishes a text of rules, if the version that the change is based on is still the present one.
--
-- KEYS     the version, the text and the history of the shared rules, in one slot
-- ARGV[1]  the version that the change is based on; 0 if nothing was published
-- ARGV[2]  the text
-- ARGV[3]  who publishes it
-- ARGV[4]  why
-- ARGV[5]  the most entries of the history
-- ARGV[6]  the most bytes of the history
--
-- Reply    { 1, the new version }; { 0, the present version } if it is another one, and nothing is changed; { -1, 0 } if
--          the version is a foreign value
-- Clock    the server's, by TIME
-- Expiry   none: rules are in force until they are replaced
-- Atomic   because a script is. A reader gets version and text by one MGET
local version_key, text_key, history_key = KEYS[1], KEYS[2], KEYS[3]
local based_on, text, who, why = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local max_entries, max_bytes = tonumber(ARGV[5]), tonumber(ARGV[6])

local function publish()
  local present = call('GET', version_key) or '0 -'
  local number = string.match(present, '^(%d+) %S+$')
  if not number then
    return { -1, 0 }
  end
  if number ~= based_on then
    return { 0, number }
  end

  -- Commands that change nothing. They fail if the user lacks a permission, or if there is no memory, before there is an
  -- entry of a text that is not published.
  call('SET', version_key, present, 'XX')
  call('LTRIM', history_key, 0, -1)

  local time = call('TIME')
  local micros = string.format('%.0f', time[1] * 1000000 + time[2])
  local new_number = string.format('%.0f', number + 1)
  local newest = call('LRANGE', history_key, 0, 0)[1]
  local total = add_entry(history_key, newest, new_number, micros, who, why, text)
  call('LTRIM', history_key, 0, max_entries - 1)
  while true do
    local oldest = call('LRANGE', history_key, -1, -1)[1]
    -- The newest entry alone is always within the bound.
    if not oldest or total - bytes_so_far(oldest) + #oldest <= max_bytes then
      break
    end
    call('LTRIM', history_key, 0, -2)
  end
  call('SET', text_key, text)
  call('SET', version_key, new_number .. ' ' .. redis.sha1hex(text) .. ':' .. micros)
  return { 1, new_number }
end

return reply_of(publish)

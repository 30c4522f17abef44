-- Puts back a text of rules that a process has read, after the store has lost it.
--
-- KEYS     the version, the text and the history of the shared rules, in one slot
-- ARGV[1]  the number of the text
-- ARGV[2]  the SHA-1 of the text
-- ARGV[3]  the time of its publication in microseconds; 0 if it is unknown
-- ARGV[4]  the text
--
-- Reply    1 if the text is put back; 0 if the store has another one, or had a newer one, and nothing is changed; -1 if the
--          SHA-1 is not that of the text
-- Clock    none: the time of the publication stays
-- Expiry   none: rules are in force until they are replaced
-- Atomic   because a script is. A publication comes before or after it
--
-- There are two cases alone: the version is missing, and the history has nothing newer; or the present version was put
-- back too, and was published earlier. A published version is never replaced, whatever its number is.
local version_key, text_key, history_key = KEYS[1], KEYS[2], KEYS[3]
local number, digest, micros, text = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local function restore()
  if redis.sha1hex(text) ~= digest then
    return -1
  end
  local present = call('GET', version_key)
  local newest = call('LRANGE', history_key, 0, 0)[1]
  local is_in_history = false
  if newest then
    local newest_number, newest_micros, _, newest_text = parse_entry(newest)
    is_in_history = newest_number == number and newest_text == text
    if is_in_history and micros == '0' then
      micros = newest_micros
    end
    if not present and not is_in_history and (not newest_number or tonumber(newest_micros) > tonumber(micros)) then
      return 0
    end
  end
  if present then
    local present_micros = string.match(present, '^%d+ [^ :]+:(%d+):restored$')
    if not present_micros or tonumber(present_micros) >= tonumber(micros) then
      return 0
    end
  end

  -- It changes nothing, and fails if the user lacks the permission, before there is an entry of a text that is not there.
  call('SET', version_key, present or '', 'XX')

  if not is_in_history then
    add_entry(history_key, newest, number, micros, '', 'put back', text)
  end
  call('SET', text_key, text)
  call('SET', version_key, number .. ' ' .. digest .. ':' .. micros .. ':restored')
  return 1
end

return reply_of(restore)

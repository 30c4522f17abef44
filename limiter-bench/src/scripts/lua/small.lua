-- As little as takes one permit by the sliding window on each of several keys, each value written whole: around it, one
-- thing at a time is changed.
--
-- KEYS     the counts; a key may come again
-- ARGV     as of group.lua, with one kind, of one call and one permit
-- Reply    what `reply` makes of it
-- Clock    the server's own, by TIME
-- Expiry   set by `keep`
-- Atomic   because a script is
local SPARE = 500
local window, limit = tonumber(ARGV[3]), tonumber(ARGV[4])
local latest = {}
for index = 1, #KEYS do
  local key = KEYS[index]
  local value = latest[key] or value_of(index)
  local grants, remaining, retry_at, reset_at, new, dead_at, place = sliding_at_once(value, window, limit, 1, 1)
  if new then
    new = place and string.sub(value, 1, place) .. new or new
    keep(key, new, math.max(dead_at - now_floor, 0) + SPARE, value)
    latest[key] = new
  end
  local retry = retry_at and math.max(retry_at * 1000 - now_micros, 0) or -1
  tell(index, grants, remaining, retry, math.max(reset_at * 1000 - now_micros, 0))
end
return reply()

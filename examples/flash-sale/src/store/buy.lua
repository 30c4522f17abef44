-- Sells one item of a sale to a buyer, if the sale is open, the buyer has none yet, and one is left.
--
-- KEYS[1]  openings: a sorted set of the sales' ids by their opening times in ms
-- KEYS[2]  stock: the number of items that are left
-- KEYS[3]  buyers: a hash of `number request` by the buyer's id
-- KEYS[4]  clubs: a sorted set of the clubs by their packed medals
-- ARGV[1]  the sale's id
-- ARGV[2]  the buyer's id
-- ARGV[3]  the id of the buyer's request, which is the same if the buyer sends the request again; may be empty
-- ARGV[4]  the buyer's club
-- ARGV[5]  the time at which all keys of the sale expire, in ms
-- ARGV[6…15]  the scores of the medals of items whose numbers end in 0 to 9
--
-- Reply    { 1, number } if the item is sold
--          { 2, number, 1 or 0 } if the buyer has an item already: bought by this request, or by another one
--          { 3 } if no item is left
--          { 4, ms } if the sale opens later
--          { 5 } if there is no such sale
-- Clock    the server's, by TIME: the services of a fleet open a sale at the same moment
-- Expiry   of stock and openings by the creator of the sale; of buyers and clubs here, with the first item
-- Atomic   because a script is. Apart, two calls of one buyer could both find no earlier item, and two buyers the last
--          item. The request is kept beside the number, so that a buyer without a reply can send it again
local SOLD, SOLD_BEFORE, SOLD_OUT, NOT_OPEN, NO_SALE = 1, 2, 3, 4, 5
local openings, stock, buyers, clubs = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local sale, buyer, request, club, expires_at = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local FIRST_SCORE = 6

local opens_at, left = redis.call('ZSCORE', openings, sale), redis.call('GET', stock)
if not opens_at or not left then
  return { NO_SALE }
end
local time = redis.call('TIME')
local opens_in = math.ceil(opens_at - time[1] * 1000 - time[2] / 1000)
if opens_in > 0 then
  return { NOT_OPEN, opens_in }
end
local earlier = redis.call('HGET', buyers, buyer)
if earlier then
  local number, by = string.match(earlier, '^(%d+) (.*)$')
  return { SOLD_BEFORE, tonumber(number), by == request and request ~= '' and 1 or 0 }
end
if tonumber(left) < 1 then
  return { SOLD_OUT }
end
local number = redis.call('HLEN', buyers) + 1
redis.call('DECR', stock)
redis.call('HSET', buyers, buyer, number .. ' ' .. request)
redis.call('ZINCRBY', clubs, ARGV[FIRST_SCORE + number % 10], club)
if number == 1 then
  redis.call('PEXPIREAT', buyers, expires_at)
  redis.call('PEXPIREAT', clubs, expires_at)
end
return { SOLD, number }

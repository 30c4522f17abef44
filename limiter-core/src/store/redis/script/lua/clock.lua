-- The server's clock: microseconds, the millisecond that has begun, and the next whole one. Stamps are taken from
-- `now_ceil`, cut-offs from `now_floor`: rounding may deny a little late, and never admits too much.
local time = redis.call('TIME')
local now_micros = time[1] * 1000000 + time[2]
local now_floor, now_ceil = math.floor(now_micros / 1000), math.ceil(now_micros / 1000)

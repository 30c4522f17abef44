-- The server's clock in microseconds, and in milliseconds rounded down and up. Stamps are taken from `now_ceil`,
-- cut-offs from `now_floor`: rounding may deny a little late, but never admits too much.
local time = redis.call('TIME')
local now_micros = time[1] * 1000000 + time[2]
local now_floor, now_ceil = math.floor(now_micros / 1000), math.ceil(now_micros / 1000)

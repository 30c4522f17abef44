-- The server's clock in microseconds, and in milliseconds rounded down and up. Stamps are taken from `now_ceil`,
-- cut-offs from `now_floor`: rounding may deny a little late, but never admits too much.
local time = redis.call('TIME')
local now_micros = time[1] * 1000000 + time[2]
local now_floor = (now_micros - now_micros % 1000) / 1000
local now_ceil = now_micros % 1000 > 0 and now_floor + 1 or now_floor

-- The server's clock: microseconds, the millisecond that has begun, and the next whole one. Stamps are taken from
-- `ceil`, cut-offs from `floor`: rounding may deny a little late, and never admits too much.
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local clock = { micros = micros, floor = math.floor(micros / 1000), ceil = math.ceil(micros / 1000) }

-- No limiter: the floor of every script call.
-- KEYS[1]  ignored
-- ARGV     ignored
-- reply    1
-- clock    none
return 1

-- No limiter: the floor under every script.
-- KEYS[1]  the subject
-- ARGV     window in microseconds, max, a number that no other call has
-- reply    1 allowed, 0 denied
-- clock    the server's is not asked
return 1

-- Tells that a process lives, and how many do. KEYS[1] sorted set: processes by the time until which they count.
-- ARGV: id, seconds for which this one counts. A call that writes shows too that this Redis takes writes.

local now = tonumber(redis.call('TIME')[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[1])
redis.call('EXPIRE', KEYS[1], 3600)
return tostring(redis.call('ZCARD', KEYS[1]))

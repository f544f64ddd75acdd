-- Registers a living process and returns how many there are. KEYS[1] sorted set: processes by expiry.
-- ARGV: id, seconds for which this heartbeat counts. Because it writes, it also shows that Redis accepts writes.

local now = tonumber(redis.call('TIME')[1])
-- The first write must be one that a full Redis refuses: after any other, it lets the rest of a script pass.
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('EXPIRE', KEYS[1], 3600)
return tostring(redis.call('ZCARD', KEYS[1]))

-- Returns what is stored under KEYS[1], or nothing.

return redis.call('GET', KEYS[1]) or ''

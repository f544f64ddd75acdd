-- Adds one day's part of a batch to that day's sums; sending it again has no effect.
-- KEYS: the day's three hashes, the set of days, the batch's marker.
-- ARGV: the day, the marker's time to live in seconds, then repeated: hash (1 to 3), field, number.
if redis.call('EXISTS', KEYS[5]) == 1 then
  return 0
end
-- A full or read-only server rejects this first write, so nothing is ever added in part.
redis.call('SADD', KEYS[4], ARGV[1])
for i = 3, #ARGV, 3 do
  redis.call('HINCRBY', KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 2])
end
redis.call('SET', KEYS[5], '', 'EX', ARGV[2])
return 1

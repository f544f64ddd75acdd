-- Adds one day's part of a batch to the sums of that day, once however often it is sent.
-- KEYS: the day's hash, the set of days, the batch's mark.
-- ARGV: the day, seconds for which the mark is kept, then field and number in turn.
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 0
end
-- A full or read-only server refuses the first write here, so nothing is ever added in part.
redis.call('SADD', KEYS[2], ARGV[1])
for i = 3, #ARGV, 2 do
  redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('SET', KEYS[3], '', 'EX', ARGV[2])
return 1

-- Adds one day's part of a batch to the sums of that day, once however often it is sent.
-- KEYS: the day's three hashes, the set of days, the batch's mark.
-- ARGV: the day, seconds for which the mark is kept, then hash (1 to 3), field and number in turn.
if redis.call('EXISTS', KEYS[5]) == 1 then
  return 0
end
-- A full or read-only server refuses the first write here, so nothing is ever added in part.
redis.call('SADD', KEYS[4], ARGV[1])
for i = 3, #ARGV, 3 do
  redis.call('HINCRBY', KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 2])
end
redis.call('SET', KEYS[5], '', 'EX', ARGV[2])
return 1

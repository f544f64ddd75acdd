-- Adds one day's part of a batch to that day's sums; sending it again has no effect.
-- KEYS: the day's three hashes, the set of days, the batch's marker, when the first call ended.
-- ARGV: the day, the marker's time to live in seconds, when the batch's first call ended (Unix seconds or empty),
-- then repeated: hash (1 to 3), field, number.
if redis.call('EXISTS', KEYS[5]) == 1 then
  return 0
end
-- A full or read-only server rejects the first write, so nothing is ever added in part.
if ARGV[3] ~= '' then
  local first = redis.call('GET', KEYS[6])
  if not first then
    -- A ledger that an earlier version began knows its days only.
    local days = redis.call('SMEMBERS', KEYS[4])
    table.sort(days)
    redis.call('SET', KEYS[6], days[1] or ARGV[3])
  elseif tonumber(first) and tonumber(ARGV[3]) < tonumber(first) then
    redis.call('SET', KEYS[6], ARGV[3])
  end
end
redis.call('SADD', KEYS[4], ARGV[1])
for i = 4, #ARGV, 3 do
  redis.call('HINCRBY', KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 2])
end
redis.call('SET', KEYS[5], '', 'EX', ARGV[2])
return 1

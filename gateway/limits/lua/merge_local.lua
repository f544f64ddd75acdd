-- Enters, once, what a process has admitted on its own. KEYS[4] tells that it was done.
-- ARGV from 7: requests, tokens, net cost, sight, ids of the calls under way. Answers OK or NOTHING, and the mark.

recall()
if not redis.call('SET', KEYS[4], '1', 'NX', 'EX', TWO_DAYS) then
  return answer(NOTHING, 0, 0)
end
restore(ARGV[10])
take(requests, tonumber(ARGV[7]))
take(tokens, tonumber(ARGV[8]))
store_meters()
spend(tonumber(ARGV[9]))
for place = 11, #ARGV do
  hold(ARGV[place])
end
keep_places()
return answer(OK, 0, tokens.taken)

-- Adds, once, what a process admitted in a local fallback. KEYS[4] marks the merge as done.
-- ARGV from 7: requests, tokens, net cost, snapshot, ids of the unsettled calls. Replies OK or NOTHING, and the mark.

load_state()
if not redis.call('SET', KEYS[4], '1', 'NX', 'EX', TWO_DAYS) then
  return reply(NOTHING, 0, 0)
end
restore(ARGV[10])
take(requests, tonumber(ARGV[7]))
take(tokens, tonumber(ARGV[8]))
store_meters()
spend(tonumber(ARGV[9]))
for index = 11, #ARGV do
  hold(ARGV[index])
end
extend_expiry()
return reply(OK, 0, tokens.taken)

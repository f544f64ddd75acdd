-- Settles a reservation, once. ARGV from 7: id, tokens used, tokens reserved, mark, cost, cost reserved.
-- Replies OK, or NOTHING if there is nothing to settle.

local used, reserved, mark = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])

load_state()
if redis.call('ZREM', KEYS[2], ARGV[7]) == 0 then
  return reply(NOTHING, 0, 0)
end
if used > reserved then
  take(tokens, used - reserved)
else
  give_back(tokens, reserved - used, mark)
end
store_meters()
spend(ARGV[11] - ARGV[12])
return reply(OK, 0, 0)

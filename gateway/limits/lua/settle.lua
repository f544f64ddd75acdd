-- Settles reservations, each once. ARGV from 7, for each: id, tokens used, tokens reserved, mark, cost, cost reserved.
-- Replies OK, or NOTHING if there is nothing to settle.

load_state()
local code, cost = NOTHING, 0
for index = 7, #ARGV, 6 do
  if redis.call('ZREM', KEYS[2], ARGV[index]) == 1 then
    local used, reserved = tonumber(ARGV[index + 1]), tonumber(ARGV[index + 2])
    if used > reserved then
      take(tokens, used - reserved)
    else
      give_back(tokens, reserved - used, tonumber(ARGV[index + 3]))
    end
    code = OK
    spend(ARGV[index + 4] - ARGV[index + 5])
  end
end
if code == OK then
  store_meters()
end
return reply(code, 0, 0)

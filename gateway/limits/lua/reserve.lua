-- Takes all that a call may use, or nothing. ARGV from 7: id, wait for a place, firm, guess, cost (empty: it is
-- free, and no budget is asked), sight.
-- Answers OK, tokens, mark; or the limit that denies, and the wait.

local id, place_wait = ARGV[7], tonumber(ARGV[8])
local firm, guess, cost = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])

recall()
restore(ARGV[12])

if tokens.unit and firm > tokens.limit then
  return answer(TOO_LARGE, math.huge, 0)
end
if budget and cost and (spent >= budget or spent + cost > budget) then
  return answer(USD_PER_DAY, math.huge, 0)
end
local limit, longest = OK, 0
if concurrency and redis.call('ZCOUNT', KEYS[2], '(' .. string.format('%.17g', now), '+inf') >= concurrency then
  limit, longest = CONCURRENCY, place_wait
end
-- Who wants no tokens need not wait for a debt of them to be paid.
local request_wait, token_wait = wait(requests, 1), firm + guess > 0 and wait(tokens, firm) or 0
if request_wait > longest then
  limit, longest = RPM, request_wait
end
if token_wait > longest then
  limit, longest = TPM, token_wait
end
if limit ~= OK then
  return answer(limit, longest, 0)
end

local reserved = 0
if tokens.unit then
  local left = math.max(0, (tokens.full - math.max(0, tokens.tat - now)) / tokens.unit)
  reserved = firm + math.min(guess, math.floor(math.max(0, left - firm)))
end
take(requests, 1)
take(tokens, reserved)
store_meters()
spend(cost or 0)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - LATE)
hold(id)
keep_places()
return answer(OK, reserved, tokens.taken)

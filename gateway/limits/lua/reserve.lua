-- Reserves all that a call may use, or nothing. ARGV from 7: id, wait for a slot, committed tokens, expected tokens,
-- cost (empty: the call is free and needs no budget), snapshot.
-- Replies OK, tokens and mark; or the limit that denies, and the wait.

local id, slot_wait = ARGV[7], tonumber(ARGV[8])
local committed, expected, cost = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])

load_state()
restore(ARGV[12])

if tokens.unit and committed > tokens.limit then
  return reply(TOO_LARGE, math.huge, 0)
end
if budget and cost and (spent >= budget or spent + cost > budget) then
  return reply(USD_PER_DAY, math.huge, 0)
end
local limit, longest = OK, 0
if concurrency and redis.call('ZCOUNT', KEYS[2], '(' .. string.format('%.17g', now), '+inf') >= concurrency then
  limit, longest = CONCURRENCY, slot_wait
end
-- A call without tokens need not wait until a debt of tokens is paid.
local request_wait, token_wait = wait(requests, 1), committed + expected > 0 and wait(tokens, committed) or 0
if request_wait > longest then
  limit, longest = RPM, request_wait
end
if token_wait > longest then
  limit, longest = TPM, token_wait
end
if limit ~= OK then
  return reply(limit, longest, 0)
end

local reserved = 0
if tokens.unit then
  local left = math.max(0, (tokens.full - math.max(0, tokens.tat - now)) / tokens.unit)
  reserved = committed + math.min(expected, math.floor(math.max(0, left - committed)))
end
take(requests, 1)
take(tokens, reserved)
store_meters()
spend(cost or 0)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - LATE)
hold(id)
extend_expiry()
return reply(OK, reserved, tokens.taken)

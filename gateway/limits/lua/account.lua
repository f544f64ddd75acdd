-- What the scripts of one key share: each is this text followed by its own, and runs as one atomic step.
--
-- KEYS[1] string: the time, and of each meter (requests, tokens) its theoretical arrival time and all it ever took
-- KEYS[2] sorted set: the reservations under way, by the end of their lease
-- KEYS[3] string: the nano-dollars of one day: spent (reserved ones included), and all that was ever reserved
-- ARGV    lease, rpm, tpm, concurrency, usd_per_day (empty: no limit); time (empty: Redis's own)
--
-- The arithmetic is that of policy/rate_limit.py and policy/account.py, operation by operation. Numbers are kept
-- and answered as doubles: that is exact, and half the time of a script would go into their text otherwise.

local EPOCH = 1767225600 -- seconds since then keep nanoseconds in a double
local SLACK = 1e-6
local KEEP = 86400 -- a meter that has been empty for so long is forgotten: no call under way has its mark from before
local TWO_DAYS = 172800
local LATE = 600 -- so long after its lease a reservation has no place any more, but may still be settled

local OK, RPM, TPM, CONCURRENCY, USD_PER_DAY, TOO_LARGE, NOTHING = 0, 1, 2, 3, 4, 5, 6

local lease, concurrency, budget = tonumber(ARGV[1]), tonumber(ARGV[4]), tonumber(ARGV[5])
local now = tonumber(ARGV[6])
if not now then
  local time = redis.call('TIME')
  now = time[1] - EPOCH + time[2] / 1000000
end

local function meter(limit)
  local unit = limit and 60 / limit
  return { limit = limit, unit = unit, full = limit and limit * unit, tat = 0, taken = 0 }
end

local requests, tokens = meter(tonumber(ARGV[2])), meter(tonumber(ARGV[3]))
local spent, gross = 0, 0

local function store_meters()
  if requests.unit or tokens.unit then
    local left = math.max(requests.tat - now, tokens.tat - now, 0)
    redis.call('SET', KEYS[1], struct.pack('<ddddd', now, requests.tat, requests.taken, tokens.tat, tokens.taken),
      'EX', math.ceil(left) + KEEP)
  end
end

local function spend(amount)
  if budget then
    spent, gross = spent + amount, gross + math.max(0, amount)
    redis.call('SET', KEYS[3], struct.pack('<dd', spent, gross), 'EX', TWO_DAYS)
  end
end

local function recall()
  local found = redis.call('GET', KEYS[1])
  if found and #found == 40 then
    local at
    at, requests.tat, requests.taken, tokens.tat, tokens.taken = struct.unpack('<ddddd', found)
    if at > now then -- a clock that was set back must not lock the key for as long
      requests.tat, tokens.tat = requests.tat - (at - now), tokens.tat - (at - now)
      store_meters()
    end
  end
  found = budget and redis.call('GET', KEYS[3])
  if found and #found == 16 then
    spent, gross = struct.unpack('<dd', found)
  end
end

local function restore_meter(one, tat, taken)
  if one.unit and taken > one.taken then
    one.tat, one.taken = math.max(one.tat, math.min(tat, now + one.full)), taken
  end
end

-- What was ever taken only grows: a Redis that knows of less than the caller has seen has lost writes.
local function restore(sight)
  local _, requests_tat, requests_taken, tokens_tat, tokens_taken, seen, seen_gross = struct.unpack('<ddddddd', sight)
  restore_meter(requests, requests_tat, requests_taken)
  restore_meter(tokens, tokens_tat, tokens_taken)
  if budget and seen_gross > gross then
    spent, gross = math.max(spent, seen), seen_gross
  end
end

local function wait(one, units)
  if not one.unit then
    return 0
  end
  local cost = units * one.unit
  if cost > one.full + SLACK then
    return math.huge
  end
  local early = math.max(one.tat, now) + cost - now - one.full
  return early > SLACK and early or 0
end

local function take(one, units)
  if one.unit then
    one.tat = math.max(one.tat, now) + units * one.unit
    one.taken = one.taken + units
  end
end

-- What was taken after the mark stays in; a sum below the mark says that the take itself was lost.
local function give_back(one, unused, mark)
  if one.unit and mark <= one.taken then
    local refund = math.min(unused, math.max(0, one.tat - now) / one.unit - (one.taken - mark))
    if refund > 0 then
      one.tat = one.tat - refund * one.unit
    end
  end
end

local function hold(id)
  redis.call('ZADD', KEYS[2], now + lease, id)
end

local function keep_places()
  redis.call('EXPIRE', KEYS[2], math.ceil(lease) + LATE)
end

-- What became of it, two numbers that belong to it, and the sight that the caller brings next time.
local function answer(code, amount, mark)
  return struct.pack('<dddddddddd', code, amount, mark, now, requests.tat, requests.taken, tokens.tat, tokens.taken,
    spent, gross)
end

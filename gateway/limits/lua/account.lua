-- The common part of a key's scripts: each is this text followed by its own, and runs atomically.
--
-- KEYS[1] string: the time, and for each meter (requests, tokens) its theoretical arrival time and total ever taken
-- KEYS[2] sorted set: unsettled reservations by the end of their lease
-- KEYS[3] string: nano-dollars of one day: spent (reserved ones included), and the total ever reserved
-- ARGV    lease, rpm, tpm, concurrency, usd_per_day (empty: no limit); time (empty: Redis's own)
--
-- The arithmetic is that of gcra.py and account.py, operation by operation. Numbers are stored and returned as
-- doubles: that is exact, and formatting them as text would take half of a script's time.

local EPOCH = 1767225600 -- counted from here, a double still resolves nanoseconds
local SLACK = 1e-6
local EXPIRY = 86400 -- seconds; an empty meter expires after these, when no unsettled call can have a mark in it
local TWO_DAYS = 172800
local LATE = 600 -- seconds after its lease for which a reservation holds no slot, but may still be settled

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
      'EX', math.ceil(left) + EXPIRY)
  end
end

local function spend(amount)
  if budget then
    spent, gross = spent + amount, gross + math.max(0, amount)
    redis.call('SET', KEYS[3], struct.pack('<dd', spent, gross), 'EX', TWO_DAYS)
  end
end

local function load_state()
  local packed = redis.call('GET', KEYS[1])
  if packed and #packed == 40 then
    local at
    at, requests.tat, requests.taken, tokens.tat, tokens.taken = struct.unpack('<ddddd', packed)
    if at > now then -- a clock that was set back must not block the key until it catches up
      requests.tat, tokens.tat = requests.tat - (at - now), tokens.tat - (at - now)
      store_meters()
    end
  end
  packed = budget and redis.call('GET', KEYS[3])
  if packed and #packed == 16 then
    spent, gross = struct.unpack('<dd', packed)
  end
end

local function restore_meter(bucket, tat, taken)
  if bucket.unit and taken > bucket.taken then
    bucket.tat, bucket.taken = math.max(bucket.tat, math.min(tat, now + bucket.full)), taken
  end
end

-- Totals only grow: if Redis has less than the caller has seen, Redis has lost writes.
local function restore(snapshot)
  local _, requests_tat, requests_taken, tokens_tat, tokens_taken, seen_spent, seen_gross =
    struct.unpack('<ddddddd', snapshot)
  restore_meter(requests, requests_tat, requests_taken)
  restore_meter(tokens, tokens_tat, tokens_taken)
  if budget and seen_gross > gross then
    spent, gross = math.max(spent, seen_spent), seen_gross
  end
end

local function wait(bucket, units)
  if not bucket.unit then
    return 0
  end
  local cost = units * bucket.unit
  if cost > bucket.full + SLACK then
    return math.huge
  end
  local early = math.max(bucket.tat, now) + cost - now - bucket.full
  return early > SLACK and early or 0
end

local function take(bucket, units)
  if bucket.unit then
    bucket.tat = math.max(bucket.tat, now) + units * bucket.unit
    bucket.taken = bucket.taken + units
  end
end

-- Units taken after the mark stay in; a total below the mark shows that the take itself was lost.
local function give_back(bucket, unused, mark)
  if bucket.unit and mark <= bucket.taken then
    local refund = math.min(unused, math.max(0, bucket.tat - now) / bucket.unit - (bucket.taken - mark))
    if refund > 0 then
      bucket.tat = bucket.tat - refund * bucket.unit
    end
  end
end

local function hold(id)
  redis.call('ZADD', KEYS[2], now + lease, id)
end

local function extend_expiry()
  redis.call('EXPIRE', KEYS[2], math.ceil(lease) + LATE)
end

-- The code, its two numbers, and the snapshot that the caller sends back next time.
local function reply(code, amount, mark)
  return struct.pack('<dddddddddd', code, amount, mark, now, requests.tat, requests.taken, tokens.tat, tokens.taken,
    spent, gross)
end

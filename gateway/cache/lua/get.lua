-- Returns the answers stored under KEYS: for each its length in four bytes (0: none), then the answer.
-- ARGV[1]: the most bytes of all answers together (empty: all). Of an answer beyond it only the length is returned,
-- with the highest bit set: it takes time by its size, and the caller asks for it again.

local LEFT_OUT = 2147483648
local left, answers = tonumber(ARGV[1]) or math.huge, {}
for index, key in ipairs(KEYS) do
  local size = redis.pcall('STRLEN', key)
  if type(size) ~= 'number' then -- a key of another kind, which is not ours
    size = 0
  end
  if size > left then
    answers[index] = struct.pack('>I4', LEFT_OUT + size)
  else
    left = left - size
    local answer = size > 0 and redis.call('GET', key) or ''
    answers[index] = struct.pack('>I4', #answer) .. answer
  end
end
return table.concat(answers)

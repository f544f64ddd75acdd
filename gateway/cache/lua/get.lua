-- Returns the answers stored under KEYS: for each its length in four bytes (0: none), then the answer.

local answers = {}
for index, answer in ipairs(redis.call('MGET', unpack(KEYS))) do
  answer = answer or ''
  answers[index] = struct.pack('>I4', #answer) .. answer
end
return table.concat(answers)

-- Answers that are kept under KEYS: for each its length in four bytes (0: none) and then the answer itself.

local found = {}
for place, answer in ipairs(redis.call('MGET', unpack(KEYS))) do
  answer = answer or ''
  found[place] = struct.pack('>I4', #answer) .. answer
end
return table.concat(found)

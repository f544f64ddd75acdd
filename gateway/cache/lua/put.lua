-- Keeps an answer under each of KEYS. ARGV: milliseconds for which they are kept, then the answers.

for place, key in ipairs(KEYS) do
  redis.call('SET', key, ARGV[place + 1], 'PX', ARGV[1])
end
return 'ok'

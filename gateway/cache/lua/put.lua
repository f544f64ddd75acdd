-- Stores one answer under each of KEYS. ARGV: time to live in milliseconds, then the answers.

for index, key in ipairs(KEYS) do
  redis.call('SET', key, ARGV[index + 1], 'PX', ARGV[1])
end
return 'ok'

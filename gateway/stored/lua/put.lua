-- Stores ARGV[2] under KEYS[1] for ARGV[1] milliseconds; an empty text deletes it.

if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[1])
end
return 'ok'

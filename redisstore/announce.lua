-- announce records that a gateway lives, and removes gateways that were not announced for three
-- seconds. It returns how many are left, and the moment in microseconds. The set has the gateways by
-- the moment of their last announcement. A gateway with a minus in front no longer lives; an empty one
-- is not counted.
local function announce(set, gateway)
  local t = redis.call('TIME')
  local now = t[1] * 1000000 + t[2]
  if gateway:sub(1, 1) == '-' then
    redis.call('ZREM', set, gateway:sub(2))
  elseif gateway ~= '' then
    redis.call('ZADD', set, string.format('%.0f', now), gateway)
  end
  redis.call('ZREMRANGEBYSCORE', set, '-inf', string.format('(%.0f', now - 3000000))
  redis.call('ZREMRANGEBYSCORE', set, string.format('(%.0f', now), '+inf') -- the clock was set back
  redis.call('PEXPIRE', set, 3000)
  return redis.call('ZCARD', set), now
end

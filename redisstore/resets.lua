-- The resets of the last minute. Each gateway reads at every heartbeat those that are new to it.
-- A member of the sorted set says what was reset, see resets.go. Its score is the moment in
-- microseconds, and is higher than every earlier score.
local resets_live, most_resets = 60000, 10000 -- milliseconds, members

local function newest_reset(set)
  return tonumber(redis.call('ZRANGE', set, -1, -1, 'WITHSCORES')[2] or 0)
end

local function note_reset(set, member)
  local t = redis.call('TIME')
  local moment = math.max(t[1] * 1000000 + t[2], newest_reset(set) + 1)
  redis.call('ZADD', set, string.format('%.0f', moment), member)
  redis.call('ZREMRANGEBYSCORE', set, '-inf', string.format('(%.0f', moment - resets_live * 1000))
  redis.call('ZREMRANGEBYRANK', set, 0, -1 - most_resets)
  redis.call('PEXPIRE', set, resets_live)
end

-- resets_since returns the newest score, and the members above the score since with their
-- scores. A newest score below since means that Redis has lost the set.
local function resets_since(set, since)
  local newest = newest_reset(set)
  if newest < since then since = 0 end
  if newest == since then return newest, {} end
  return newest, redis.call('ZRANGEBYSCORE', set, string.format('(%.0f', since), '+inf', 'WITHSCORES')
end

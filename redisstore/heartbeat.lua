-- A heartbeat of a gateway. It needs announce.lua and resets.lua.
--
-- KEYS  the set of gateways, the set of resets
-- ARGV  this gateway, as for announce, and the newest reset that it knows
--
-- Returns an array of strings: how many gateways live, the newest reset, and for each reset
-- that the gateway does not know its member and its score.
local gateway, since = ARGV[1]:match('^(-?%d*) (%d+)$')
local newest, resets = resets_since(KEYS[2], tonumber(since))
local answer = {tostring(announce(KEYS[1], gateway)), string.format('%.0f', newest)}
for i = 1, #resets do answer[i + 2] = resets[i] end
return answer

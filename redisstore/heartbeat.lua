-- A heartbeat of a gateway. It needs announce.lua, resets.lua and minutes.lua.
--
-- KEYS  the set of gateways, the set of resets, and the minutes
-- ARGV  this gateway, the newest reset that it knows, its number, known and text.
--
-- announce explains the form of this gateway; report_minutes explains the minutes, known and text.
--
-- Returns an array of strings: how many gateways live, the moment in microseconds, what report_minutes
-- returns, its error or '', and the newest reset. Each reset that the gateway does not know follows with
-- its score.
local gateway, since, number, known, text = ARGV[1]:match('^(-?%d*) (%d+) (%d+) (%d)(.*)$')
local newest, resets = resets_since(KEYS[2], tonumber(since))
local alive, now = announce(KEYS[1], gateway)
-- Limits matter more than counts. So a heartbeat is good without them, for example for a user of Redis
-- who may not write hashes.
local added, report = pcall(report_minutes, number, known, text)
local failure = ''
if not added then
  report, failure = '0', type(report) == 'table' and report.err or tostring(report)
end
local answer = {tostring(alive), string.format('%.0f', now), report, failure, string.format('%.0f', newest)}
for i = 1, #resets do answer[i + 5] = resets[i] end
return answer

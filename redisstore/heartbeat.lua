-- A heartbeat of a gateway. It needs announce.lua, receipts.lua, resets.lua and minutes.lua.
--
-- KEYS  the set of gateways, the set of resets, the epoch, the number of tags, and the minutes.
-- ARGV  this gateway, the newest reset that it knows, its number of tags, its number, known and text:
--       announce explains the form of this gateway, and report_minutes known and text.
--
-- Returns an array of strings:
--   how many gateways live
--   the moment in microseconds
--   what report_minutes returns, and its error or ''
--   the newest reset
--   the epoch
--   the number of tags of another gateway, or 0 if it has the same number
--   each reset that the gateway does not know, with its score
local tags_live = 10000 -- milliseconds

local gateway, since, tags, number, known, text = ARGV[1]:match('^(-?%d*) (%d+) (%d+) (%d+) (%d)(.*)$')
local others = tags ~= '1' and redis.call('GET', KEYS[4]) -- one tag: it is no Cluster
if not others or others == tags then
  if tags ~= '1' then redis.call('SET', KEYS[4], tags, 'PX', tags_live) end
  others = '0'
end
local newest, resets = resets_since(KEYS[2], tonumber(since))
local alive, now = announce(KEYS[1], gateway)
-- Limits matter more than counts. So a heartbeat is good without them, for example for a user of Redis
-- who may not write hashes.
local added, report = pcall(report_minutes, number, known, text)
local failure = ''
if not added then
  report, failure = '0', type(report) == 'table' and report.err or tostring(report)
end
local answer = {tostring(alive), string.format('%.0f', now), report, failure, string.format('%.0f', newest),
  string.format('%.0f', read_epoch(KEYS[3])), others}
for i = 1, #resets do answer[i + 7] = resets[i] end
return answer

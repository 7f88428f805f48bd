-- Asks which calls were carried out, and sets a fence after them: Redis refuses any of them
-- that arrives later. It needs receipts.lua and announce.lua.
--
-- KEYS  the set of gateways, the receipts, the epoch
-- ARGV  this gateway, as for announce; the number of its newest call; the newest call or fence that
--       Redis has confirmed; and the epoch that it knows
--
-- Returns an array as MessagePack: how many gateways live; 1, or 0 if Redis has forgotten what it had
-- confirmed; the epoch; and the receipts, whose bits have no sign. The epoch is a new one if nobody else
-- has noticed the loss. If Redis has forgotten, there is no fence yet, because this answer may get lost, and the
-- gateway must learn of it.
local gateway, number, known, epoch = ARGV[1]:match('^(-?%d*) (%d+) (%d+) (%d+)$')
number, known, epoch = tonumber(number), tonumber(known), tonumber(epoch)
local gateways, now = announce(KEYS[1], gateway)
local text = read_receipts(KEYS[2])
local r = {struct.unpack('<ddddddddddd', text)}
local newest = read_epoch(KEYS[3])
-- A second loss may come before this gateway has a receipt to miss. Then the epoch is missing before its time: in
-- microseconds, half of the time that it lives.
local remembers = math.max(r[1], r[3]) >= known and (newest >= epoch or now > epoch + receipts_live * 500)
if remembers then
  r[3] = math.max(r[3], number)
  text = text:sub(1, 16) .. struct.pack('<d', r[3]) .. text:sub(25)
  redis.call('SET', KEYS[2], text, 'PX', receipts_live)
elseif newest <= epoch then
  newest = math.max(now, epoch + 1)
  redis.call('SET', KEYS[3], struct.pack('<d', newest), 'PX', receipts_live)
end
r[2] = r[2] % 4294967296
return cmsgpack.pack({gateways, remembers and 1 or 0, newest, unpack(r, 1, 11)})

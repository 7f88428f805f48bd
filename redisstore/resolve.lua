-- Asks which calls were carried out, and sets a fence after them: Redis refuses any of them
-- that arrives later. It needs receipts.lua and announce.lua.
--
-- KEYS  the set of gateways, the receipts
-- ARGV  this gateway, as for announce; the number of its newest call; and the newest call or fence
--       that Redis has confirmed
--
-- Returns an array as MessagePack: how many gateways live; 1, or 0 if Redis has forgotten what it had
-- confirmed; and the receipts, whose bits have no sign. If Redis has forgotten, there is no fence yet,
-- because this answer may get lost, and the gateway must learn of it.
local gateway, number, known = ARGV[1]:match('^(-?%d*) (%d+) (%d+)$')
number, known = tonumber(number), tonumber(known)
local gateways = announce(KEYS[1], gateway)
local r = read_receipts(KEYS[2])
local remembers = math.max(r[1], r[3]) >= known
if remembers then
  r[3] = math.max(r[3], number)
  keep_receipts(KEYS[2], r)
end
r[2] = r[2] % 4294967296
return cmsgpack.pack({gateways, remembers and 1 or 0, unpack(r, 1, 11)})

-- Asks which calls were carried out, and sets the fence after them: Redis refuses any of them
-- that arrives later. It needs receipts.lua and announce.lua.
--
-- KEYS  the set of gateways, the receipts
-- ARGV  this gateway, as for announce; the number of this call; and that of the newest call
--       that Redis has confirmed
--
-- Returns an array as MessagePack: how many gateways live, the last call before this one that
-- was carried out, and its 32 bits without a sign. If Redis has forgotten the confirmed call,
-- the receipts stay as they are: the answer may get lost, and the gateway must learn of it.
local gateway, number, known = ARGV[1]:match('^(-?%d*) (%d+) (%d+)$')
number, known = tonumber(number), tonumber(known)
local gateways = announce(KEYS[1], gateway)
local last, bits, fence = read_receipts(KEYS[2])
if last >= known then
  write_receipt(KEYS[2], number, last, bits, math.max(fence, number))
end
return cmsgpack.pack({gateways, last, bits % 4294967296})

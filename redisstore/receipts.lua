-- The receipts of one gateway and batcher: which of its latest calls Redis has carried out, and when.
-- See receipts.go. The driver and resolve.lua need this text.
--
-- They are an array of numbers:
--   1     last: the last call that was carried out
--   2     bits: of 32 bits, bit i is set if the call i before the last was carried out
--   3     fence: a call whose number is not above it arrives too late and must change nothing
--   4 on  the moments of the latest 8 calls, that of a call at 4 + its number modulo 8
local receipts_live = 3600000 -- milliseconds
local receipts_form = '<ddddddddddd'

local function read_receipts(key)
  local value = redis.call('GET', key)
  if not value or #value ~= 88 then return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} end
  return {struct.unpack(receipts_form, value)}
end

local function keep_receipts(key, r)
  redis.call('SET', key, struct.pack(receipts_form, unpack(r, 1, 11)), 'PX', receipts_live)
end

local function write_receipt(key, r, number, moment)
  local ahead = number - r[1]
  if ahead > 31 then
    r[1], r[2] = number, 1
  elseif ahead > 0 then
    r[1], r[2] = number, bit.bor(bit.lshift(r[2], ahead), 1)
  elseif ahead > -32 then
    r[2] = bit.bor(r[2], bit.lshift(1, -ahead))
  end
  if ahead > -8 then r[4 + number % 8] = moment end
  keep_receipts(key, r)
end

-- The receipts of one gateway and batcher: which of its latest calls Redis has carried out. See
-- receipts.go. The driver and resolve.lua need this text.
--
-- The value has three numbers:
--   last   the last call that was carried out
--   bits   32 bits; bit i is set if the call i before the last was carried out
--   fence  a call whose number is not above it arrives too late and must change nothing
local receipts_live = 3600000 -- milliseconds

local function read_receipts(key)
  local value = redis.call('GET', key)
  if not value or #value ~= 24 then return 0, 0, 0 end
  return struct.unpack('<ddd', value)
end

local function write_receipt(key, number, last, bits, fence)
  local ahead = number - last
  if ahead > 31 then
    last, bits = number, 1
  elseif ahead > 0 then
    last, bits = number, bit.bor(bit.lshift(bits, ahead), 1)
  elseif ahead > -32 then
    bits = bit.bor(bits, bit.lshift(1, -ahead))
  end
  redis.call('SET', key, struct.pack('<ddd', last, bits, fence), 'PX', receipts_live)
end

-- The receipts of one gateway and batcher: which of its latest calls Redis has carried out, and when.
-- See receipts.go. The driver and resolve.lua need this text.
--
-- They are numbers, as doubles:
--   1     last: the last call that was carried out
--   2     bits: of 32 bits, bit i is set if the call i before the last was carried out
--   3     fence: a call whose number is not above it arrives too late and must change nothing
--   4 on  the moments of the latest 8 calls, that of a call at 4 + its number modulo 8
local receipts_live = 3600000 -- milliseconds

local function read_receipts(key)
  local r = redis.call('GET', key)
  if not r or #r ~= 88 then return ('\0'):rep(88) end
  return r
end

-- The epoch is the moment at which a gateway noticed that Redis had lost counters of the batcher's tag, or 0.
local function read_epoch(key)
  local value = redis.call('GET', key)
  if not value or #value ~= 8 then return 0 end
  return (struct.unpack('<d', value))
end

-- admit writes the receipt of a call that changes something. Instead it returns an error if the call must change
-- nothing. It also returns the epoch.
local function admit(number, known, epoch, now)
  local key, newest = KEYS[#KEYS], read_epoch(KEYS[#KEYS - 1])
  local r = read_receipts(key)
  local last, bits, fence = struct.unpack('<ddd', r)
  if number <= fence then return redis.error_reply('LATE the gateway no longer waits for this call') end
  if last < known and fence < known then
    return redis.error_reply('FORGOT Redis has lost a call that it had confirmed')
  end
  if newest > epoch then
    return redis.error_reply('FORGOT another gateway has noticed that Redis has lost counters')
  end
  local ahead, at = number - last, 24 + number % 8 * 8
  if ahead > 31 then
    last, bits = number, 1
  elseif ahead > 0 then
    last, bits = number, bit.bor(bit.lshift(bits, ahead), 1)
  elseif ahead > -32 then
    bits = bit.bor(bits, bit.lshift(1, -ahead))
  end
  if ahead > -8 then r = r:sub(1, at) .. struct.pack('<d', now) .. r:sub(at + 9) end
  redis.call('SET', key, struct.pack('<ddd', last, bits, fence) .. r:sub(25), 'PX', receipts_live)
  return nil, newest
end

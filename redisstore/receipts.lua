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
--
-- It writes only the beginning of the receipts while they have long to live. That is so after a call in the same group of
-- 8 numbers, less than ten seconds ago. So they are written as a whole, with a new time to live, at least every 80
-- seconds. It is also done for a user of Redis without the right to SETRANGE.
local function admit(number, known, epoch, now)
  local key, call = KEYS[#KEYS], redis.call
  local newest, r = call('GET', KEYS[#KEYS - 1]), call('GET', key)
  newest = newest and #newest == 8 and struct.unpack('<d', newest) or 0
  if not r or #r ~= 88 then r = ('\0'):rep(88) end
  local last, bits, fence = struct.unpack('<ddd', r)
  if number <= fence then return redis.error_reply('LATE the gateway no longer waits for this call') end
  if last < known and fence < known then
    return redis.error_reply('FORGOT Redis has lost a call that it had confirmed')
  end
  if newest > epoch then
    return redis.error_reply('FORGOT another gateway has noticed that Redis has lost counters')
  end
  local ahead, at = number - last, number % 8
  if ahead == 1 and at > 0 then
    bits = bits * 2 % 4294967296 + 1
    local head = struct.pack('<ddd', number, bits, fence) .. r:sub(25, 24 + 8 * at) .. struct.pack('<d', now)
    if now - struct.unpack('<d', r, 17 + 8 * at) < 10000000 and type(redis.pcall('SETRANGE', key, '0', head)) == 'number' then
      return nil, newest
    end
    r = head .. r:sub(#head + 1)
  else
    if ahead > 31 then
      last, bits = number, 1
    elseif ahead > 0 then
      last, bits = number, bit.bor(bit.lshift(bits, ahead), 1)
    elseif ahead > -32 then
      bits = bit.bor(bits, bit.lshift(1, -ahead))
    end
    if ahead > -8 then r = r:sub(1, 24 + 8 * at) .. struct.pack('<d', now) .. r:sub(33 + 8 * at) end
    r = struct.pack('<ddd', last, bits, fence) .. r:sub(25)
  end
  call('SET', key, r, 'PX', receipts_live)
  return nil, newest
end

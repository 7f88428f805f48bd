local limit, unit, most = struct.unpack('<i7i7i7', ARGV[1], from)
local log = value or struct.pack('<I7I4', 84, 0)
local count = #log / 11 - 1
local mark, before = 0, 0
if count >= 0 and count % 1 == 0 then mark, before = struct.unpack('<I7I4', log) end
if mark == 84 then
  -- The moments that are gone, of which there are few if calls are frequent.
  local gone, alive = 0, 1
  while alive <= count and struct.unpack('<I7', log, 11 * alive + 1) <= now - unit do gone, alive = alive, 2 * alive end
  alive = math.min(alive - 1, count)
  while gone < alive do
    local mid = math.floor((gone + alive) / 2)
    if struct.unpack('<I7', log, 11 * mid + 12) <= now - unit then gone = mid + 1 else alive = mid end
  end
  if gone > 0 then before = struct.unpack('<I4', log, 11 * gone + 8) end
  local newest, total = struct.unpack('<I7I4', log, 11 * count + 1)
  used = (total - before) % 4294967296
  left, reset = limit - used, unit
  if gone < count then reset = struct.unpack('<I7', log, 11 * gone + 12) + unit - now end
  local last = #log
  if count > 0 and newest >= now then
    last = last - 11
  else
    newest = now
  end
  if n <= left and count < most then
    used = used + n
    local added = struct.pack('<I7I4', newest, (total + n) % 4294967296)
    saved = struct.pack('<I7I4', 84, before) .. log:sub(11 * gone + 12, last) .. added
    expiry, brief = newest + unit, struct.pack('<I7I4I7I4', 84, 0, now, used)
  end
end

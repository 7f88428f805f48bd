local tag, start, count = 87, 0, 0
if value then tag = 0 end
if value and #value == 17 then tag, start, count = struct.unpack('<Bdd', value) end
local limit, unit, first = struct.unpack('<i7i7i7', ARGV[1], from)
if now >= start and (now >= start + unit or count == 0 and first == 1) then
  start, count = first == 1 and now or now - now % unit, 0
end
left = limit - count
if tag == 87 and n <= left and start > 0 then
  reset = start + unit - now
  count = count + n
  saved, expiry, used = struct.pack('<Bdd', 87, start, count), start + unit, count
end

local tag, next_time = 76, 0
if value then tag = 0 end
if value and #value == 9 then tag, next_time = struct.unpack('<Bd', value) end
local step, longest, most = struct.unpack('<i7i7i7', ARGV[1], from)
if next_time < now then next_time = now end
wait = next_time - now
if tag == 76 and wait <= longest and n <= most then
  left, reset = math.floor((longest - wait) / step) + 1, step
  next_time = next_time + n * step
  saved, expiry, used = struct.pack('<Bd', 76, next_time), next_time, (next_time - now) / step
end

-- The case that a step is a whole number of microseconds.
local tag, at, frac = 84, 0, 0
if value then tag = 0 end
if value and #value == 17 then tag, at, frac = struct.unpack('<Bdd', value) end
local step, step_frac, _, _, burst = struct.unpack('<i7i7i7i7i7', ARGV[1], from)
if at < now then at, frac = now, 0 end
left = math.floor((now + burst - at) / step)
if tag == 84 and frac == 0 and step_frac == 0 and n <= left then
  reset = left * step
  at = at + n * step
  saved, expiry, used = struct.pack('<Bdd', 84, at, 0), at, (at - now) / step
end

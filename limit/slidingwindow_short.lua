local floor, ceil = math.floor, math.ceil
local limit, unit, slices = struct.unpack('<i7i7i7', ARGV[1], from)
local ring, s = slices + 1, nil
local form = '<Bdd' .. ('I4'):rep(ring)
if not value then
  s = {83}
  for i = 2, ring + 3 do s[i] = 0 end
elseif #value == 17 + 4 * ring then
  s = {struct.unpack(form, value)} -- and the position behind them
end
if s and s[1] == 83 then
  local last, sum = s[2], s[3]
  local first = floor(now / unit) * slices + floor(now % unit * slices / unit)
  local current = math.max(first, last)
  if current - last > slices then
    sum = 0
  else
    for gone = math.max(last - slices, 0), current - ring do sum = sum - s[gone % ring + 4] end
  end
  left = limit - sum
  if n <= left then
    if sum > 0 then
      first = current - slices
      while first < last and (first < 0 or s[first % ring + 4] == 0) do first = first + 1 end
    end
    first = first + ring
    reset = floor(first / slices) * unit + ceil(first % slices * unit / slices) - now
    for entered = math.max(last + 1, current - slices), current do s[entered % ring + 4] = 0 end
    local i = current % ring + 4
    s[2], s[3], s[i] = current, sum + n, s[i] + n
    saved, used = struct.pack(form, unpack(s, 1, ring + 3)), sum + n
    current = current + ring
    expiry = floor(current / slices) * unit + ceil(current % slices * unit / slices)
  end
end

-- Sliding window. See slidingwindow.go, of which this is a transcription.
-- a: 1 n, 2 unit, 3 slices
-- s: last, the current slice's number; sum; and the counters of slices, in a ring
local floor, max = math.floor, math.max
local M = {}

function M.load(value, a)
  local s = {last = 0, sum = 0}
  if not value then return s end
  if #value ~= 17 + 4 * (a[3] + 1) or value:sub(1, 1) ~= 'S' then error('not a sliding window') end
  s.last, s.sum = struct.unpack('<dd', value, 2)
  for i = 0, a[3] do
    s[i] = struct.unpack('<I4', value, 18 + 4 * i)
  end
  return s
end

local function slice(now, a)
  return floor(now / a[2]) * a[3] + floor(now % a[2] * a[3] / a[2])
end

local function start(n, a)
  return floor(n / a[3]) * a[2] + math.ceil(n % a[3] * a[2] / a[3])
end

local function count(s, n, a)
  if n < 0 then return 0 end
  return s[n % (a[3] + 1)] or 0
end

-- at returns the current slice and the sum of its window.
local function at(s, now, a)
  local current = max(slice(now, a), s.last)
  if current - s.last > a[3] then return current, 0 end
  local sum = s.sum
  for gone = s.last - a[3], current - a[3] - 1 do
    sum = sum - count(s, gone, a)
  end
  return current, sum
end

-- freed returns the moment at which at least n of the window's sum are free again.
local function freed(s, current, n, a)
  local i = current - a[3]
  while i < s.last do
    n = n - count(s, i, a)
    if n <= 0 then break end
    i = i + 1
  end
  return start(i + a[3] + 1, a)
end

function M.look(s, now, n, a)
  local current, sum = at(s, now, a)
  local remaining, reset = max(a[1] - sum, 0), a[2]
  if sum > 0 then reset = freed(s, current, 1, a) - now end
  if sum + n <= a[1] then return true, 0, remaining, reset end
  local wait = 0
  if n > a[1] then
    if sum > 0 then wait = freed(s, current, sum, a) - now end
  else
    wait = freed(s, current, sum + n - a[1], a) - now
  end
  return false, wait, remaining, reset
end

function M.take(s, now, n, a)
  local current, sum = at(s, now, a)
  for entered = max(s.last + 1, current - a[3]), current do
    s[entered % (a[3] + 1)] = 0
  end
  local i = current % (a[3] + 1)
  s.last, s.sum, s[i] = current, sum + n, (s[i] or 0) + n
end

function M.give(s, moment, n, a)
  local i = slice(moment, a)
  if i > s.last or i < s.last - a[3] then return end
  n = math.min(n, count(s, i, a))
  s.sum = s.sum - n
  s[i % (a[3] + 1)] = count(s, i, a) - n
end

function M.save(s, a)
  local parts = {'S' .. struct.pack('<dd', s.last, s.sum)}
  for i = 0, a[3] do
    parts[i + 2] = struct.pack('<I4', s[i] or 0)
  end
  local expiry = 0
  if s.sum > 0 then expiry = start(s.last + a[3] + 1, a) end
  return table.concat(parts), expiry
end

return M

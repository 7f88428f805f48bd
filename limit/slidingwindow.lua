-- Sliding window, transcribed from slidingwindow.go.
-- a: 1 n, 2 unit, 3 slices, 4 the largest sum
-- s: an array: 1 last, the current slice's number; 2 sum; then the counters of slices, a ring
local floor, max = math.floor, math.max
local M = {}

-- form is the format of a state in bytes. To read and write the whole state at once is
-- several times faster than number by number.
local function form(a) return '<dd' .. ('I4'):rep(a[3] + 1) end

function M.load(value, a)
  if value then
    if #value ~= 17 + 4 * (a[3] + 1) or value:sub(1, 1) ~= 'S' then return nil end
    return {struct.unpack(form(a), value, 2)}
  end
  local s = {}
  for i = 1, a[3] + 3 do s[i] = 0 end
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
  return s[n % (a[3] + 1) + 3]
end

-- at returns the current slice and the sum of its window.
local function at(s, now, a)
  local current = max(slice(now, a), s[1])
  if current - s[1] > a[3] then return current, 0 end
  local sum = s[2]
  for gone = s[1] - a[3], current - a[3] - 1 do
    sum = sum - count(s, gone, a)
  end
  return current, sum
end

-- freed returns the moment at which at least n of the window's sum are free again.
local function freed(s, current, n, a)
  local i = current - a[3]
  while i < s[1] do
    n = n - count(s, i, a)
    if n <= 0 then break end
    i = i + 1
  end
  return start(i + a[3] + 1, a)
end

function M.peek(s, now, n, a)
  local current, sum = at(s, now, a)
  local first
  if sum > 0 then first = freed(s, current, 1, a) else first = start(slice(now, a) + a[3] + 1, a) end
  local remaining, reset = max(a[1] - sum, 0), first - now
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
  for entered = max(s[1] + 1, current - a[3]), current do
    s[entered % (a[3] + 1) + 3] = 0
  end
  local i = current % (a[3] + 1) + 3
  s[1], s[2], s[i] = current, sum + n, s[i] + n
end

function M.debit(s, now, n, a)
  local _, sum = at(s, now, a)
  n = math.min(n, a[4] - sum)
  if n > 0 then M.take(s, now, n, a) end
end

function M.refund(s, moment, n, a)
  local i = slice(moment, a)
  if i > s[1] or i < s[1] - a[3] then return end
  n = math.min(n, count(s, i, a))
  s[2] = s[2] - n
  s[i % (a[3] + 1) + 3] = count(s, i, a) - n
end

function M.used(s, now, a)
  local _, sum = at(s, now, a)
  return sum
end

function M.save(s, a)
  local expiry = 0
  if s[2] > 0 then expiry = start(s[1] + a[3] + 1, a) end
  return 'S' .. struct.pack(form(a), unpack(s, 1, a[3] + 3)), expiry
end

return M

-- Fixed window, transcribed from fixedwindow.go.
-- a: 1 n, 2 unit, 3 whether windows begin with the first request, 4 the largest count
-- s: start of the window, count in it
local M = {}

function M.load(value)
  if not value then return {start = 0, count = 0} end
  if #value ~= 17 or value:sub(1, 1) ~= 'W' then return nil end
  local start, count = struct.unpack('<dd', value, 2)
  return {start = start, count = count}
end

local function at(s, now, a)
  if now < s.start or now < s.start + a[2] and (s.count > 0 or a[3] == 0) then
    return s.start, s.count
  end
  if a[3] == 1 then return now, 0 end
  return now - now % a[2], 0
end

function M.peek(s, now, n, a)
  local start, count = at(s, now, a)
  local left = start + a[2] - now
  local remaining = math.max(a[1] - count, 0)
  if count + n > a[1] then return false, left, remaining, left end
  return true, 0, remaining, left
end

function M.take(s, now, n, a)
  local start, count = at(s, now, a)
  s.start, s.count = start, count + n
end

function M.debit(s, now, n, a)
  local start, count = at(s, now, a)
  s.start, s.count = start, math.min(count + n, a[4])
end

function M.refund(s, moment, n, a)
  if moment < s.start or moment >= s.start + a[2] then return end
  s.count = math.max(s.count - n, 0)
end

function M.used(s, now, a)
  local _, count = at(s, now, a)
  return count
end

function M.save(s, a)
  local expiry = s.start + a[2]
  if s.start == 0 or a[3] == 1 and s.count == 0 then expiry = s.start end
  return 'W' .. struct.pack('<dd', s.start, s.count), expiry
end

return M

-- Cool-down. See cooldown.go, of which this is a transcription.
-- a: 1 n, 2 unit
-- s: last, the moment of the last request; count, how many since the last pause
local M = {}

function M.load(value)
  if not value then return {last = 0, count = 0} end
  if #value ~= 18 or value:sub(1, 2) ~= 'CD' then return nil end
  local last, count = struct.unpack('<dd', value, 3)
  return {last = last, count = count}
end

local function at(s, now, a)
  if s.count == 0 or now >= s.last + a[2] then return math.max(s.last, now), 0 end
  return s.last, s.count
end

function M.peek(s, now, n, a)
  local last, count = at(s, now, a)
  local pause = last + a[2] - now
  local remaining = math.max(a[1] - count, 0)
  if count + n > a[1] then return false, pause, remaining, pause end
  return true, 0, remaining, pause
end

function M.take(s, now, n, a)
  local last, count = at(s, now, a)
  s.last, s.count = math.max(last, now), count + n
end

function M.refund(s, moment, n, a)
  if moment <= s.last - a[2] then return end
  s.count = math.max(s.count - n, 0)
end

function M.save(s, a)
  local expiry = s.last
  if s.count > 0 then expiry = expiry + a[2] end
  return 'CD' .. struct.pack('<dd', s.last, s.count), expiry
end

return M

-- Reservations, transcribed from reservations.go. They need pace.lua.
-- a: 1 whole, 2 frac, 3 den, 4 the most that are stored, 5 and 6 the time that is stored
--    7 the largest cost
-- s: at and frac, the moment at which the next request may proceed
local M = {}

function M.load(value, a)
  if not value then return {at = 0, frac = 0} end
  if #value ~= 17 or value:sub(1, 1) ~= 'R' then return nil end
  local at, frac = struct.unpack('<dd', value, 2)
  if frac >= a[3] then at, frac = at + 1, 0 end -- another limit wrote it
  return {at = at, frac = frac}
end

local function next_time(s, now, a)
  local at, frac = now - a[5], -a[6]
  if frac < 0 then at, frac = at - 1, frac + a[3] end
  if after(at, frac, s.at, s.frac) then return at, frac end
  return s.at, s.frac
end

-- full returns the moment at which the most is stored.
local function full(at, frac, a)
  at, frac = at + a[5], frac + a[6]
  if frac >= a[3] then at, frac = at + 1, frac - a[3] end
  return up(at, frac)
end

function M.peek(s, now, n, a, longest)
  local at, frac = next_time(s, now, a)
  local wait, left = math.max(up(at, frac) - now, 0), 0
  if not after(at, frac, now, 0) then left = steps(at, frac, now, 0, a) + 1 end
  local reset = up(add(0, 0, math.max(left, 1), a))
  if n > a[7] then return false, full(at, frac, a) - now, left, reset end
  if longest > longest_span then longest = longest_span end
  if wait > longest then return false, wait - longest, left, reset end
  return true, wait, left, reset
end

function M.take(s, now, n, a)
  local at, frac = next_time(s, now, a)
  s.at, s.frac = add(at, frac, n, a)
end

function M.debit(s, now, n, a)
  local at, frac = next_time(s, now, a)
  s.at, s.frac = debit(at, frac, now, n, a[7], a)
end

function M.refund(s, scheduled, n, a)
  local at, frac = from_epoch(sub(s.at, s.frac, n, a))
  if up(at, frac) <= scheduled then s.at, s.frac = at, frac end
end

function M.used(s, now, a)
  local at, frac = next_time(s, now, a)
  return spent(at, frac, now - a[5], a)
end

function M.save(s, a)
  return 'R' .. struct.pack('<dd', s.at, s.frac), full(s.at, s.frac, a)
end

return M

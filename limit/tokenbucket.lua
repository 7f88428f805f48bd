-- Token bucket, transcribed from tokenbucket.go. It needs pace.lua.
-- a: 1 whole, 2 frac, 3 den: the spacing of tokens, whole + frac/den microseconds
--    4 capacity, 5 and 6 the time that so many tokens take, as moment and fraction
--    7 the largest debit
-- s: at and frac, the moment at which the bucket is full
local M = {}

local function full(s, now)
  if s.at < now then return now, 0 end
  return s.at, s.frac
end

-- reset returns the time that r tokens take to drip in, or in debt the time until the first token. The
-- bucket is full at the moment at, frac.
local function reset(r, at, frac, now, a)
  local span, part = add(0, 0, math.max(r, 1), a)
  if part > 0 then span = span + 1 end
  if r > 0 then return span end
  local x, y = add(at, frac, 1, a)
  if y > a[6] then x = x + 1 end
  return math.max(span, x - a[5] - now)
end

function M.load(value, a)
  if not value then return {at = 0, frac = 0} end
  if #value ~= 17 or value:sub(1, 1) ~= 'T' then return nil end
  local at, frac = struct.unpack('<dd', value, 2)
  if frac >= a[3] then at, frac = at + 1, 0 end -- written under another limit
  return {at = at, frac = frac}
end

-- peek_even is peek for the usual case that a step is a whole number of microseconds. Then
-- there are no fractions.
local function peek_even(at, now, n, a)
  local room, step = now + a[5] - at, a[1] -- room is the time that the tokens in the bucket took
  local debt = room < 0
  if debt then room = 0 end
  local left = floor(room / step)
  if n <= left and not debt then return true, 0, left, (left > 1 and left or 1) * step end
  if n == 1 and n <= a[4] then left = 0 end
  local reset = left * step
  if left == 0 then
    reset = at + step - a[5] - now
    if reset < step then reset = step end
  end
  if n > a[4] then return false, at - now, left, reset end
  local wait = at + n * step - a[5] - now
  return false, wait > 0 and wait or 0, left, reset
end

function M.peek(s, now, n, a)
  local at, frac = full(s, now)
  if a[2] == 0 and frac == 0 then return peek_even(at, now, n, a) end
  local hat, hfrac = now + a[5], a[6]
  if n > a[4] then
    local left = steps(at, frac, hat, hfrac, a)
    local span = reset(left, at, frac, now, a)
    if frac > 0 then at = at + 1 end
    return false, at - now, left, span
  end
  local x, y = add(at, frac, n, a)
  if after(x, y, hat, hfrac) then
    local wait = x - a[5]
    if y > a[6] then wait = wait + 1 end
    local left = 0
    if n > 1 then left = steps(at, frac, hat, hfrac, a) end
    return false, math.max(wait - now, 0), left, reset(left, at, frac, now, a)
  end
  local left = steps(at, frac, hat, hfrac, a)
  return true, 0, left, reset(left, at, frac, now, a)
end

function M.take(s, now, n, a)
  local at, frac = full(s, now)
  s.at, s.frac = add(at, frac, n, a)
end

function M.debit(s, now, n, a)
  local at, frac = full(s, now)
  s.at, s.frac = debit(at, frac, now, n, a[7], a)
end

function M.refund(s, _, n, a) s.at, s.frac = from_epoch(sub(s.at, s.frac, n, a)) end

function M.used(s, now, a) return spent(s.at, s.frac, now, a) end

function M.save(s)
  local expiry = s.at
  if s.frac > 0 then expiry = expiry + 1 end
  return 'T' .. struct.pack('<dd', s.at, s.frac), expiry
end

return M

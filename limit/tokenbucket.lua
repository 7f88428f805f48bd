-- Token bucket. See tokenbucket.go and pace.go, of which this is a transcription.
-- a: 1 whole, 2 frac, 3 den: the spacing of tokens, whole + frac/den microseconds
--    4 capacity, 5 and 6 the time that so many tokens take, as moment and fraction
-- s: at and frac, the moment at which the bucket is full
local floor = math.floor
local M = {}

-- mul returns n * frac / den as quotient and remainder. The product of two numbers
-- below 2^30 may not be exact in a double, so n goes in two halves.
local function mul(n, frac, den)
  local hi = floor(n / 32768)
  local lo = n - hi * 32768
  local p = hi * frac
  local q = floor(p / den)
  local r = (p - q * den) * 32768 + lo * frac
  local q2 = floor(r / den)
  return q * 32768 + q2, r - q2 * den
end

-- add returns the moment at, frac and n steps.
local function add(at, frac, n, a)
  local q, r
  if a[2] == 0 then
    q, r = 0, 0
  elseif n == 1 then
    q, r = 0, a[2]
  else
    q, r = mul(n, a[2], a[3])
  end
  at, frac = at + n * a[1] + q, frac + r
  if frac >= a[3] then
    at, frac = at + 1, frac - a[3]
  end
  return at, frac
end

local function after(at, frac, at2, frac2)
  return at > at2 or at == at2 and frac > frac2
end

local function full(s, now)
  if s.at < now then return now, 0 end
  return s.at, s.frac
end

-- steps returns how many whole steps lie between two moments: by an estimate, as the
-- product that the exact way takes does not fit a double, and then by trying.
local function steps(at, frac, at2, frac2, a)
  if after(at, frac, at2, frac2) then return 0 end
  local k = floor((at2 - at + (frac2 - frac) / a[3]) / (a[1] + a[2] / a[3]))
  k = math.max(math.min(k, a[4]), 0)
  while k > 0 do
    local x, y = add(at, frac, k, a)
    if not after(x, y, at2, frac2) then break end
    k = k - 1
  end
  while k < a[4] do
    local x, y = add(at, frac, k + 1, a)
    if after(x, y, at2, frac2) then break end
    k = k + 1
  end
  return k
end

local function reset(r, a)
  local at, frac = add(0, 0, math.max(r, 1), a)
  if frac > 0 then at = at + 1 end
  return at
end

function M.load(value, a)
  if not value then return {at = 0, frac = 0} end
  if #value ~= 17 or value:sub(1, 1) ~= 'T' then return nil end
  local at, frac = struct.unpack('<dd', value, 2)
  if frac >= a[3] then at, frac = at + 1, 0 end -- written under another limit
  return {at = at, frac = frac}
end

-- look_even is look for the usual case that a step is a whole number of microseconds,
-- where no fractions come up.
local function look_even(at, now, n, a)
  local room, step = now + a[5] - at, a[1] -- room is the time that the tokens in it took
  if room < 0 then room = 0 end
  local left = floor(room / step)
  if n <= left then return true, 0, left, (left > 1 and left or 1) * step end
  if n > a[4] then return false, at - now, left, (left > 1 and left or 1) * step end
  if n == 1 then left = 0 end
  local wait = at + n * step - a[5] - now
  return false, wait > 0 and wait or 0, left, (left > 1 and left or 1) * step
end

function M.look(s, now, n, a)
  local at, frac = full(s, now)
  if a[2] == 0 and frac == 0 then return look_even(at, now, n, a) end
  local hat, hfrac = now + a[5], a[6]
  if n > a[4] then
    local left = steps(at, frac, hat, hfrac, a)
    if frac > 0 then at = at + 1 end
    return false, at - now, left, reset(left, a)
  end
  local x, y = add(at, frac, n, a)
  if after(x, y, hat, hfrac) then
    local wait = x - a[5]
    if y > a[6] then wait = wait + 1 end
    local left = 0
    if n > 1 then left = steps(at, frac, hat, hfrac, a) end
    return false, math.max(wait - now, 0), left, reset(left, a)
  end
  local left = steps(at, frac, hat, hfrac, a)
  return true, 0, left, reset(left, a)
end

function M.take(s, now, n, a)
  local at, frac = full(s, now)
  s.at, s.frac = add(at, frac, n, a)
end

function M.give(s, _, n, a)
  local q, r = mul(n, a[2], a[3])
  local at, frac = s.at - n * a[1] - q, s.frac - r
  if frac < 0 then at, frac = at - 1, frac + a[3] end
  if at < 0 then at, frac = 0, 0 end
  s.at, s.frac = at, frac
end

function M.save(s)
  local expiry = s.at
  if s.frac > 0 then expiry = expiry + 1 end
  return 'T' .. struct.pack('<dd', s.at, s.frac), expiry
end

return M

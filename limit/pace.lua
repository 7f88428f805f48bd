-- Even spacing without rounding, transcribed from pace.go. This text comes before the
-- scripts that use it.
-- a: 1 whole, 2 frac, 3 den: a step, whole + frac/den microseconds
--    4 the largest number of steps that is counted
local floor = math.floor

local longest_span = 3153600000000000 -- maxFill

-- mul returns n * frac / den as quotient and remainder. It multiplies n in two halves, because
-- the product of two numbers below 2^30 may not be exact in a double.
local function mul(n, frac, den)
  local hi = floor(n / 32768)
  local lo = n - hi * 32768
  local p = hi * frac
  local q = floor(p / den)
  local r = (p - q * den) * 32768 + lo * frac
  local q2 = floor(r / den)
  return q * 32768 + q2, r - q2 * den
end

-- add returns the moment at, frac plus n steps.
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

-- debit returns the moment at, frac plus n steps, of which it counts at most most. The result is
-- at most longest_span after now.
local function debit(at, frac, now, n, most, a)
  at, frac = add(at, frac, math.min(n, most), a)
  local last = now + longest_span
  if at > last or at == last and frac > 0 then return last, 0 end
  return at, frac
end

-- sub returns the moment at, frac minus n steps.
local function sub(at, frac, n, a)
  local q, r = mul(n, a[2], a[3])
  at, frac = at - n * a[1] - q, frac - r
  if frac < 0 then at, frac = at - 1, frac + a[3] end
  return at, frac
end

-- from_epoch returns a moment, or the epoch if the moment is before it.
local function from_epoch(at, frac)
  if at < 0 then return 0, 0 end
  return at, frac
end

-- spent returns how many steps, with a fraction, a moment is after another one, or 0.
local function spent(at, frac, now, a)
  return math.max(at - now + frac / a[3], 0) / (a[1] + a[2] / a[3])
end

-- up returns a moment rounded up to whole microseconds.
local function up(at, frac)
  if frac > 0 then return at + 1 end
  return at
end

-- steps returns how many whole steps lie between two moments. The exact product does not fit a
-- double, so it starts from an estimate and corrects it.
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


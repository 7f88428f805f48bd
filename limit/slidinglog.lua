-- Sliding log. See slidinglog.go, of which this is a transcription; the ring is a
-- string of moments in order here.
-- a: 1 n, 2 unit, 3 bundle
-- s: newest, the requests in the newest bundle; log, eight bytes a moment
local M = {}

function M.load(value)
  if not value then return {newest = 0, log = ''} end
  if #value < 9 or #value % 8 ~= 1 or value:sub(1, 1) ~= 'G' then return nil end
  return {newest = (struct.unpack('<d', value, 2)), log = value:sub(10)}
end

local function length(s) return #s.log / 8 end

local function moment(s, i) return (struct.unpack('<d', s.log, 8 * i + 1)) end

-- gone returns how many moments at the front have left the window.
local function gone(s, now, a)
  local lo, hi = 0, length(s)
  while lo < hi do
    local mid = math.floor((lo + hi) / 2)
    if moment(s, mid) + a[2] <= now then lo = mid + 1 else hi = mid end
  end
  return lo
end

function M.look(s, now, n, a)
  local left = gone(s, now, a)
  local alive = length(s) - left
  local used = 0
  if alive > 0 then used = (alive - 1) * a[3] + s.newest end
  local remaining, reset = math.max(a[1] - used, 0), a[2]
  if used > 0 then reset = moment(s, left) + a[2] - now end
  if used + n <= a[1] then return true, 0, remaining, reset end
  local free = math.min(math.ceil((used + n - a[1]) / a[3]), alive)
  if free > 0 then return false, moment(s, left + free - 1) + a[2] - now, remaining, reset end
  return false, a[2], remaining, reset
end

function M.take(s, now, n, a)
  s.log = s.log:sub(8 * gone(s, now, a) + 1)
  if s.log == '' then
    s.newest = 0
  else
    now = math.max(now, moment(s, length(s) - 1))
  end
  local packed = struct.pack('<d', now)
  local k = 0
  if s.log ~= '' then -- what still fits into the newest bundle, which takes the moment of its last
    k = math.min(n, a[3] - s.newest)
    if k > 0 then
      s.newest = s.newest + k
      s.log = s.log:sub(1, -9) .. packed
    end
  end
  n = n - k
  if n > 0 then
    local bundles = math.ceil(n / a[3])
    s.log = s.log .. packed:rep(bundles)
    s.newest = n - (bundles - 1) * a[3]
  end
end

function M.debit(s, now, n, a)
  n = math.min(n, a[1])
  local left, most, add = gone(s, now, a), math.ceil(a[1] / a[3]), math.ceil(n / a[3])
  left = math.max(left, length(s) - math.max(most - add, 0))
  s.log = s.log:sub(8 * left + 1)
  M.take(s, now, n, a)
end

function M.give(s, at, n, a)
  local count = length(s)
  local lo, hi = 0, count -- the first moment not before at
  while lo < hi do
    local mid = math.floor((lo + hi) / 2)
    if moment(s, mid) < at then lo = mid + 1 else hi = mid end
  end
  if a[3] == 1 then
    local last = lo
    while last < count and last < lo + n and moment(s, last) == at do last = last + 1 end
    s.log = s.log:sub(1, 8 * lo) .. s.log:sub(8 * last + 1)
  elseif lo == count - 1 and at > moment(s, lo) - a[2] then
    s.newest = s.newest - math.min(n, s.newest)
    if s.newest == 0 then
      s.log, s.newest = s.log:sub(1, -9), a[3]
    end
  end
end

function M.save(s, a)
  local expiry = 0
  if s.log ~= '' then expiry = moment(s, length(s) - 1) + a[2] end
  return 'G' .. struct.pack('<d', s.newest) .. s.log, expiry
end

return M

-- Sliding log, transcribed from slidinglog.go and momentlog.go. Here the ring is a string of
-- moments in order, each with the total up to it.
-- a: 1 n, 2 unit, 3 most moments
-- s: log, eleven bytes for each moment: seven for the moment and four for its total. At the
-- front are a mark in place of a moment, and the total before the first moment. The value of
-- the key is the log itself, which can be long, so peek copies nothing.
local M = {}

local form, width, modulus = '<I7I4', 11, 2 ^ 32

local mark = 'T' .. ('\0'):rep(6)

local function front(before) return mark .. struct.pack('<I4', before) end

function M.load(value)
  if not value then return {log = front(0)} end
  if #value < width or #value % width ~= 0 or value:sub(1, 7) ~= mark then return nil end
  return {log = value}
end

local function length(s) return #s.log / width - 1 end

local function moment(s, i) return (struct.unpack('<I7', s.log, width * (i + 1) + 1)) end

local function total(s, i) return (struct.unpack('<I4', s.log, width * (i + 1) + 8)) end

-- between returns how many requests came after moment i, up to moment j.
local function between(s, i, j) return (total(s, j) - total(s, i)) % modulus end

-- since returns how many requests came at moment i and later.
local function since(s, i) return between(s, i - 1, length(s) - 1) end

-- gone returns how many moments are not after at.
local function gone(s, at)
  local lo, hi = 0, length(s)
  while lo < hi do
    local mid = math.floor((lo + hi) / 2)
    if moment(s, mid) <= at then lo = mid + 1 else hi = mid end
  end
  return lo
end

-- holding returns the moment that holds the nth request from moment i on.
local function holding(s, i, n)
  local lo, hi = i, length(s) - 1
  while lo < hi do
    local mid = math.floor((lo + hi) / 2)
    if between(s, i - 1, mid) < n then lo = mid + 1 else hi = mid end
  end
  return lo
end

-- drop removes the first moments.
local function drop(s, moments)
  if moments > 0 then
    s.log = front(total(s, moments - 1)) .. s.log:sub(width * (moments + 1) + 1)
  end
end

-- forget removes the first requests.
local function forget(s, n)
  local before = (total(s, -1) + n) % modulus
  local i = holding(s, 0, n)
  if total(s, i) == before then i = i + 1 end
  s.log = front(before) .. s.log:sub(width * (i + 1) + 1)
end

-- merge merges moments two by two, each pair into its later one.
local function merge(s, most)
  local kept, count = {}, length(s)
  for i = 1, math.min(math.ceil(count / 2), most - 1) do
    local last = math.min(2 * i, count)
    kept[i] = s.log:sub(width * last + 1, width * (last + 1))
  end
  s.log = s.log:sub(1, width) .. table.concat(kept)
end

-- add adds n requests at the moment now, or at the newest if that is later.
local function add(s, now, n, most)
  local count = length(s)
  local sum = (total(s, count - 1) + n) % modulus
  if count > 0 and moment(s, count - 1) >= now then
    now = moment(s, count - 1)
    s.log = s.log:sub(1, -width - 1)
  elseif count == most then
    merge(s, most)
  end
  s.log = s.log .. struct.pack(form, now, sum)
end

function M.peek(s, now, n, a)
  local left, count = gone(s, now - a[2]), length(s)
  local used = since(s, left)
  local remaining, reset = math.max(a[1] - used, 0), a[2]
  if left < count then reset = moment(s, left) + a[2] - now end
  if used + n <= a[1] then return true, 0, remaining, reset end
  if left < count then
    local last = holding(s, left, math.min(used + n - a[1], used))
    return false, moment(s, last) + a[2] - now, remaining, reset
  end
  return false, a[2], remaining, reset
end

function M.take(s, now, n, a)
  drop(s, gone(s, now - a[2]))
  add(s, now, n, a[3])
end

function M.debit(s, now, n, a)
  n = math.min(n, a[1])
  drop(s, gone(s, now - a[2]))
  local over = since(s, 0) + n - a[1]
  if over > 0 then forget(s, over) end
  add(s, now, n, a[3])
end

function M.refund(s, at, n)
  local i, count = gone(s, at - 1), length(s)
  if i == count or moment(s, i) ~= at then return end
  n = math.min(n, between(s, i - 1, i))
  local pieces = {s.log:sub(1, width * (i + 1))}
  if n == between(s, i - 1, i) then i = i + 1 end
  for j = i, count - 1 do
    pieces[#pieces + 1] = struct.pack(form, moment(s, j), (total(s, j) - n) % modulus)
  end
  s.log = table.concat(pieces)
end

function M.used(s, now, a) return since(s, gone(s, now - a[2])) end

-- brief keeps the count only, all of it at the moment of the call.
function M.brief(s, now, a)
  local used = M.used(s, now, a)
  if used == 0 then return '' end
  return front(0) .. struct.pack(form, now, used)
end

function M.save(s, a)
  local expiry = 0
  if length(s) > 0 then expiry = moment(s, length(s) - 1) + a[2] end
  return s.log, expiry
end

return M

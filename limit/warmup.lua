-- Token bucket with a warm-up, and reservations with one, transcribed from warmup.go and
-- reservations.go. They need pace.lua.
-- a: 1 whole, 2 frac, 3 den, 4 capacity, 5 and 6 the time that so many tokens take
--    7 warm-up, 8 the largest cost of a reservation; 0 for a token bucket
--    9 the largest debit
-- s: at and frac, the moment next; cold and cold_frac, how cold the limit is at that moment
local M = {}

local function within(cold, frac, a)
  if cold >= a[7] then return a[7], 0 end
  if cold < -longest_span then return -longest_span, 0 end
  return cold, frac
end

function M.load(value, a)
  if not value then return {at = 0, frac = 0, cold = 0, cold_frac = 0} end
  if #value ~= 33 or value:sub(1, 1) ~= 'H' then return nil end
  local at, frac, cold, cold_frac = struct.unpack('<dddd', value, 2)
  if frac >= a[3] then at, frac = at + 1, 0 end -- another limit wrote it
  if cold_frac >= a[3] then cold_frac = 0 end
  cold, cold_frac = within(cold, cold_frac, a)
  return {at = at, frac = frac, cold = cold, cold_frac = cold_frac}
end

-- state returns the values of s at a moment.
local function state(s, now, a)
  if s.at >= now then return s.at, s.frac, s.cold, s.cold_frac end
  local cold, frac = s.cold, s.cold_frac
  if cold < 0 then cold, frac = 0, 0 end
  cold, frac = cold + now - s.at, frac - s.frac
  if frac < 0 then cold, frac = cold - 1, frac + a[3] end
  return now, 0, within(cold, frac, a)
end

-- extra returns the cost of a limit that is that cold, beyond its steps.
local function extra(cold, a)
  local x = 2 * cold - a[7]
  if x <= 0 then return 0 end
  return (mul(x, x, 2 * a[7]))
end

local function later(at, frac, cold, cold_frac, n, a)
  local before = extra(cold, a)
  at, frac = add(at, frac, n, a)
  cold, cold_frac = sub(cold, cold_frac, n, a)
  cold, cold_frac = within(cold, cold_frac, a)
  return at + before - extra(cold, a), frac, cold, cold_frac
end

local function sooner(at, frac, cold, cold_frac, n, a)
  local after = extra(cold, a)
  at, frac = from_epoch(sub(at, frac, n, a))
  cold, cold_frac = add(cold, cold_frac, n, a)
  cold, cold_frac = within(cold, cold_frac, a)
  return math.max(at - extra(cold, a) + after, 0), frac, cold, cold_frac
end

-- remaining returns how many requests of cost 1 are allowed one after another.
local function remaining(at, frac, cold, cold_frac, hat, hfrac, a)
  local most = steps(at, frac, hat, hfrac, a)
  if extra(cold, a) == 0 then return most end
  local least = math.min(most, 1)
  while least < most do
    local k = floor((least + most + 1) / 2)
    local x, y = later(at, frac, cold, cold_frac, k - 1, a)
    x, y = add(x, y, 1, a)
    if after(x, y, hat, hfrac) then most = k - 1 else least = k end
  end
  return least
end

local function reset(r, a) return up(add(0, 0, math.max(r, 1), a)) end

local function peek_within(at, frac, cold, now, n, a, longest)
  local wait, left = up(at, frac) - now, 0
  if wait == 0 then left = 1 end
  if n > a[8] then return false, wait + a[7] - math.max(cold, 0), left, reset(1, a) end
  if longest > longest_span then longest = longest_span end
  if wait > longest then return false, wait - longest, left, reset(1, a) end
  return true, wait, left, reset(1, a)
end

function M.peek(s, now, n, a, longest)
  local at, frac, cold, cold_frac = state(s, now, a)
  if a[8] > 0 then return peek_within(at, frac, cold, now, n, a, longest) end
  local hat, hfrac = now + a[5], a[6]
  local allowed, wait, left = false, 0, 0
  if n > a[4] then
    wait = up(at, frac) + a[7] - math.max(cold, 0) - now
  else
    local x, y = add(at, frac, n, a)
    allowed = not after(x, y, hat, hfrac)
    if not allowed then
      wait = x - a[5]
      if y > a[6] then wait = wait + 1 end
      wait = math.max(wait - now, 0)
    end
  end
  if allowed or n > 1 then left = remaining(at, frac, cold, cold_frac, hat, hfrac, a) end
  return allowed, wait, left, reset(left, a)
end

function M.take(s, now, n, a)
  local at, frac, cold, cold_frac = state(s, now, a)
  s.at, s.frac, s.cold, s.cold_frac = later(at, frac, cold, cold_frac, n, a)
end

function M.debit(s, now, n, a)
  M.take(s, now, math.min(n, a[9]), a)
  if s.at > now + longest_span or s.at == now + longest_span and s.frac > 0 then
    s.at, s.frac = now + longest_span, 0
  end
end

function M.refund(s, scheduled, n, a)
  local at, frac, cold, cold_frac = sooner(s.at, s.frac, s.cold, s.cold_frac, n, a)
  if a[8] > 0 and up(at, frac) > scheduled then return end
  s.at, s.frac, s.cold, s.cold_frac = at, frac, cold, cold_frac
end

function M.used(s, now, a) return spent(s.at, s.frac, now, a) end

function M.save(s, a)
  return 'H' .. struct.pack('<dddd', s.at, s.frac, s.cold, s.cold_frac),
    up(s.at, s.frac) + a[7] - math.max(s.cold, 0)
end

return M

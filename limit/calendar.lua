-- Fixed window of the calendar, transcribed from calendar.go.
-- a: 1 n, 2 the largest count, and from 3 on the moments at which windows begin, the last of them the
--    end of the last window; none if the window never ends
-- s: begin of the window, count in it
--
-- The moments are those around the clock of the gateway. If Redis' clock is before all of them or behind,
-- it is not known when its window began. Then the window of the state continues, or one begins now. So no
-- window counts from zero twice. The next call of the gateway has other moments, because it learns
-- Redis' clock from the answer.
local M = {}

local unknown = 1000000 -- until when a window lasts whose end is not known: ask again in a second

function M.load(value)
  if not value then return {begin = 0, count = 0} end
  if #value ~= 17 or value:sub(1, 1) ~= 'K' then return nil end
  local begin, count = struct.unpack('<dd', value, 2)
  return {begin = begin, count = count}
end

-- until_after returns the end of the window that began at a moment, or a later one.
local function until_after(begin, a)
  for i = 3, #a do
    if a[i] > begin then return a[i] end
  end
  return begin + a[#a] - a[3]
end

local function at(s, now, a)
  if #a == 2 then return 0, s.count, nil end
  if now < s.begin then return s.begin, s.count, until_after(s.begin, a) end
  if now < a[3] or now >= a[#a] then
    if s.begin > 0 then return s.begin, s.count, now + unknown end
    return now, 0, now + unknown
  end
  local i = 3
  while a[i + 1] <= now do i = i + 1 end
  if s.begin < a[i] then return a[i], 0, a[i + 1] end
  return s.begin, s.count, a[i + 1]
end

function M.peek(s, now, n, a)
  local _, count, finish = at(s, now, a)
  local remaining = math.max(a[1] - count, 0)
  local wait, reset = 4503599627370496, 0 -- bounds.Forever
  if finish then wait, reset = finish - now, finish - now end
  if count + n > a[1] then return false, wait, remaining, reset end
  return true, 0, remaining, reset
end

function M.take(s, now, n, a)
  local begin, count = at(s, now, a)
  s.begin, s.count = begin, count + n
end

function M.debit(s, now, n, a)
  local begin, count = at(s, now, a)
  s.begin, s.count = begin, math.min(count + n, a[2])
end

function M.refund(s, moment, n, a)
  if moment < s.begin or #a > 2 and moment >= until_after(s.begin, a) then return end
  s.count = math.max(s.count - n, 0)
end

function M.used(s, now, a)
  local _, count = at(s, now, a)
  return count
end

function M.save(s, a)
  local expiry = 9007199254740992 -- bounds.EndOfTime
  if s.begin == 0 and s.count == 0 then
    expiry = 0
  elseif #a > 2 then
    expiry = until_after(s.begin, a)
  end
  return 'K' .. struct.pack('<dd', s.begin, s.count), expiry
end

return M

-- Leaky bucket, by reserved turns. See leakybucket.go, of which this is a transcription.
-- a: 1 step, 2 longest wait, 3 largest cost
-- s: next, the moment at which whoever comes now would leave
local M = {}

function M.load(value)
  if not value then return {next = 0} end
  if #value ~= 9 or value:sub(1, 1) ~= 'L' then return nil end
  return {next = (struct.unpack('<d', value, 2))}
end

function M.peek(s, now, n, a)
  local wait = math.max(now, s.next) - now
  if wait <= a[2] then
    return n <= a[3], wait, math.floor((a[2] - wait) / a[1]) + 1, a[1]
  end
  if n <= a[3] then wait = wait - a[2] end
  return false, wait, 0, a[1]
end

function M.take(s, now, n, a) s.next = math.max(now, s.next) + n * a[1] end

function M.debit(s, now, n, a)
  local next_turn = math.max(now, s.next) + math.min(n, a[3]) * a[1]
  s.next = math.min(next_turn, now + 3153600000000000) -- maxFill
end

function M.refund(s, _, n, a) s.next = math.max(s.next - n * a[1], 0) end

function M.delay(s, d) s.next = s.next + d end

-- leave gives a turn back that nobody is behind. Who is behind another in some gateway keeps
-- the turn that it has been told, and nobody else may have that one.
function M.leave(s, turn, n, a)
  if s.next == turn + n * a[1] then s.next = turn end
end

function M.save(s) return 'L' .. struct.pack('<d', s.next), s.next end

return M

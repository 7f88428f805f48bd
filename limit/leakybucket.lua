-- Leaky bucket, transcribed from leakybucket.go.
-- a: 1 step, 2 longest wait, 3 largest cost
-- s: next, the moment at which a request that arrives now would proceed
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
  local later = math.max(now, s.next) + math.min(n, a[3]) * a[1]
  s.next = math.min(later, now + 3153600000000000) -- maxFill
end

function M.refund(s, _, n, a) s.next = math.max(s.next - n * a[1], 0) end

function M.delay(s, d) s.next = s.next + d end

-- leave frees a scheduled time if no request is behind it. Otherwise the time passes unused:
-- a request behind it keeps its own scheduled time, in whichever gateway it waits.
function M.leave(s, scheduled, n, a)
  if s.next == scheduled + n * a[1] then s.next = scheduled end
end

function M.used(s, now, a) return (math.max(now, s.next) - now) / a[1] end

function M.save(s) return 'L' .. struct.pack('<d', s.next), s.next end

return M

-- Concurrency. See concurrency.go. Each gateway has a lease on the slots that it holds, and
-- renews the lease while it lives. When a gateway crashes, its lease ends and its slots
-- become free.
-- a: 1 n
-- s: for each gateway, by its number, how many slots it holds and when its lease ends
local M = {}

function M.load(value)
  local s = {}
  if not value then return s end
  if #value % 24 ~= 1 or value:sub(1, 1) ~= 'C' then return nil end
  for i = 2, #value, 24 do
    local id, count, ends = struct.unpack('<ddd', value, i)
    s[id] = {count = count, ends = ends}
  end
  return s
end

function M.peek(s, now, n, a)
  local held = 0
  for _, g in pairs(s) do
    if g.ends > now then held = held + g.count end
  end
  local remaining = math.max(a[1] - held, 0)
  if held + n > a[1] then return false, 1000000, remaining, 0 end
  return true, 0, remaining, 0
end

function M.take(s, now, n)
  for id, g in pairs(s) do
    if g.ends <= now then s[id] = nil end
  end
  local g = s[gateway] or {count = 0}
  s[gateway] = g
  g.count, g.ends = g.count + n, now + lease
end

M.debit = M.take

function M.refund(s, _, n)
  local g = s[gateway]
  if not g then return end
  g.count = g.count - n
  if g.count <= 0 then s[gateway] = nil end
end

-- renew records that this gateway lives and holds n slots, or none if n is 0.
function M.renew(s, now, n)
  s[gateway] = n > 0 and {count = n, ends = now + lease} or nil
end

function M.save(s)
  local parts, expiry = {'C'}, 0
  for id, g in pairs(s) do
    parts[#parts + 1] = struct.pack('<ddd', id, g.count, g.ends)
    expiry = math.max(expiry, g.ends)
  end
  return table.concat(parts), expiry
end

return M

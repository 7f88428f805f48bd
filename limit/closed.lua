-- A limit of 0 refuses every request. See closed.go.
-- a: 1 unit
local M = {}
function M.load() return {} end
function M.peek(_, _, _, a) return false, a[1], 0, a[1] end
function M.take() end
function M.refund() end
function M.save() return '', 0 end
return M

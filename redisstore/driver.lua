-- Decides a batch of requests, each all or nothing. Before this text are
--
--	local gateway, lease
--	local scripts = { (function() ... end)(), ... }
--
-- with the source of each algorithm, see limit.Script.
--
-- KEYS  the counters of the batch, and the receipts, see receipts.lua
-- ARGV  one array of whole numbers as MessagePack, which Redis unpacks several times faster
--       than as many arguments. In order:
--   now       the caller's moment for tests; 0: Redis' clock decides
--   grace     milliseconds that keys outlive their expiry
--   gateway   the number of this gateway
--   lease     microseconds for which other gateways assume that it lives
--   number    of this call
--   known     the number of the newest call that Redis has confirmed; 0: none is compared
--   limits    how many, and for each: its script, how many arguments, the arguments
--   renewals  how many, and for each: the key, the limit, how many slots this gateway holds
--   debits    how many, and for each: the key, the limit, the cost
--   refunds   how many, and for each: the key, the limit, the moment of the charge or, below
--             0, the scheduled time that is left, the cost
--   resets    how many, and for each: the key, the limit
--   takes     how many, and for each: how many equal requests it stands for, or -1 for one with
--             its own scheduled time, -2 for one with a longest wait, -3 for both, -4 for one
--             that only peeks; how many charges, and for each charge: its key, its limit, the
--             cost, below 0 if it is a shadow, and with -2, -3 and -4 the longest wait
--
-- Returns an error, and changes nothing, if the call arrives too late or Redis has lost the
-- confirmed call. Otherwise it returns an array in the same form:
--   now
--   changed   1 if something has changed, else 0
--   takes     for each: how many of the equal requests are allowed, or -1 if a key holds a
--             foreign value. If some are allowed, the outcomes before the first of them follow.
--             If some are not allowed, or the request only peeks, the outcomes after the last
--             allowed one follow. An outcome has for each charge: allowed (1 or 0), wait,
--             remaining, reset

local args, next_arg = cmsgpack.unpack(ARGV[1]), 0
local function arg()
  next_arg = next_arg + 1
  return args[next_arg]
end

local call, min, max, floor, ceil = redis.pcall, math.min, math.max, math.floor, math.ceil

local now, grace = arg(), arg()
gateway, lease = arg(), arg() -- locals of the text before this one, which the scripts read
local number, known = arg(), arg()
if now == 0 then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

-- Tables start with room for the usual few elements, because growing one is slower than filling it.
local limits = {nil, nil, nil, nil}
for i = 1, arg() do
  local script, n = scripts[arg()], arg()
  limits[i] = {
    script = script, peek = script.peek, take = script.take,
    args = {unpack(args, next_arg + 1, next_arg + n)},
  }
  next_arg = next_arg + n
end

-- States are read when they are first needed, and written once at the end. of is the limit that
-- evaluates a state at the time.
local states, of, changes = {nil, nil, nil, nil}, {nil, nil, nil, nil}, 0
local is_changed, changed = {nil, nil, nil, nil}, {nil, nil, nil, nil}

-- Values of counters that another limit evaluates than the one that changed them last, and their
-- times to live: nil if there are none.
local values, ttls

-- saved returns the value of a key, or false if the key is to be deleted, and its time to live.
local function saved(key)
  if values and values[key] ~= nil then return values[key], ttls[key] end
  local l = of[key]
  local value, expiry = l.script.save(states[key], l.args)
  local ttl = max(ceil((expiry - now) / 1000), 0) + grace
  return ttl > 0 and value, ttl
end

-- switch lets another limit evaluate a state, as if it were in another call.
local function switch(key, l)
  values, ttls = values or {}, ttls or {}
  local value
  if is_changed[key] then
    value, ttls[key] = saved(key)
    values[key] = value
  else
    value = call('GET', KEYS[key])
  end
  return l.script.load(value, l.args) or false
end

local function state(key, l)
  local s = states[key]
  if s == nil then
    local value = call('GET', KEYS[key])
    if type(value) ~= 'table' then
      s = l.script.load(value, l.args) or false
    elseif value.err:find('WRONGTYPE', 1, true) then
      s = false
    else
      error(value)
    end
    states[key], of[key] = s, l
  elseif s and of[key] ~= l then
    s = switch(key, l)
    states[key], of[key] = s, l
  end
  return s
end

local function touch(key)
  if values then values[key] = nil end
  if not is_changed[key] then
    changes = changes + 1
    is_changed[key], changed[changes] = true, key
  end
end

for _ = 1, arg() do
  local key, l, n = arg(), limits[arg()], arg()
  if state(key, l) then
    of[key].script.renew(states[key], now, n)
    touch(key)
  end
end

for _ = 1, arg() do
  local key, l, n = arg(), limits[arg()], arg()
  if state(key, l) then
    local script, a = of[key].script, of[key].args
    if script.debit then
      script.debit(states[key], now, n, a)
    else
      local whole, _, left = script.peek(states[key], now, n, a, 0)
      if not whole then n = min(n, left) end
      if n > 0 then script.take(states[key], now, n, a) end
    end
    touch(key)
  end
end

for _ = 1, arg() do
  local key, l, moment, n = arg(), limits[arg()], arg(), arg()
  if state(key, l) then
    local refund = of[key].script.refund
    if moment < 0 then moment, refund = -moment, of[key].script.leave or refund end
    refund(states[key], moment, n, of[key].args)
    touch(key)
  end
end

for _ = 1, arg() do
  local key, l = arg(), limits[arg()]
  states[key], of[key] = l.script.load(false, l.args), l
  touch(key)
end

local result, filled = {now, 0, nil, nil, nil, nil, nil, nil}, 2

-- The charges of the current request, and what peek returns for each.
local keys, costs = {nil, nil, nil, nil}, {nil, nil, nil, nil}
local shadows, rooms = {nil, nil, nil, nil}, {nil, nil, nil, nil}
local allowed, waits = {nil, nil, nil, nil}, {nil, nil, nil, nil}
local remaining, resets = {nil, nil, nil, nil}, {nil, nil, nil, nil}
local longest = {nil, nil, nil, nil}

local function peek(i)
  local l = of[keys[i]]
  allowed[i], waits[i], remaining[i], resets[i] = l.peek(states[keys[i]], now, costs[i], l.args, longest[i])
end

local function queues(i) return allowed[i] and not shadows[i] and of[keys[i]].script.delay end

local function add_outcomes(charges)
  for i = 1, charges do
    result[filled + 1] = allowed[i] and 1 or 0
    result[filled + 2] = waits[i]
    result[filled + 3] = remaining[i]
    result[filled + 4] = resets[i]
    filled = filled + 4
  end
end

for _ = 1, arg() do -- without calls of arg, because this is the most frequent work
  local requests, charges, foreign = args[next_arg + 1], args[next_arg + 2], false
  next_arg = next_arg + 2
  local waiting, reserves, peeks = requests == -1 or requests == -3, requests < -1, requests == -4
  if requests < 0 then requests = peeks and 0 or 1 end
  for i = 1, charges do
    local key, cost = args[next_arg + 1], args[next_arg + 3]
    keys[i], costs[i], shadows[i] = key, max(cost, -cost), cost < 0
    foreign = foreign or not state(key, limits[args[next_arg + 2]])
    next_arg = next_arg + 3
    longest[i] = 0
    if reserves then longest[i] = arg() end
  end
  filled = filled + 1
  if foreign then
    result[filled] = -1
  else
    -- Every charge allows as many requests as remain.
    local granted = requests
    for i = 1, charges do
      peek(i)
      rooms[i] = allowed[i] and max(floor(remaining[i] / costs[i]), 1) or 0
      if not shadows[i] then granted = min(granted, rooms[i]) end
    end
    result[filled] = granted
    if granted > 0 then
      local wait = 0 -- the longest wait: the request proceeds in all its queues at once
      if waiting then
        for i = 1, charges do
          if queues(i) then wait = max(wait, waits[i]) end
        end
      end
      for i = 1, charges do
        local n = min(granted, rooms[i])
        if n > 0 then
          local key = keys[i]
          of[key].take(states[key], now, n * costs[i], of[key].args)
          if wait > 0 and queues(i) then
            of[key].script.delay(states[key], wait - waits[i])
            waits[i] = wait
          end
          touch(key)
        end
      end
      add_outcomes(charges)
    end
    if granted < requests or peeks then
      if granted > 0 then
        for i = 1, charges do peek(i) end
      end
      add_outcomes(charges)
    end
  end
end

call = redis.call
if changes > 0 then
  local receipts = KEYS[#KEYS]
  local last, bits, fence = read_receipts(receipts)
  if number <= fence then return redis.error_reply('LATE the gateway no longer waits for this call') end
  if last < known then return redis.error_reply('FORGOT Redis has lost a call that it had confirmed') end
  write_receipt(receipts, number, last, bits, fence)
  result[2] = 1
end
for i = 1, changes do
  local key = changed[i]
  local value, ttl = saved(key)
  if value then
    call('SET', KEYS[key], value, 'PX', ttl)
  else
    call('DEL', KEYS[key])
  end
end

return cmsgpack.pack(result)

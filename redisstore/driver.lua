-- Decides a batch of requests, each all or nothing. In front of this text stands
--
--	local gateway, lease
--	local scripts = { (function() ... end)(), ... }
--
-- with the source of each algorithm, see limit.Script.
--
-- KEYS  the counters that the batch touches
-- ARGV  in order, all of them numbers:
--   now       the caller's moment for tests; 0: Redis' clock decides
--   grace     milliseconds that keys outlive their expiry
--   gateway   a number that tells this gateway from others
--   lease     microseconds for which it may be believed to live
--   limits    how many, and for each: its script, how many arguments, the arguments
--   keys      for each of KEYS: its limit
--   gives     how many, and for each: the key, the moment of the charge, the cost
--   takes     how many, and for each: how many equal requests it stands for, how many
--             charges, and for each charge: its key, the cost, 1 if it is a shadow
--   renewals  how many, and for each: the key, how many this gateway has inside
--
-- Returns now, and for each of takes: how many of the equal requests are granted, or -1
-- if a key holds something else. If some are, there follow for each charge allowed (1 or
-- 0), wait, remaining and reset before the first of them, and if some are not, the same
-- after the last that is.

local next_arg = 0
local function arg()
  next_arg = next_arg + 1
  return tonumber(ARGV[next_arg])
end

local now, grace = arg(), arg()
gateway, lease = arg(), arg() -- locals of the text in front, for the scripts to see
if now == 0 then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end

local limits = {}
for i = 1, arg() do
  local script, args = scripts[arg()], {}
  for j = 1, arg() do args[j] = arg() end
  limits[i] = {script = script, args = args}
end
local of = {}
for i = 1, #KEYS do of[i] = limits[arg()] end

-- States are read when they are first needed, and written once at the end.
local states, dirty = {}, {}
local function state(key)
  local s = states[key]
  if s == nil then
    local l = of[key]
    local value = redis.pcall('GET', KEYS[key])
    if type(value) == 'table' and value.err then
      if not value.err:find('WRONGTYPE', 1, true) then error(value.err) end
      s = false
    else
      local ok, loaded = pcall(l.script.load, value, l.args)
      s = ok and loaded
    end
    states[key] = s
  end
  return s
end

local result = {now}
local function tell(v) result[#result + 1] = v end

local function look(key, n)
  local l = of[key]
  local allowed, wait, remaining, reset = l.script.look(states[key], now, n, l.args)
  return allowed, wait, remaining, reset
end

local function tell_look(key, n)
  local allowed, wait, remaining, reset = look(key, n)
  tell(allowed and 1 or 0)
  tell(wait)
  tell(remaining)
  tell(reset)
end

local function take(key, n)
  local l = of[key]
  l.script.take(states[key], now, n, l.args)
  dirty[key] = true
end

for _ = 1, arg() do
  local key, moment, n = arg(), arg(), arg()
  if state(key) then
    local l = of[key]
    l.script.give(states[key], moment, n, l.args)
    dirty[key] = true
  end
end

for _ = 1, arg() do
  local requests, charges, foreign = arg(), {}, false
  for i = 1, arg() do
    charges[i] = {key = arg(), cost = arg(), shadow = arg() == 1}
    foreign = foreign or not state(charges[i].key)
  end
  if foreign then
    tell(-1)
  else
    -- Every charge grants as many as what remains has room for.
    local granted, room = requests, {}
    for i, c in ipairs(charges) do
      local allowed, _, remaining = look(c.key, c.cost)
      room[i] = 0
      if allowed then room[i] = math.max(math.floor(remaining / c.cost), 1) end
      if not c.shadow then granted = math.min(granted, room[i]) end
    end
    tell(granted)
    if granted > 0 then
      for _, c in ipairs(charges) do tell_look(c.key, c.cost) end
      for i, c in ipairs(charges) do
        local n = math.min(granted, room[i])
        if n > 0 then take(c.key, n * c.cost) end
      end
    end
    if granted < requests then
      for _, c in ipairs(charges) do tell_look(c.key, c.cost) end
    end
  end
end

for _ = 1, arg() do
  local key, n = arg(), arg()
  if state(key) then
    of[key].script.renew(states[key], now, n)
    dirty[key] = true
  end
end

for key in pairs(dirty) do
  local l = of[key]
  local value, expiry = l.script.save(states[key], l.args)
  local ttl = math.max(math.ceil((expiry - now) / 1000), 0) + grace
  if ttl > 0 then
    redis.call('SET', KEYS[key], value, 'PX', string.format('%.0f', ttl))
  else
    redis.call('DEL', KEYS[key])
  end
end

return result

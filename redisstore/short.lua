-- Decides a short call, see short.go. Most calls are such, and those of a gateway that is not busy have one request. So
-- what they cost Redis matters most. They need few commands, and no functions if the algorithm has a short text, see
-- limit.Script.Short.
--
-- KEYS  as for driver.lua
-- ARGV  S, whether the gateway remembers states as a byte, and number, known and epoch in 7 bytes each. Then for each
--       counter: the script of its limit as a byte, how many arguments that has in 2 bytes, the number of equal requests
--       in 4, and in 7 each the cost and the arguments. A second one, as four doubles, has now, grace, gateway and
--       lease as for driver.lua, if the call needs them
--
-- Returns an error as driver.lua. Otherwise the answer is the moment in 7 bytes, 1 if something has changed or else 0, and
-- for each counter one of three, which begin with a letter. What is in brackets is there if the gateway remembers states, and
-- says nothing if nothing has changed:
--   N  a short text allows all requests. In 4 bytes each the wait, remaining and reset before the first [, how much is used, the
--      time to live, the length of the state, and the state]
--   W  the same with 7 bytes each, but for the length
--   F  by the functions: how many requests are allowed in 4 bytes, or -1 if the key holds a foreign value. If some are, the
--      wait, remaining and reset before the first in 7 bytes each. If some are not, 1 or 0 for allowed, and the same after
--      the last one that is. [How much is used, and when the key expires or 0, in 7 bytes each, the length of the state in
--      4, and the state]
local short = ARGV[1]:byte() == 83 -- S
local now, grace, gateway, lease, remembers, number, known, epoch = 0, 0
local end_of_time = 9007199254740992

-- Of each counter: the answer, its new value, and the time to live of that. Of one that the functions decide, answers has
-- the value as it was read until then, and places where its arguments begin.
local answers, saves, ttls, places
if short then
  remembers, number, known, epoch = struct.unpack('<Bi7i7i7', ARGV[1], 2)
  if ARGV[2] then now, grace, gateway, lease = struct.unpack('<dddd', ARGV[2]) end
  if now == 0 then
    local t = redis.call('TIME')
    now = t[1] * 1000000 + t[2]
  end
  local from, counters = 24, #KEYS - 2
  if counters > 1 then answers, saves, ttls = {nil, nil, nil, nil}, {nil, nil, nil, nil}, {nil, nil, nil, nil} end
  for i = 1, counters do
    local script, size, requests, cost = struct.unpack('<BI2I4i7', ARGV[1], from)
    from = from + 14
    local value = redis.pcall('GET', KEYS[i])
    local n, wait, left, reset, saved, expiry, used, brief = requests * cost, 0 -- the rest is nil
--@short
    if saved and expiry < end_of_time then
      local ttl, letter, form, answer = math.ceil((expiry - now) / 1000) + grace, 78, '<Bi4i4i4i4i4I4', nil -- N
      used = math.ceil(used)
      if math.max(wait, left, reset, used, ttl) > 2147483647 then letter, form = 87, '<Bi7i7i7i7i7I4' end -- W
      if remembers == 1 then
        brief = brief or saved
        answer = struct.pack(form, letter, wait, left, reset, used, ttl, #brief) .. brief
      else
        answer = struct.pack(form:sub(1, 8), letter, wait, left, reset)
      end
      if counters == 1 then -- most calls, which so need no table
        local refusal = admit(number, known, epoch, now)
        if refusal then return refusal end
        redis.call('SET', KEYS[1], saved, 'PX', ttl)
        return struct.pack('<i7B', now, 1) .. answer
      end
      answers[i], saves[i], ttls[i] = answer, saved, ttl
    else
      answers, saves, ttls, places = answers or {nil}, saves or {nil}, ttls or {nil}, places or {nil}
      answers[i], places[i] = value, from
    end
    from = from + 7 * size
  end
  if not places then
    local refusal = admit(number, known, epoch, now)
    if refusal then return refusal end
    for i = 1, counters do redis.call('SET', KEYS[i], saves[i], 'PX', ttls[i]) end
    return struct.pack('<i7B', now, 1) .. table.concat(answers)
  end
end
--@algorithms

-- time_to_live returns that of a key in milliseconds: 0 or less if it is to be deleted, never if it does not expire. A
-- moment at the end of time says so: doubles hold no later one, see bounds.EndOfTime.
local never = math.huge
local function time_to_live(expiry)
  if expiry >= end_of_time then return never end
  if expiry > now then return math.ceil((expiry - now) / 1000) + grace end
  return grace
end

-- whole rounds up. A debt can be larger than a number of MessagePack without a fraction.
local function whole(n) return math.min(math.ceil(n), end_of_time) end

-- keep writes the value of a key, or deletes the key.
local function keep(key, value, ttl)
  if ttl == never then
    redis.call('SET', key, value)
  elseif value and ttl > 0 then
    redis.call('SET', key, value, 'PX', ttl)
  else
    redis.call('DEL', key)
  end
end

-- kept returns what keep leaves of a value, or '', and when that expires, or 0.
local function kept(value, ttl)
  if ttl == never then return value, 0 end
  return value and ttl > 0 and value or '', now + ttl * 1000
end

-- The functions of the algorithms decide what their short texts have left.
if short then
  local made = {}
  for i, from in pairs(places) do
    local script, size, requests, cost = struct.unpack('<BI2I4i7', ARGV[1], from - 14)
    local M = made[script] or scripts[script]()
    made[script] = M
    local a, value, s = {struct.unpack('<' .. ('i7'):rep(size), ARGV[1], from)}, answers[i], nil
    a[size + 1] = nil -- the position behind them
    if type(value) ~= 'table' then
      s = M.load(value, a)
    elseif not value.err:find('WRONGTYPE', 1, true) then
      error(value)
    end
    local granted, outcomes, used, ends = -1, '', 0, now
    if s then
      granted = 0
      local allowed, wait, left, reset = M.peek(s, now, cost, a, 0)
      if allowed then
        granted = 1
        if requests > 1 then granted = math.min(math.max(math.floor(left / cost), 1), requests) end
        M.take(s, now, granted * cost, a)
        outcomes = struct.pack('<i7i7i7', wait, left, reset)
        if granted < requests then allowed, wait, left, reset = M.peek(s, now, cost, a, 0) end
        local saved, expiry = M.save(s, a)
        saves[i], ttls[i] = saved or false, time_to_live(expiry)
        value, ends = kept(saved, ttls[i])
      end
      if granted < requests then outcomes = outcomes .. struct.pack('<Bi7i7i7', allowed and 1 or 0, wait, left, reset) end
    end
    answers[i] = struct.pack('<Bi4', 70, granted) .. outcomes -- F
    if remembers == 1 then
      if not s or not M.used then
        value = ''
      else
        used = whole(M.used(s, now, a))
        if M.brief then value = M.brief(s, now, a) end
      end
      value = value or ''
      answers[i] = answers[i] .. struct.pack('<i7i7I4', used, ends, #value) .. value
    end
  end
  local changed = next(saves) ~= nil
  if changed then
    local refusal = admit(number, known, epoch, now)
    if refusal then return refusal end
    for i, value in pairs(saves) do keep(KEYS[i], value, ttls[i]) end
  end
  return struct.pack('<i7B', now, changed and 1 or 0) .. table.concat(answers)
end

-- Decides a lone call, see lone.go. Most calls of a gateway that is not busy are such, so what they cost Redis matters
-- most. They need few commands, and no tables or functions if the algorithm has a short text, see limit.Script.Short.
--
-- ARGV  L, the script of the limit to the cost as below, and the arguments of the limit in 7 bytes each. A second one, as four
--       doubles, has now, grace, gateway and lease as for driver.lua, if the call needs them
--
-- Returns an error as driver.lua. Otherwise there are three answers, each beginning with a letter:
--   N  all requests are allowed, by a short text. The moment follows in 7 bytes, and in 4 bytes each wait, remaining and
--      reset. If the gateway remembers states, how much is used, the time to live, and the state follow
--   W  the same with 7 bytes each
--   F  by the functions: how many numbers as a byte, and as doubles now to the outcomes as from driver.lua. If something
--      has changed, and the gateway remembers states, how much is used, when the key expires or 0, and the state follow
local lone = ARGV[1]:byte() == 76 -- L
local now, grace, gateway, lease, script, remembers, requests, number, known, epoch, cost, value = 0, 0
if lone then
  script, remembers, requests, number, known, epoch, cost = struct.unpack('<BBI4i7i7i7i7', ARGV[1], 2)
  if ARGV[2] then now, grace, gateway, lease = struct.unpack('<dddd', ARGV[2]) end
  if now == 0 then
    local t = redis.call('TIME')
    now = t[1] * 1000000 + t[2]
  end
  value = redis.pcall('GET', KEYS[1])
  local n, wait, left, reset, saved, expiry, used, brief = requests * cost, 0 -- the rest is nil
--@short
  if saved and expiry < 9007199254740992 then -- end_of_time
    local refusal = admit(number, known, epoch, now)
    if refusal then return refusal end
    local ttl = math.ceil((expiry - now) / 1000) + grace
    redis.call('SET', KEYS[1], saved, 'PX', ttl)
    used = math.ceil(used)
    local letter, form = 78, '<BI7I4I4I4I4I4' -- N
    if math.max(wait, left, reset, used, ttl) > 4294967295 then letter, form = 87, '<BI7I7I7I7I7I7' end -- W
    if remembers == 0 then return struct.pack(form:sub(1, 10), letter, now, wait, left, reset) end
    return struct.pack(form, letter, now, wait, left, reset, used, ttl) .. (brief or saved)
  end
end
--@algorithms

-- time_to_live returns that of a key in milliseconds: 0 or less if it is to be deleted, never if it does not expire. A
-- moment at the end of time says so: doubles hold no later one, see bounds.EndOfTime.
local never, end_of_time = math.huge, 9007199254740992
local function time_to_live(expiry, now, grace)
  if expiry >= end_of_time then return never end
  if expiry > now then return math.ceil((expiry - now) / 1000) + grace end
  return grace
end

-- whole rounds up. A debt can be larger than a number of MessagePack without a fraction.
local function whole(n) return math.min(math.ceil(n), end_of_time) end

-- keep writes the value of a key. It returns what it has written, or '', and when that expires, or 0.
local function keep(key, value, ttl, now)
  if ttl == never then
    redis.call('SET', key, value)
    return value, 0
  elseif value and ttl > 0 then
    redis.call('SET', key, value, 'PX', ttl)
  else
    redis.call('DEL', key)
    value = ''
  end
  return value, now + ttl * 1000
end

-- The functions of the algorithm decide a lone call that its short text has left.
if lone then
  local M, a, s = scripts[script](), {struct.unpack('<' .. ('i7'):rep((#ARGV[1] - 35) / 7), ARGV[1], 36)}, nil
  a[#a] = nil -- the position behind them
  if type(value) ~= 'table' then
    s = M.load(value, a)
  elseif not value.err:find('WRONGTYPE', 1, true) then
    error(value)
  end
  if not s then return struct.pack('<BBddd', 70, 3, now, 0, -1) end
  local allowed, wait, left, reset = M.peek(s, now, cost, a, 0)
  if not allowed then return struct.pack('<BBddddddd', 70, 7, now, 0, 0, 0, wait, left, reset) end

  local refusal = admit(number, known, epoch, now)
  if refusal then return refusal end
  local granted = requests
  if granted > 1 then granted = math.min(math.max(math.floor(left / cost), 1), granted) end
  M.take(s, now, granted * cost, a)
  local answer = struct.pack('<ddddddd', now, 1, granted, 1, wait, left, reset)
  if granted < requests then
    allowed, wait, left, reset = M.peek(s, now, cost, a, 0)
    answer = answer .. struct.pack('<dddd', allowed and 1 or 0, wait, left, reset)
  end
  answer = string.char(70, #answer / 8) .. answer
  local saved, expiry = M.save(s, a)
  local kept, ends = keep(KEYS[1], saved, time_to_live(expiry, now, grace), now)
  if remembers == 0 then return answer end
  if not M.used then return answer .. struct.pack('<dd', 0, ends) end
  if M.brief then kept = M.brief(s, now, a) end
  return answer .. struct.pack('<dd', whole(M.used(s, now, a)), ends) .. kept
end

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

-- The rest decides a call that holds nothing but equal requests with one charge, as most calls of a gateway that is not
-- busy do. It decides and answers as driver.lua, with fewer tables and closures.
--
-- ARGV  no array, but the elements alone as MessagePack: now to remembers as for driver.lua, the script of the limit,
--       how many requests, their cost, and an array of the limit's arguments
local array = 0xdd -- the first byte of one
if ARGV[1]:byte() ~= array then
  local now, grace, number, known, epoch, remembers, script, requests, cost, a
  now, grace, gateway, lease, number, known, epoch, remembers, script, requests, cost, a = cmsgpack.unpack(ARGV[1])
  local call, answer = redis.call, cmsgpack.pack
  if now == 0 then
    local t = call('TIME')
    now = t[1] * 1000000 + t[2]
  end

  local M, value, s = scripts[script](), redis.pcall('GET', KEYS[1]), nil
  if type(value) ~= 'table' then
    s = M.load(value, a)
  elseif not value.err:find('WRONGTYPE', 1, true) then
    error(value)
  end
  if not s then return answer({now, 0, -1}) end
  local allowed, wait, left, reset = M.peek(s, now, cost, a, 0)
  if not allowed then return answer({now, 0, 0, 0, wait, left, reset}) end

  local refusal = admit(number, known, epoch, now)
  if refusal then return refusal end
  local granted = requests
  if granted > 1 then granted = math.min(math.max(math.floor(left / cost), 1), granted) end
  M.take(s, now, granted * cost, a)
  local result = {now, 1, granted, 1, wait, left, reset}
  if granted < requests then
    allowed, wait, left, reset = M.peek(s, now, cost, a, 0)
    result[8], result[9], result[10], result[11] = allowed and 1 or 0, wait, left, reset
  end
  local saved, expiry = M.save(s, a)
  local kept, ends = keep(KEYS[1], saved, time_to_live(expiry, now, grace), now)
  if remembers == 0 then return answer(result) end
  if not M.used then return answer(result, {''}, {0, ends}) end
  if M.brief then kept = M.brief(s, now, a) end
  return answer(result, {kept}, {whole(M.used(s, now, a)), ends})
end

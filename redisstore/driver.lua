-- Decides a batch of requests, each all or nothing. Before this text are receipts.lua and short.lua, with the source of
-- each algorithm, see limit.Script. Redis keeps nothing from call to call, so a call makes functions and tables only when
-- it needs them.
--
-- KEYS  the counters of the batch, the epoch, and the receipts, see receipts.lua. The base of a counter, see
--       below, has the counter's key and a = behind it, so it is in the same slot of a Cluster.
-- ARGV  one array of whole numbers as MessagePack, which Redis unpacks several times faster
--       than as many arguments. In order:
--   now       the caller's moment for tests; 0: Redis' clock decides
--   grace     milliseconds that keys outlive their expiry
--   gateway   the number of this gateway
--   lease     microseconds for which other gateways assume that it lives
--   number    of this call
--   known     the newest call, or fence, that Redis has confirmed; 0: none is compared
--   epoch     that this gateway knows
--   remembers 1 if it remembers states, else 0
--   limits    how many, and for each: its script, how many arguments, the arguments
--   restores  how many, and for each: the key, the limit, the moments of a state's base and of the state, the state
--   renewals  how many, and for each: the key, the limit, how many slots this gateway holds
--   debits    how many, and for each: the key, the limit, the cost
--   refunds   how many, and for each: the key, the limit, the moment of the charge or, below
--             0, the scheduled time that is left, the cost
--   resets    how many, and for each: the key, the limit
--   takes     how many, and for each: how many equal requests it stands for, or -1 for one with
--             its own scheduled time, -2 for one with a longest wait, -3 for both, -4 for one
--             that only peeks; how many charges, and for each charge: its key, its limit, below
--             0 for a shadow that becomes a debit if it is refused; the cost, or -1 minus the
--             cost of a shadow; and with -2, -3 and -4 the longest wait
--
-- Returns an error, and changes nothing, if the call arrives too late, or Redis has lost the
-- confirmed call, or the epoch is newer. Otherwise it returns an array in the same form:
--   now
--   changed   1 if something has changed, else 0
--   takes     for each: how many of the equal requests are allowed, or -1 if a key holds a
--             foreign value. If some are allowed, the outcomes before the first of them follow.
--             With debits, first the number of those follows that need no debit, and last the
--             outcomes before each of the others. If some are not allowed, or the request only
--             peeks, the outcomes after the last allowed one follow. An outcome has for each
--             charge: allowed (1 or 0), wait, remaining, reset
-- If something has changed or states were put back, and the gateway remembers states, two arrays follow. The first has
-- for each counter its state, or '' if there is none to remember. The second has three numbers for each. They are how
-- much is used, when its key expires or 0, and the moment of its base or -1.

local args, next_arg = cmsgpack.unpack(ARGV[1]), 0
local function arg()
  next_arg = next_arg + 1
  return args[next_arg]
end

local call, KEYS, type = redis.pcall, KEYS, type
local min, max, floor = math.min, math.max, math.floor

-- Locals of the text before this one, which the scripts read.
now, grace, gateway, lease = arg(), arg(), arg(), arg()
number, known, epoch, remembers = arg(), arg(), arg(), arg()
if now == 0 then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

-- Tables start with room for the usual few elements, because growing one is slower than filling it.
local limits = {nil, nil, nil, nil}
local made = {}
for i = 1, arg() do
  local number, n = arg(), arg()
  local script = made[number] or scripts[number]()
  made[number] = script
  limits[i] = {
    script = script, load = script.load, peek = script.peek, take = script.take, save = script.save,
    args = {unpack(args, next_arg + 1, next_arg + n)},
  }
  next_arg = next_arg + n
end

-- States are read when they are first needed, and written once at the end. of is the limit that
-- evaluates a state at the time.
local states, of, changes = {nil, nil, nil, nil}, {nil, nil, nil, nil}, 0
local is_changed, changed = {nil, nil, nil, nil}, {nil, nil, nil, nil}
local read = {nil, nil, nil, nil} -- the values of states as they were read

-- Values of counters that another limit evaluates than the one that changed them last, and their
-- times to live: nil if there are none.
local values, ttls

-- saved returns the value of a key, or false if the key is to be deleted, and its time to live.
local function saved(key)
  if values and values[key] ~= nil then return values[key], ttls[key] end
  local l = of[key]
  local value, expiry = l.save(states[key], l.args)
  local ttl = time_to_live(expiry)
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
    if not value or type(value) == 'string' then
      read[key] = value
      s = l.load(value, l.args) or false
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

-- debit charges a state that was read, into debt if need be. A debit of 0 changes nothing.
local function debit(key, n)
  if n == 0 then return end
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

-- For restore_time after a loss, gateways put back the states that they remember: see remember.go. A state that was
-- put back is kept as the base of the counter, with its moments. A newer state replaces it, and all charges since are
-- charged again. A counter that is charged before anybody puts it back has the state that the
-- loss has left as its base, at moment 0.
--
-- If Redis loses its memory again before all gateways have put back what they remember, a state lacks what others
-- had remembered. So the state with the newer base wins, and among those with the same base the newer state.
--
-- An old copy can have bases of an earlier loss. So each has its epoch.
--
-- While a slot of a Cluster moves, a base can be at the other node. Then the call continues without it, because an error after
-- the receipt is written would lose its charges.
local restore_time = 10000000
local bases, newest -- newest is the epoch

local function pack_base(rank, moment, value) return struct.pack('<ddd', newest, rank, moment) .. (value or '') end

-- base_of returns the moments of the base of a key, and its value or false. Without a base it returns nil.
local function base_of(key)
  local base = redis.pcall('GET', KEYS[key] .. '=')
  if type(base) ~= 'string' or #base < 24 then return nil end
  local of, rank, moment = struct.unpack('<ddd', base)
  if of ~= newest then return nil end
  return rank, moment, #base > 24 and base:sub(25)
end

local function restore(key, l, rank, moment, value)
  local s, a = state(key, l), l.args
  local new = l.load(value, a)
  if not s or not new then return end
  local since, r, at, old = 0, base_of(key)
  if r then
    old = l.load(old, a) or l.load(false, a)
    local before = l.script.used(old, now, a)
    if rank < r or rank == r and (moment < at or moment == at and l.script.used(new, now, a) <= before) then return end
    since = floor(l.script.used(s, now, a) - before + 0.5)
  end
  states[key] = new
  touch(key)
  if since > 0 then
    debit(key, since)
  elseif since < 0 then
    l.script.refund(new, moment, -since, a)
  end
  bases[key] = pack_base(rank, moment, value)
end

for i = 1, arg() do
  if i == 1 then
    newest = read_epoch(KEYS[#KEYS - 1])
    if now < newest + restore_time then bases = {} end
  end
  local key, l, rank, moment, value = arg(), limits[arg()], arg(), arg(), arg()
  if bases and l.script.used then restore(key, l, rank, moment, value) end
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
  if state(key, l) then debit(key, n) end
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
  states[key], of[key], read[key] = l.script.load(false, l.args), l, nil
  touch(key)
end

local result, filled = {now, 0, nil, nil, nil, nil, nil, nil}, 2

-- add_outcome fills the result in order, because out of order a table grows slowly.
local function add_outcome(is_allowed, wait, left, reset)
  local at = filled
  result[at + 1] = is_allowed and 1 or 0
  result[at + 2] = wait
  result[at + 3] = left
  result[at + 4] = reset
  filled = at + 4
end

-- take_one decides requests with one charge, which is the most frequent work. It does the same as
-- take_all without tables.
local function take_one(requests)
  local key, l, cost = args[next_arg + 1], limits[args[next_arg + 2]], args[next_arg + 3]
  next_arg = next_arg + 3
  local s = state(key, l)
  filled = filled + 1
  if not s then
    result[filled] = -1
    return
  end
  local granted, is_allowed, wait, left, reset = 0, l.peek(s, now, cost, l.args, 0)
  if is_allowed then
    granted = 1
    if requests > 1 then granted = min(max(floor(left / cost), 1), requests) end
  end
  result[filled] = granted
  if granted > 0 then
    l.take(s, now, granted * cost, l.args)
    touch(key)
    add_outcome(true, wait, left, reset)
    if granted == requests then return end
    is_allowed, wait, left, reset = l.peek(s, now, cost, l.args, 0)
  end
  add_outcome(is_allowed, wait, left, reset)
end

-- new_take_all returns a function that decides requests with any number of charges.
local function new_take_all()
  -- The charges of the current request, and what peek returns for each.
  local keys, costs = {nil, nil, nil, nil}, {nil, nil, nil, nil}
  local shadows, rooms = {nil, nil, nil, nil}, {nil, nil, nil, nil}
  local allowed, waits = {nil, nil, nil, nil}, {nil, nil, nil, nil}
  local remaining, resets = {nil, nil, nil, nil}, {nil, nil, nil, nil}
  local longest, debits = {nil, nil, nil, nil}, {nil, nil, nil, nil}

  local function peek(i)
    local l = of[keys[i]]
    allowed[i], waits[i], remaining[i], resets[i] = l.peek(states[keys[i]], now, costs[i], l.args, longest[i])
    rooms[i] = allowed[i] and max(floor(remaining[i] / costs[i]), 1) or 0
  end

  local function queues(i) return allowed[i] and not shadows[i] and of[keys[i]].script.delay end

  local function add_outcomes(charges)
    for i = 1, charges do add_outcome(allowed[i], waits[i], remaining[i], resets[i]) end
  end

  -- charge makes the charges of so many equal requests, as far as there is room, and debits of one.
  local function charge(requests, charges, waiting)
    local wait = 0 -- the longest wait: the request proceeds in all its queues at once
    if waiting then
      for i = 1, charges do
        if queues(i) then wait = max(wait, waits[i]) end
      end
    end
    for i = 1, charges do
      local n = min(requests, rooms[i])
      if n > 0 then
        local key = keys[i]
        local l = of[key]
        l.take(states[key], now, n * costs[i], l.args)
        if wait > 0 and queues(i) then
          l.script.delay(states[key], wait - waits[i])
          waits[i] = wait
        end
        touch(key)
      elseif debits[i] then
        debit(keys[i], costs[i])
      end
    end
    add_outcomes(charges)
  end

  return function(requests, charges)
    local foreign, debiting = false, false
    local waiting, reserves, peeks = requests == -1 or requests == -3, requests < -1, requests == -4
    if requests < 0 then requests = peeks and 0 or 1 end
    for i = 1, charges do
      local key, l, cost = args[next_arg + 1], args[next_arg + 2], args[next_arg + 3]
      local shadow = cost < 0
      keys[i], costs[i], shadows[i], debits[i] = key, shadow and -cost - 1 or cost, shadow, l < 0
      if l < 0 then l, debiting = -l, true end
      foreign = foreign or not state(key, limits[l])
      next_arg = next_arg + 3
      longest[i] = 0
      if reserves then longest[i] = arg() end
    end
    filled = filled + 1
    if foreign then
      result[filled] = -1
      return
    end
    -- Every charge allows as many requests as remain. The first whole ones need no debit.
    local granted = requests
    for i = 1, charges do
      peek(i)
      if not shadows[i] and rooms[i] < granted then granted = rooms[i] end
    end
    result[filled] = granted
    local whole = granted
    if debiting and granted > 0 then
      for i = 1, charges do
        if debits[i] and rooms[i] < whole then whole = rooms[i] end
      end
      filled = filled + 1
      result[filled] = whole
    end
    if whole > 0 then charge(whole, charges, waiting) end
    for n = whole + 1, granted do
      if n > 1 then
        for i = 1, charges do peek(i) end
      end
      charge(1, charges, waiting)
    end
    if granted < requests or peeks then
      if granted > 0 then
        for i = 1, charges do peek(i) end
      end
      add_outcomes(charges)
    end
  end
end
local take_all

for _ = 1, arg() do
  local requests, charges = args[next_arg + 1], args[next_arg + 2]
  next_arg = next_arg + 2
  if charges == 1 and requests > 0 and args[next_arg + 3] > 0 then
    take_one(requests)
  else
    take_all = take_all or new_take_all()
    take_all(requests, charges)
  end
end

call = redis.call
if changes == 0 and not bases then return cmsgpack.pack(result) end

if changes > 0 then
  local refusal
  refusal, newest = admit(number, known, epoch, now)
  if refusal then return refusal end
  result[2] = 1
end
local restoring = now < newest + restore_time

-- keep_base keeps what was put back, or what was there before the first change after a loss. A reset is newer than
-- all that was remembered before it.
local function keep_base(key)
  local name, base = KEYS[key] .. '=', bases and bases[key]
  if not base and read[key] == nil then
    base = pack_base(now, now)
  elseif not base and not base_of(key) then
    base = pack_base(0, 0, read[key])
  end
  if base then redis.pcall('SET', name, base, 'PX', restore_time / 1000) end
end

local left, ends = {nil, nil, nil, nil}, {nil, nil, nil, nil}
for i = 1, changes do
  local key = changed[i]
  local value, ttl = saved(key)
  if restoring and of[key].script.used then keep_base(key) end
  keep(KEYS[key], value, ttl)
  left[key], ends[key] = kept(value, ttl)
end
if remembers == 0 then return cmsgpack.pack(result) end

local uses = {nil, nil, nil, nil, nil, nil, nil, nil}
for key = 1, #KEYS - 2 do
  local s, l, used, rank = states[key], of[key], 0, -1
  if not s or not l.script.used then
    left[key] = ''
  else
    used = whole(l.script.used(s, now, l.args))
    if l.script.brief then
      left[key] = l.script.brief(s, now, l.args)
    else
      left[key] = left[key] or read[key] or ''
    end
  end
  if restoring then
    rank = base_of(key) or 0
  end
  uses[3 * key - 2], uses[3 * key - 1], uses[3 * key] = used, ends[key] or now, rank
end
return cmsgpack.pack(result, left, uses)

-- The decisions of a minute: a hash with a value for each gateway. The value has five numbers: allowed,
-- refused, refused in shadow mode, delayed, and the number of the report that wrote it.
local minutes_live = 90000000 -- milliseconds: a day and an hour

-- add_minute keeps the larger of each number, so that a report may be repeated and may arrive late.
local function add_minute(key, gateway, sent)
  local have, i = redis.call('HGET', key, gateway) or '', 0
  for n in have:gmatch('%d+') do
    i = i + 1
    if tonumber(n) > tonumber(sent[i]) then sent[i] = n end
  end
  local value = table.concat(sent, ' ')
  if value ~= have then
    redis.call('HSET', key, gateway, value)
    redis.call('PEXPIRE', key, minutes_live)
  end
end

-- report_minutes adds the minutes in text to the keys from the fifth on. If known is '1', the first of
-- these keys is only read: the gateway knows that Redis has had a report in it. The function returns the
-- number of the newest report in that key.
local function report_minutes(gateway, known, text)
  local newest, at, sent = '0', 5, {}
  if known == '1' then
    newest, at = (redis.call('HGET', KEYS[5], gateway) or ''):match('%d+$') or '0', 6
  end
  for n in text:gmatch('%d+') do
    sent[#sent + 1] = n
    if #sent == 5 then
      add_minute(KEYS[at], gateway, sent)
      at, sent = at + 1, {}
    end
  end
  return newest
end

-- The sums of minutes over all gateways.
--
-- KEYS  the minutes, see minutes.lua
--
-- Returns an array with a string of five numbers for each key. They are the number of gateways that have
-- reported the minute, and the sums of the first four numbers of each value.
local answer = {}
for k = 1, #KEYS do
  local gateways, sums = 0, {0, 0, 0, 0}
  for _, value in ipairs(redis.call('HVALS', KEYS[k])) do
    local i = 0
    for n in value:gmatch('%d+') do
      i = i + 1
      if i <= 4 then sums[i] = sums[i] + tonumber(n) end
    end
    gateways = gateways + 1
  end
  answer[k] = string.format('%d %.0f %.0f %.0f %.0f', gateways, sums[1], sums[2], sums[3], sums[4])
end
return answer

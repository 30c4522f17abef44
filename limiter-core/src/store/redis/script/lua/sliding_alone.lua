-- A lone decision of the sliding window: a batch of one call about one counter. Most of them end here, before the script
-- makes any function. sliding_at_once.lua has the same arithmetic. A test compares both with sliding_window.lua.
--
-- A log whose newest stamp is not ahead of the clock is decided here, unless a long one has to be written whole or has as
-- many runs as a log keeps. For any other value, for an error of the server and for a call that costs nothing or too
-- much, the script goes on. Nothing has been written then.
--
-- Reply    the stamp in µs (8), and the 24 bytes of batch.lua, in one string

-- The value, if this part has read it: false if there is none.
local lone_value
if #KEYS == 1 and ARGV[2] == 'sliding_window' and ARGV[7] == '1' then
  local HEADER, RUN, VERSION, CAPACITY, WRAP, MAX_WINDOW = 11, 8, 1, 128, 4294967296, 1073741824
  local MIN_APPEND_BYTES, MAX_APPEND_BYTES = 256, 1256
  local FORMAT, EXPIRY_SLACK_MS = '>I8I4I4i8i8', 500
  local key, window, limit, cost = KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[6])
  local unpack, pack, floor, min = struct.unpack, struct.pack, math.floor, math.min
  local value = redis.pcall('GET', key)
  lone_value = value
  local size, stamp, new, left, write_offset, stored = 0, nil, nil, nil, nil, nil
  local cell = window >= 800 and 100 or window >= 16 and floor(window / 8) or 1
  if type(value) == 'string' then
    size = #value
  end
  local is_simple = cost >= 1 and cost <= limit and window <= MAX_WINDOW and size <= MAX_APPEND_BYTES
  if is_simple and not value then
    new, stamp, left = pack('>BI6I4I4I4', VERSION, now_ceil, 0, 0, cost), now_ceil, limit - cost
  elseif is_simple and size > HEADER and size % 8 == 3 then
    local version, base, before, first = unpack('>BI6I4I4', value)
    local newest, total = unpack('>I4I4', value, size - 7)
    local live, expired = 1, now_floor - window - base
    stamp = base + newest
    local is_current = version == VERSION and stamp <= now_floor + 1
    if is_current and newest <= expired then
      new, stamp, left = pack('>BI6I4I4I4', VERSION, now_ceil, 0, 0, cost), now_ceil, limit - cost
    elseif is_current then
      local last = (size - HEADER) / RUN
      if first <= expired then
        local high, step = 2, 2
        live = 2
        while high < last and unpack('>I4', value, HEADER + (high - 1) * RUN + 1) <= expired do
          live, high, step = high + 1, min(high + step, last), step * 2
        end
        while live < high do
          local middle = floor((live + high) / 2)
          if unpack('>I4', value, HEADER + (middle - 1) * RUN + 1) > expired then high = middle else live = middle + 1 end
        end
        before = unpack('>I4', value, HEADER + (live - 2) * RUN + 5)
      end
      left = limit - (total - before) % WRAP - cost
      if left < 0 then
        -- The first run after whose expiry the call fits, before the newest one.
        local low, high = live, last
        while low < high do
          local middle = floor((low + high) / 2)
          local sum = unpack('>I4', value, HEADER + (middle - 1) * RUN + 5)
          if (sum - before) % WRAP + left >= 0 then high = middle else low = middle + 1 end
        end
        local freeing = base + unpack('>I4', value, HEADER + (low - 1) * RUN + 1)
        local retry = ((freeing < stamp and freeing or stamp) + window) * 1000 - now_micros
        return pack(FORMAT, now_micros, 0, left + cost > 0 and left + cost or 0, retry > 0 and retry or 0,
          (stamp + window) * 1000 - now_micros)
      end
      local offset, kept = now_ceil - base, -1
      if offset <= newest then
        offset, kept = newest, -9
      end
      local stamped_at = base + offset
      local is_same_cell = stamped_at - stamped_at % cell == stamp - stamp % cell
      if offset < WRAP and (size <= MIN_APPEND_BYTES or is_same_cell and last - live + 1 < CAPACITY) then
        stamp = stamped_at
        new = pack('>I4I4', offset, (total + cost) % WRAP)
        if size > MIN_APPEND_BYTES then
          write_offset = string.format('%d', size + kept + 1)
        elseif live > 1 then
          new = pack('>BI6I4', VERSION, base, before) .. string.sub(value, HEADER + (live - 1) * RUN + 1, kept) .. new
        elseif kept == -1 then
          new = value .. new
        else
          new = string.sub(value, 1, kept) .. new
        end
      end
    end
  end
  if new then
    if write_offset then
      stored = redis.pcall('SETRANGE', key, write_offset, new)
    else
      local ttl = string.format('%d', stamp - stamp % cell + cell + window - now_floor + EXPIRY_SLACK_MS)
      if value then
        stored = redis.pcall('SET', key, new, 'PX', ttl)
      else
        stored = redis.pcall('SET', key, new, 'PX', ttl, 'NX')
      end
    end
    if type(stored) == 'number' or stored and stored.ok then
      return pack(FORMAT, now_micros, 1, left, 0, (stamp + window) * 1000 - now_micros)
    end
  end
end

-- Simple decisions of the sliding window: a batch of entries of one kind, each of one call or one charge. Most batches end here,
-- before the script makes any function; so does a lone call, which is a batch of one entry. sliding_at_once.lua has the
-- same arithmetic. A test compares both with sliding_window.lua.
--
-- Each value is read right before its decision, so a key may come again. A log whose newest stamp is not ahead of the
-- clock is decided here, if its next stamp fits. At the first entry with any other value or with an error of the server
-- this part stops, and batch.lua decides that entry and those after it. Nothing has been written for them then. Calls
-- that cost nothing or too much are left to batch.lua from the start.
--
-- Reply    as in batch.lua. For a lone call the stamp in µs (8), and the 24 bytes of batch.lua, in one string

-- The number of entries that this part has decided, and their packed replies.
local decided, packed = 0, ''
-- The value of a lone call, if this part has read it: false if there is none.
local lone_value
local is_charge = ARGV[7] == '+'
if ARGV[1] == '1' and ARGV[2] == 'sliding_window' and (ARGV[7] == '1' or is_charge) then
  local HEADER, RUN, VERSION, CAPACITY, WRAP, MAX_WINDOW = 11, 8, 1, 128, 4294967296, 1073741824
  local MIN_APPEND_BYTES, MAX_APPEND_BYTES, EXPIRY_SLACK_MS = 256, 1256, 500
  local keys, window, limit, cost = KEYS, tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[6])
  local unpack, pack, floor, min, call = struct.unpack, struct.pack, math.floor, math.min, redis.pcall
  local cell = window >= 800 and 100 or window >= 16 and floor(window / 8) or 1
  local entries = cost >= 1 and (is_charge or cost <= limit) and window <= MAX_WINDOW and #keys or 0
  -- Made with room for a few entries, so that it does not grow at each of them.
  local replies = entries > 1 and { '', '', '', '' }
  -- The cell of the stamps that this call writes, which are all the same. So is the expiry.
  local cell_start, ttl_text = now_ceil - now_ceil % cell, nil
  for index = 1, entries do
    local key = keys[index]
    local value = call('GET', key)
    -- An error is a table of length 0.
    local size = value and #value or 0
    local stamp, new, write_offset, granted, left, retry, counted = nil, nil, nil, nil, nil, 0, cost
    if not value then
      new, stamp, left = pack('>BI6I4I4I4', VERSION, now_ceil, 0, 0, cost), now_ceil, limit - cost
    elseif size > HEADER and size % 8 == 3 then
      local version, base, before, first = unpack('>BI6I4I4', value)
      local newest, total = unpack('>I4I4', value, size - 7)
      local live, expired = 1, now_floor - window - base
      stamp = base + newest
      local is_current = version == VERSION and stamp <= now_ceil
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
            local offset = unpack('>I4', value, HEADER + (middle - 1) * RUN + 1)
            if offset > expired then high = middle else live = middle + 1 end
          end
          before = unpack('>I4', value, HEADER + (live - 2) * RUN + 5)
        end
        local used = (total - before) % WRAP
        if is_charge and cost > WRAP - 1 - used then
          counted = WRAP - 1 - used
        end
        left = limit - used - counted
        if counted == 0 then
          granted = 0
        elseif left < 0 and not is_charge then
          -- The first run after whose expiry the call fits, before the newest one.
          local low, high = live, last
          while low < high do
            local middle = floor((low + high) / 2)
            local sum = unpack('>I4', value, HEADER + (middle - 1) * RUN + 5)
            if (sum - before) % WRAP + left >= 0 then high = middle else low = middle + 1 end
          end
          local freeing = base + unpack('>I4', value, HEADER + (low - 1) * RUN + 1)
          retry = ((freeing < stamp and freeing or stamp) + window) * 1000 - now_micros
          granted, left, retry = 0, left + cost > 0 and left + cost or 0, retry > 0 and retry or 0
        else
          -- `kept`: the last byte of the runs that stay, counted from the end.
          local offset, kept = now_ceil - base, -1
          if offset == newest then
            kept = -9
          elseif last - live + 1 >= CAPACITY then
            local run_cell = math.ceil(window / CAPACITY)
            if floor(now_ceil / run_cell) == floor(stamp / run_cell) then kept = -9 end
          end
          if offset < WRAP then
            new = pack('>I4I4', offset, (total + counted) % WRAP)
            if size > MIN_APPEND_BYTES and size <= MAX_APPEND_BYTES and stamp >= cell_start then
              -- The server would format a number as a decimal fraction.
              write_offset = string.format('%d', size + kept + 1)
            elseif live > 1 then
              local runs = string.sub(value, HEADER + (live - 1) * RUN + 1, kept)
              new = pack('>BI6I4', VERSION, base, before) .. runs .. new
            elseif kept == -1 then
              new = value .. new
            else
              new = string.sub(value, 1, kept) .. new
            end
            stamp = now_ceil
          end
        end
      end
    end
    if new then
      if write_offset then
        granted = type(call('SETRANGE', key, write_offset, new)) == 'number' and 1
      else
        ttl_text = ttl_text or string.format('%d', cell_start + cell + window - now_floor + EXPIRY_SLACK_MS)
        local stored
        if value then
          stored = call('SET', key, new, 'PX', ttl_text)
        else
          stored = call('SET', key, new, 'PX', ttl_text, 'NX')
        end
        granted = stored and stored.ok and 1
      end
    end
    if not granted then
      lone_value = value
      break
    end
    local reset = (stamp + window) * 1000 - now_micros
    if is_charge then
      granted, left, retry = counted, left > 0 and left or 0, left < 0 and -left or 0
    end
    if entries == 1 then
      return pack('>I8I4I4i8i8', now_micros, granted, left, retry, reset)
    end
    replies[index], decided = pack('>I4I4i8i8', granted, left, retry, reset), index
  end
  if decided > 0 then
    packed = table.concat(replies, '', 1, decided)
    if decided == entries then
      return { now_micros, packed }
    end
  end
end

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
local words = ARGV
local is_charge = words[7] == '+'
if words[1] == '1' and words[2] == 'sliding_window' and (is_charge or words[7] == '1') then
  local HEADER, RUN, VERSION, CAPACITY, WRAP, MAX_UNITS = 11, 8, 1, 128, 4294967296, 16777216
  local SHORT, SHORT_RUN, MAX_SHORT_BYTES, MAX_SHORT_RUNS, MAX_RUN_PERMITS, SHORT_AGAIN = 7, 4, 63, 14, 255, 7
  local MIN_APPEND_BYTES, MAX_APPEND_BYTES, EXPIRY_SLACK_MS = 256, 1256, 500
  -- Arithmetic reads a number faster than a function.
  local keys, window, limit, cost = KEYS, words[3] + 0, words[4] + 0, words[6] + 0
  local unpack, pack, byte, sub, floor, call = struct.unpack, struct.pack, string.byte, string.sub, math.floor, redis.pcall
  local cell = window >= 800 and 100 or window >= 16 and floor(window / 8) or 1
  local unit = 1
  while unit * MAX_UNITS < window do unit = unit * 2 end
  local entries = cost >= 1 and (is_charge or cost <= limit) and #keys or 0
  -- Made with room for a few entries, so that it does not grow at each of them.
  local replies = entries > 1 and { '', '', '', '' }
  -- A log that begins anew, and the last expiry as text: mostly those of all entries.
  local fresh, ttl, ttl_text
  for index = 1, entries do
    local key = keys[index]
    local value = call('GET', key)
    -- An error is a table of length 0.
    local size = value and #value or 0
    local stamp, new, write_offset, granted, left, retry, counted = nil, nil, nil, nil, nil, 0, cost
    local is_fresh, version, base, first, permits, header = not value, nil, nil, nil, nil, nil
    if size <= MAX_SHORT_BYTES and size > 7 then
      if size % SHORT_RUN == 0 then
        -- The first run has no gap: it is at the base.
        version, base, permits = unpack('>BI6B', value)
        first, header = 0, 4
      elseif size % SHORT_RUN == 3 then
        version, base, first, permits = unpack('>BI6I3B', value)
        header = 7
      end
    end
    if version == SHORT then
      -- Offsets from the base: `newest` is that of the last run, and `first` will be that of the first live one.
      local newest, used = first, permits
      for at = header + SHORT_RUN + 1, size, 4 * SHORT_RUN do
        local a1, b1, c1, p1, a2, b2, c2, p2, a3, b3, c3, p3, a4, b4, c4, p4 = byte(value, at, at + 15)
        if p4 then
          newest = newest + (a1 + a2 + a3 + a4) * 65536 + (b1 + b2 + b3 + b4) * 256 + c1 + c2 + c3 + c4
          used = used + p1 + p2 + p3 + p4
        elseif p3 then
          newest = newest + (a1 + a2 + a3) * 65536 + (b1 + b2 + b3) * 256 + c1 + c2 + c3
          used = used + p1 + p2 + p3
        elseif p2 then
          newest, used = newest + (a1 + a2) * 65536 + (b1 + b2) * 256 + c1 + c2, used + p1 + p2
        else
          newest, used = newest + a1 * 65536 + b1 * 256 + c1, used + p1
        end
      end
      local expired = (now_floor - window - base) / unit
      stamp = base + newest * unit
      if stamp <= now_ceil and newest <= expired then
        is_fresh = true
      elseif stamp <= now_ceil then
        -- The permits of expired runs, and the place of the first live run.
        local before, at = 0, header + 1
        while first <= expired do
          before, used, at = before + permits, used - permits, at + SHORT_RUN
          local gap
          gap, permits = unpack('>I3B', value, at)
          first = first + gap
        end
        if is_charge and cost > WRAP - 1 - used then
          counted = WRAP - 1 - used
        end
        left = limit - used - counted
        if left < 0 and not is_charge then
          -- The first run after whose expiry the call fits.
          local freeing, freed, freeing_at = first, permits, at
          while freed + left < 0 do
            freeing_at = freeing_at + SHORT_RUN
            local gap, more = unpack('>I3B', value, freeing_at)
            freeing, freed = freeing + gap, freed + more
          end
          retry = (base + freeing * unit + window) * 1000 - now_micros
          granted, left, retry = 0, left + cost > 0 and left + cost or 0, retry > 0 and retry or 0
        else
          local gap, kept, added = (now_ceil - base) / unit - newest, size, counted
          if unit > 1 then
            gap = math.ceil(gap)
          end
          if gap == 0 then
            kept, added = size - SHORT_RUN, counted + byte(value, size)
          end
          if added <= MAX_RUN_PERMITS and gap < MAX_UNITS and kept - at < (MAX_SHORT_RUNS - 1) * SHORT_RUN then
            stamp = stamp + gap * unit
            if gap == 0 then
              new = sub(value, 1, -2) .. string.char(added)
            else
              new = value .. pack('>I3B', gap, added)
            end
            if at > header + 1 then
              -- False for a log whose base must move up.
              new = first < MAX_UNITS and pack('>BI6I3', SHORT, base, first) .. sub(new, at + 3)
            end
          else
            stamp, new = stamp + gap * unit, pack('>BI6I4', VERSION, base, before)
            local offset, total = first, before + permits
            for run_at = at, kept - 3, SHORT_RUN do
              if run_at > at then
                local next_gap, more = unpack('>I3B', value, run_at)
                offset, total = offset + next_gap, total + more
              end
              new = new .. pack('>I4I4', offset, total)
            end
            new = new .. pack('>I4I4', newest + gap, before + used + counted)
          end
        end
      end
    elseif size > HEADER and size % RUN == 3 then
      local before
      version, base, before, first = unpack('>BI6I4I4', value)
      local newest, total = unpack('>I4I4', value, size - 7)
      local live, expired = 1, (now_floor - window - base) / unit
      stamp = base + newest * unit
      local is_current = version == VERSION and stamp <= now_ceil
      if is_current and newest <= expired then
        is_fresh = true
      elseif is_current then
        local last = (size - HEADER) / RUN
        if first <= expired then
          local high, step = 2, 2
          live = 2
          while high < last and unpack('>I4', value, HEADER + (high - 1) * RUN + 1) <= expired do
            live, high, step = high + 1, math.min(high + step, last), step * 2
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
          local freeing = base + unpack('>I4', value, HEADER + (low - 1) * RUN + 1) * unit
          retry = ((freeing < stamp and freeing or stamp) + window) * 1000 - now_micros
          granted, left, retry = 0, left + cost > 0 and left + cost or 0, retry > 0 and retry or 0
        else
          -- `kept`: the last byte of the runs that stay, counted from the end.
          local offset, kept = (now_ceil - base) / unit, -1
          if unit > 1 then
            offset = math.ceil(offset)
          end
          local new_stamp = base + offset * unit
          if offset == newest then
            kept = -9
          elseif last - live + 1 >= CAPACITY then
            local run_cell = math.ceil(window / CAPACITY)
            if floor(new_stamp / run_cell) == floor(stamp / run_cell) then kept = -9 end
          end
          -- A log that loses expired runs becomes short, if few runs are left and each fits.
          local kept_last = kept == -1 and last or last - 1
          local is_short = live > 1 and kept_last - live + 2 <= SHORT_AGAIN and counted <= MAX_RUN_PERMITS
          local run, sum = live, before
          while is_short and run <= last do
            local run_sum = unpack('>I4', value, HEADER + (run - 1) * RUN + 5)
            local permits = (run_sum - sum) % WRAP + (run > kept_last and counted or 0)
            is_short, run, sum = permits >= 1 and permits <= MAX_RUN_PERMITS, run + 1, run_sum
          end
          new = offset < WRAP and pack('>I4I4', offset, (total + counted) % WRAP)
          if not new then
            -- The base must move up.
          elseif size > MIN_APPEND_BYTES and size <= MAX_APPEND_BYTES and stamp >= new_stamp - new_stamp % cell then
            -- The server would format a number as a decimal fraction.
            write_offset = string.format('%d', size + kept + 1)
          elseif is_short then
            local runs, from, sum = sub(value, HEADER + (live - 1) * RUN + 1, kept) .. new, 0, before
            new = pack('>BI6', SHORT, base)
            for at = 1, #runs, RUN do
              local to, run_sum = unpack('>I4I4', runs, at)
              local gap = to - from
              new = new and gap >= 0 and gap < MAX_UNITS and new .. pack('>I3B', gap, (run_sum - sum) % WRAP)
              from, sum = to, run_sum
            end
          elseif live > 1 then
            new = pack('>BI6I4', VERSION, base, before) .. sub(value, HEADER + (live - 1) * RUN + 1, kept) .. new
          else
            new = (kept == -1 and value or sub(value, 1, kept)) .. new
          end
          stamp = new_stamp
        end
      end
    end
    if is_fresh then
      stamp, left = now_ceil, limit - cost
      fresh = fresh or cost <= MAX_RUN_PERMITS and pack('>BI6B', SHORT, now_ceil, cost)
        or pack('>BI6I4I4I4', VERSION, now_ceil, 0, 0, cost)
      new = fresh
    end
    if new then
      if write_offset then
        granted = type(call('SETRANGE', key, write_offset, new)) == 'number' and 1
      else
        local new_ttl = stamp - stamp % cell + cell + window - now_floor + EXPIRY_SLACK_MS
        if new_ttl ~= ttl then
          ttl, ttl_text = new_ttl, string.format('%d', new_ttl)
        end
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

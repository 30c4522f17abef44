-- Decisions about one counter of a sliding window whose permits may be leased.
--
-- Returns a function, which returns what `sliding_at_once` does, and then
--   the reply about the lease, as in the header of batch.lua
--   true if the value is to be deleted
local function leased_window(module)
  local LEASE = '>I4I4I8'
  -- A lease is at most a quarter of the permits that are left, or as many as the limit allows in a cell of the log. With
  -- less, a process would ask several times for the permits of one run that expires. Fewer permits than the least number,
  -- or than a call takes, are no lease.
  local LEASE_SHARE, CELLS, MIN_LEASE = 4, 128, 8
  local floor, max, min = math.floor, math.max, math.min

  return function(sliding_at_once, value, window, limit, cost, calls, terms)
    if terms == '' then
      local grants, remaining, retry_at, reset_at, new, expires_at, write_offset =
        sliding_at_once(value, window, limit, cost, calls)
      if grants then
        return grants, remaining, retry_at, reset_at, new, expires_at, write_offset, struct.pack(LEASE, 0, 0, 0)
      end
    end
    local log = module.open(value, window)
    if not log then
      return nil
    end
    local wanted, mark, has_changed = 0, nil, false
    if terms ~= '' then
      local unused, stamp, earlier_mark
      wanted, mark, unused, stamp, earlier_mark = struct.unpack('>I4I4I4I6I4', terms)
      has_changed = unused > 0 and module.give_back(log, unused, stamp, earlier_mark)
    end
    local request = { max = limit, cost = cost, pending = 0 }
    local allowed, remaining, retry_at, reset_at = module.evaluate(log, request)
    local grants, leased = 0, 0
    if allowed then
      grants = cost > 0 and min(calls, floor(remaining / cost)) or calls
      if grants == calls then
        local left = remaining - grants * cost
        leased = min(wanted, left, max(floor(left / LEASE_SHARE), floor(limit / CELLS)))
        leased = leased < max(MIN_LEASE, cost) and 0 or leased
      end
      local taken = grants * cost + leased
      if taken > 0 then
        has_changed = true
        request.cost, request.mark = taken, leased > 0 and mark or nil
        module.take(log, request)
      end
      request.cost = grants < calls and cost or 1
      allowed, remaining, retry_at, reset_at = module.evaluate(log, request)
    end
    local new, expires_at
    if has_changed then
      new, expires_at = module.close(log)
    end
    local has_future_stamp = log.mark and log.used > 0 and log.newest > now_ceil
    local lease = struct.pack(LEASE, leased, has_future_stamp and log.mark or 0, has_future_stamp and log.newest or 0)
    return grants, remaining, retry_at, reset_at, new, expires_at, nil, lease, has_changed and not new
  end
end

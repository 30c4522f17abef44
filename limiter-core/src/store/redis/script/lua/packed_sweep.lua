-- Deletes dead counts of a hash: a call looks through some of its fields, and keeps what it cannot read. `now` is in ms.
--
-- Most calls make this function without need. So it uses no local of the script, which would cost them more.
local function sweep(hash, algorithm, window, now)
  local FIELD_BYTES, MARKER_BYTES, LEASED_VERSION, MAX_UNITS, SWEPT_FIELDS, EXPIRY_SLACK_MS = 16, 7, 6, 16777216, 128, 500
  local call, unpack_bytes, dead, unit = redis.pcall, struct.unpack, {}, 1
  while unit * MAX_UNITS < window do unit = unit * 2 end
  local found = call('HRANDFIELD', hash, SWEPT_FIELDS, 'WITHVALUES')
  for at = 1, found.err and 0 or #found, 2 do
    local value = found[at + 1]
    local size, expires_at = #value, nil
    if #found[at] == FIELD_BYTES and size >= MARKER_BYTES then
      local version, first = unpack_bytes('>BI6', value)
      if version == 0 and size == MARKER_BYTES then
        expires_at = first - EXPIRY_SLACK_MS
      elseif algorithm == 'sliding_window' or algorithm == 'leased_window' then
        if version == 7 and size > 7 and size <= 63 and (size % 4 == 0 or size % 4 == 3) then
          local offset = 0
          -- The first run may have no gap.
          for run_at = size % 4 == 0 and 9 or 8, size, 4 do
            offset = offset + unpack_bytes('>I3', value, run_at)
          end
          expires_at = first + offset * unit + window
        elseif version == 1 and size > 11 and size % 8 == 3 or version == LEASED_VERSION and size > 15 and size % 8 == 7 then
          expires_at = first + unpack_bytes('>I4', value, size - 7) * unit + window
        end
      elseif algorithm == 'fixed_window' and version == 2 and size == 17 then
        expires_at = first + window
      elseif algorithm == 'sliding_counter' and version == 3 and size == 21 then
        expires_at = first + 2 * window
      elseif algorithm == 'calendar' and version == 1 and size == 23 then
        local ends = unpack_bytes('>I6', value, 8)
        expires_at = ends > first and 2 * ends - first
      end
    end
    -- Keys expire so long after their values too.
    if expires_at and expires_at + EXPIRY_SLACK_MS <= now then
      dead[#dead + 1] = found[at]
    end
  end
  if #dead > 0 then
    call('HDEL', hash, unpack(dead))
  end
end

-- Most dead counts are left where others are added: one write in so many that adds one sweeps its hash, and of other writes
-- one in so many. So many sweep in a call.
local ADDS, WRITES, MAX_SWEEPS = 64, 1024, 2

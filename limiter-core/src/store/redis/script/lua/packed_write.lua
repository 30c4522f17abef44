        -- The write of sliding_simple.lua for a packed count. Without `granted` packed.lua decides.
        if #new <= MAX_FIELD_BYTES then
          local field, quarter = words[7 + index], (window - window % 4) / 4 + 1
          local stored = call('HSET', key, field, new)
          if type(stored) == 'number' then
            -- Only a write that was stored is taken back. Redis checks its memory before the first write of a script alone,
            -- and the HDEL for one that it has refused would be that write.
            written, before = index, value
            if all_before then
              all_before[index] = value
            end
          end
          local rate = stored == 1 and ADDS or WRITES
          local due = now_floor + new_ttl
          due = due - due % quarter
          -- The write of `old_stamp` has set the same expiry, if it is in the same quarter.
          local is_set = old_stamp and old_stamp - old_stamp % cell + cell + window + EXPIRY_SLACK_MS >= due
          if not is_set and type(stored) == 'number' then
            due = due + quarter - now_floor
            stored = call('PTTL', key)
            if type(stored) == 'number' and stored < due then
              stored = call('PEXPIRE', key, string.format('%d', due + EXPIRY_SLACK_MS))
            end
          end
          granted = type(stored) == 'number' and 1
          if granted and sweeps < MAX_SWEEPS and (now_micros + byte(field) + index) % rate == 0 then
            sweeps = sweeps + 1
            sweep(key, 'sliding_window', window, now_floor)
          end
        end

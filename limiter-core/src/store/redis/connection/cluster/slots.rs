//! The reply of CLUSTER SLOTS: ranges of slots and their masters.

use std::ops::RangeInclusive;

use redis::Value;

use crate::store::redis::slot;

/// A range of slots and its master.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub(crate) slots: RangeInclusive<u16>,
    /// Empty: the host of the node that replied.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Adds a slot to ranges, and extends the last one if the slot follows it.
pub(crate) fn push_slot(ranges: &mut Vec<RangeInclusive<u16>>, slot: u16) {
    match ranges.last_mut() {
        Some(last) if last.end().checked_add(1) == Some(slot) => *last = *last.start()..=slot,
        _ => ranges.push(slot..=slot),
    }
}

/// Decodes the reply; `None` if it is not one.
pub(crate) fn decode_slots(reply: &Value) -> Option<Vec<SlotRange>> {
    let Value::Array(entries) = reply else { return None };
    entries.iter().map(decode_range).collect()
}

fn decode_range(entry: &Value) -> Option<SlotRange> {
    let Value::Array(fields) = entry else { return None };
    let [first, last, Value::Array(master), ..] = &fields[..] else { return None };
    let [host, port, ..] = &master[..] else { return None };
    let slot = |value: &Value| port_or_slot(value).filter(|slot| *slot < slot::COUNT);
    let host = match host {
        Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
        Value::SimpleString(host) => host.clone(),
        Value::Nil => String::new(),
        _ => return None,
    };
    // A node that does not know its own name.
    let host = if host == "?" { String::new() } else { host };
    Some(SlotRange { slots: slot(first)?..=slot(last)?, host, port: port_or_slot(port)? })
}

fn port_or_slot(value: &Value) -> Option<u16> {
    if let Value::Int(number) = value { u16::try_from(*number).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(first: i64, last: i64, host: Value) -> Value {
        let node = |host, port| Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node(host, 7000), node(Value::Nil, 7001)])
    }

    #[test]
    fn decodes_masters_and_their_slots() {
        let host = || Value::BulkString(b"10.0.0.1".to_vec());
        let reply = Value::Array(vec![entry(0, 5460, host()), entry(5461, 16_383, Value::Nil)]);
        let range = |slots, host: &str| SlotRange { slots, host: host.to_owned(), port: 7000 };
        assert_eq!(decode_slots(&reply), Some(vec![range(0..=5460, "10.0.0.1"), range(5461..=16_383, "")]));
        assert_eq!(decode_slots(&Value::Array(vec![])), Some(vec![]));
    }

    #[test]
    fn slots_in_a_row_are_one_range() {
        let mut ranges = Vec::new();
        [0, 1, 2, 7, 16_383, 8, 9].into_iter().for_each(|slot| push_slot(&mut ranges, slot));
        assert_eq!(ranges, [0..=2, 7..=7, 16_383..=16_383, 8..=9]);
    }

    #[test]
    fn rejects_other_replies() {
        let wrong =
            [Value::Nil, Value::Int(1), Value::Array(vec![Value::Int(1)]), Value::Array(vec![Value::Array(vec![])])];
        for reply in wrong.into_iter().chain([
            entry(0, 16_384, Value::Nil),
            entry(-1, 1, Value::Nil),
            entry(0, 1, Value::Int(1)),
        ]) {
            assert_eq!(decode_slots(&Value::Array(vec![reply.clone()])), None, "{reply:?}");
        }
    }
}

//! The reply to `CLUSTER SLOTS`, and the slot of a key.

use std::ops::RangeInclusive;

use rate_limited::redis::Value;

use super::node::{printable, text};

/// The number of slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;

/// The host and port of a node.
pub(super) type HostPort = (String, u16);

/// The slots of one master, and its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) slots: Vec<RangeInclusive<u16>>,
    pub(super) master: HostPort,
    pub(super) replicas: Vec<HostPort>,
}

/// Returns the name of an address, as that of a server in a URL.
pub(super) fn name_of((host, port): &HostPort) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Parses the reply, in the order of the masters. `seed` is the host of the node that sent it, for nodes without one.
pub(super) fn parse(reply: &Value, seed: &str) -> Option<Vec<Shard>> {
    let Value::Array(ranges) = reply else { return None };
    let mut shards: Vec<Shard> = Vec::new();
    for range in ranges {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), nodes @ ..] = &parts[..] else { return None };
        let slots = u16::try_from(*first).ok()?..=u16::try_from(*last).ok()?;
        let mut nodes = nodes.iter().map(|node| parse_node(node, seed));
        let (master, replicas) = (nodes.next()??, nodes.collect::<Option<Vec<_>>>()?);
        match shards.iter_mut().find(|shard| shard.master == master) {
            Some(shard) => shard.slots.push(slots),
            None => shards.push(Shard { slots: vec![slots], master, replicas }),
        }
    }
    Some(shards)
}

fn parse_node(node: &Value, seed: &str) -> Option<HostPort> {
    let Value::Array(parts) = node else { return None };
    let (Some(host), Some(Value::Int(port))) = (parts.first(), parts.get(1)) else { return None };
    let host = text(host).filter(|host| !host.is_empty() && host != "?").unwrap_or_else(|| seed.to_owned());
    Some((printable(&host), u16::try_from(*port).ok()?))
}

/// Returns the number of slots that these masters serve.
pub(super) fn served_slots(shards: &[Shard]) -> usize {
    shards.iter().flat_map(|shard| &shard.slots).map(ExactSizeIterator::len).sum()
}

/// Returns the slot of a key by its hash tag: the CRC16 (XMODEM) of the text between the first braces.
pub(super) fn slot_of(name: &str) -> u16 {
    let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let tag = tag.filter(|tag| !tag.is_empty()).unwrap_or(name);
    let shift = |crc: u16| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
    let crc = tag.bytes().fold(0u16, |crc, byte| (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| shift(crc)));
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_one_master_are_one_shard() {
        let node =
            |host: Value, port: i64| Value::Array(vec![host, Value::Int(port), Value::SimpleString("id".into())]);
        let named = |port| node(Value::BulkString(b"h".to_vec()), port);
        let range =
            |first, last, nodes: Vec<Value>| Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat());
        let reply = Value::Array(vec![
            range(0, 99, vec![named(1), node(Value::Nil, 2)]),
            range(200, 16_383, vec![named(3)]),
            range(100, 149, vec![named(1), named(2)]),
        ]);
        let shards = parse(&reply, "seed").expect("slots");
        assert_eq!(shards.len(), 2);
        assert_eq!((&shards[0].master, &shards[0].replicas), (&("h".to_owned(), 1), &vec![("seed".to_owned(), 2)]));
        assert_eq!(served_slots(&shards), usize::from(SLOTS) - 50);
        assert_eq!(parse(&Value::Int(1), "seed"), None);
    }

    #[test]
    fn slots_agree_with_the_specification() {
        assert_eq!(slot_of("123456789"), 0x31C3);
        assert_eq!((slot_of("rl:{foo}10s"), slot_of("foo"), slot_of("{}")), (12182, 12182, slot_of("{}")));
    }
}

//! The hash slot of a key.

/// The number of hash slots of a cluster.
pub const SLOTS: u16 = 16_384;

/// Returns the slot of a key: CRC16 of the part in the first braces, or of the whole key if that part is empty or
/// missing.
///
/// This follows the Redis Cluster specification bit by bit and is independent of any client.
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let inside = &key[open + 1..];
    let close = inside.iter().position(|byte| *byte == b'}')?;
    Some(&inside[..close]).filter(|hash_tag| !hash_tag.is_empty())
}

/// Returns the CRC-16/XMODEM: polynomial 0x1021, initial value 0, most significant bit first.
fn crc16(bytes: &[u8]) -> u16 {
    let step = |crc: u16| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
    bytes.iter().fold(0, |crc, byte| (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| step(crc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vector of the specification.
    #[test]
    fn crc16_matches_the_published_check_value() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
    }

    #[test]
    fn only_the_first_hash_tag_is_hashed() {
        let table: [(&str, &str); 7] = [
            ("{user1000}.following", "user1000"),
            ("{user1000}.followers", "user1000"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("a}{b}", "b"),
            ("x{y", "x{y"),
            ("", ""),
        ];
        for (key, hashed) in table {
            assert_eq!(slot_of(key.as_bytes()), crc16(hashed.as_bytes()) % SLOTS, "{key}");
        }
        assert_eq!(slot_of(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot_of(b"123456789"), 12_739);
    }
}

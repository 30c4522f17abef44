//! The hash slots of Redis Cluster.

/// The number of slots of a cluster.
pub(crate) const COUNT: u16 = 16_384;

/// Returns the slot of a key name.
pub(crate) fn slot_of_name(name: &[u8]) -> u16 {
    slot_of_tag(hash_tag(name))
}

/// Returns the part of a name that is hashed: the text between the first braces, or the whole name if that text is
/// empty.
fn hash_tag(name: &[u8]) -> &[u8] {
    let inside = || {
        let (_, rest) = split_at_byte(name, b'{')?;
        split_at_byte(rest, b'}').map(|(tag, _)| tag).filter(|tag| !tag.is_empty())
    };
    inside().unwrap_or(name)
}

fn split_at_byte(name: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let index = name.iter().position(|byte| *byte == separator)?;
    Some((&name[..index], &name[index + 1..]))
}

/// Returns the slot of a hash tag: its CRC16 (XMODEM) modulo the number of slots, as the cluster specification defines.
pub(crate) fn slot_of_tag(tag: &[u8]) -> u16 {
    let crc = tag.iter().fold(0u16, |crc, byte| (crc << 8) ^ CRC16_TABLE[usize::from((crc >> 8) ^ u16::from(*byte))]);
    crc % COUNT
}

const CRC16_TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut index: u16 = 0;
    while index < 256 {
        let mut crc = index << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index as usize] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_specification() {
        assert_eq!(slot_of_tag(b"123456789"), 0x31C3);
        assert_eq!((slot_of_tag(b"foo"), slot_of_tag(b"")), (12182, 0));
    }

    #[test]
    fn a_name_is_hashed_by_its_first_tag() {
        let cases: [(&[u8], &[u8]); 8] = [
            (b"rl:{user:@42}1s", b"user:@42"),
            (b"getId", b"getId"),
            (b"/api/{id}/x", b"id"),
            (b"a{}{b}", b"a{}{b}"),
            (b"a{{b}}c", b"{b"),
            (b"a{b}{c}", b"b"),
            (b"a}b{c", b"a}b{c"),
            (b"a}{b}", b"b"),
        ];
        for (name, hashed) in cases {
            assert_eq!(slot_of_name(name), slot_of_tag(hashed), "{name:?}");
        }
    }
}

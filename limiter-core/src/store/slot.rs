//! The slots that a cluster spreads its keys over.

/// How many there are.
pub(crate) const COUNT: u16 = 16_384;

/// The slot of a name.
pub(crate) fn of(name: &[u8]) -> u16 {
    of_tag(tag(name))
}

/// What is hashed of a name: what its first braces enclose, or all of it if that is nothing.
fn tag(name: &[u8]) -> &[u8] {
    let inside = || {
        let (_, rest) = split(name, b'{')?;
        split(rest, b'}').map(|(tag, _)| tag).filter(|tag| !tag.is_empty())
    };
    inside().unwrap_or(name)
}

fn split(name: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = name.iter().position(|byte| *byte == at)?;
    Some((&name[..place], &name[place + 1..]))
}

/// CRC16 of what is hashed, modulo the number of slots: as the cluster specification has it, with the polynomial of
/// XMODEM.
pub(crate) fn of_tag(tag: &[u8]) -> u16 {
    let crc = tag.iter().fold(0u16, |crc, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) ^ u16::from(*byte))]);
    crc % COUNT
}

const TABLE: [u16; 256] = {
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
        assert_eq!(of_tag(b"123456789"), 0x31C3);
        assert_eq!((of_tag(b"foo"), of_tag(b"")), (12182, 0));
    }

    #[test]
    fn is_that_of_the_braces_in_a_name() {
        let cases: [(&[u8], &[u8]); 8] = [
            (b"rl:{user:@42}:sw:1000", b"user:@42"),
            (b"getId", b"getId"),
            (b"/api/{id}/x", b"id"),
            (b"a{}{b}", b"a{}{b}"),
            (b"a{{b}}c", b"{b"),
            (b"a{b}{c}", b"b"),
            (b"a}b{c", b"a}b{c"),
            (b"a}{b}", b"b"),
        ];
        for (name, hashed) in cases {
            assert_eq!(of(name), of_tag(hashed), "{name:?}");
        }
    }
}

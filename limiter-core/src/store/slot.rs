//! The slots that a cluster spreads its keys over.

use super::Question;

/// How many there are.
pub(crate) const COUNT: u16 = 16_384;

/// The slot of what a question counts: its hash tag is the whole subject, which has no brace in it.
pub(crate) fn of(question: &Question<'_>) -> u16 {
    of_tag(question.key.subject().to_string().as_bytes())
}

/// CRC16 of what is hashed, modulo the number of slots: as the cluster specification has it, with the polynomial of
/// XMODEM.
fn of_tag(tag: &[u8]) -> u16 {
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
    use crate::{Key, Limit};

    #[test]
    fn agrees_with_the_specification() {
        assert_eq!(of_tag(b"123456789"), 0x31C3);
        assert_eq!((of_tag(b"foo"), of_tag(b"")), (12182, 0));
    }

    #[test]
    fn is_that_of_the_whole_subject() {
        let key = Key::new("user:").part("{x}");
        let question = Question { key: &key, limit: Limit::WIDEST, cost: 1 };
        assert_eq!(of(&question), of_tag(b"user:@%7Bx%7D"));
    }
}

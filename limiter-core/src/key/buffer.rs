//! Where the encoding of a key is put together: in place while it is short, so that most keys need no heap.

use crate::key::Constant;

/// ASCII that grows at its end.
#[derive(Clone)]
pub(super) enum Buffer {
    Short {
        len: u8,
        bytes: [u8; SHORT],
    },
    Long(String),
    /// Of the program's own text, which need not be copied.
    Constant(&'static Constant),
}

/// Room for a UUID as a part, and for a text of a few letters before it.
const SHORT: usize = 46;

impl Buffer {
    pub(super) const EMPTY: Self = Self::Short { len: 0, bytes: [0; SHORT] };

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len).min(SHORT)],
            Self::Long(text) => text.as_bytes(),
            Self::Constant(constant) => constant.encoding().as_bytes(),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        match self {
            // Never the default: whole texts were put in, and what is ASCII can be cut anywhere.
            Self::Short { .. } => std::str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Self::Long(text) => text,
            Self::Constant(constant) => constant.encoding(),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Short { len, .. } => usize::from(*len),
            Self::Long(text) => text.len(),
            Self::Constant(constant) => constant.encoding().len(),
        }
    }

    /// Bytes that it takes on the heap.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        if let Self::Long(text) = self { text.capacity() } else { 0 }
    }

    pub(super) fn push(&mut self, text: &str) {
        match self {
            Self::Short { len, bytes } => {
                let (from, to) = (usize::from(*len), usize::from(*len) + text.len());
                if let (Some(room), Ok(end)) = (bytes.get_mut(from..to), u8::try_from(to)) {
                    room.copy_from_slice(text.as_bytes());
                    *len = end;
                } else {
                    let mut long = String::with_capacity(2 * to);
                    long.push_str(self.as_str());
                    long.push_str(text);
                    *self = Self::Long(long);
                }
            }
            Self::Long(long) => long.push_str(text),
            Self::Constant(constant) => *self = Self::Long([constant.encoding(), text].concat()),
        }
    }

    /// Cuts off what is beyond so many bytes.
    pub(super) fn truncate(&mut self, most: usize) {
        match self {
            Self::Short { len, .. } => *len = u8::try_from(most).map_or(*len, |most| most.min(*len)),
            Self::Long(text) => text.truncate(most),
            Self::Constant(constant) => {
                let text = constant.encoding();
                *self = Self::Long(text[..most.min(text.len())].to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_pushed_whatever_its_length() {
        for len in 0..200 {
            for step in [1, 2, 7, 45, 46, 47, 100] {
                let text = "abcdefghij".repeat(20)[..len].to_owned();
                let mut buffer = Buffer::EMPTY;
                for piece in text.as_bytes().chunks(step) {
                    buffer.push(std::str::from_utf8(piece).expect("ASCII"));
                }
                assert_eq!((buffer.as_str(), buffer.as_bytes(), buffer.len()), (&*text, text.as_bytes(), len));
                assert_eq!(matches!(buffer, Buffer::Long(_)), len > SHORT, "{len}");
                for most in [300, 150, 30, 5] {
                    buffer.truncate(most);
                    assert_eq!(buffer.as_str(), &text[..len.min(most)]);
                }
            }
        }
    }

    #[test]
    fn goes_on_from_a_text_of_the_program() {
        static ABC: Constant = Constant::new("abc");
        let mut buffer = Buffer::Constant(&ABC);
        buffer.push("def");
        assert_eq!((buffer.as_str(), buffer.as_bytes(), buffer.len()), ("abcdef", &b"abcdef"[..], 6));
        let mut cut = Buffer::Constant(&ABC);
        cut.truncate(2);
        cut.truncate(5);
        assert_eq!((cut.as_str(), cut.len()), ("ab", 2));
    }

    #[test]
    fn a_uuid_as_a_part_needs_no_heap() {
        let key = crate::Key::new("user:").part("01890a5d-ac96-774b-bcce-b302099a8057");
        assert!(matches!(key.head, Buffer::Short { .. }));
    }

    #[test]
    fn a_key_is_a_cache_line() {
        assert!(size_of::<crate::Key>() <= 64, "{} bytes", size_of::<crate::Key>());
    }
}

//! The buffer of a key's encoding. A short encoding is stored inline, so most keys allocate nothing.

use crate::key::StaticKey;

/// An ASCII string that grows at its end.
#[derive(Clone)]
pub(super) enum Buffer {
    /// The bytes after the content are zero.
    Short {
        len: u8,
        bytes: [u8; INLINE_CAPACITY],
    },
    Long(String),
    /// The encoding of a static key, which is not copied.
    Static(&'static StaticKey),
}

/// The inline capacity in bytes: enough for a UUID as a part, after a text of a few letters.
const INLINE_CAPACITY: usize = 46;

impl Buffer {
    pub(super) const EMPTY: Self = Self::Short { len: 0, bytes: [0; INLINE_CAPACITY] };

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len).min(INLINE_CAPACITY)],
            Self::Long(text) => text.as_bytes(),
            Self::Static(static_key) => static_key.encoding().as_bytes(),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        match self {
            // The default is never used: the content is ASCII, which can be cut anywhere.
            Self::Short { .. } => std::str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Self::Long(text) => text,
            Self::Static(static_key) => static_key.encoding(),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Short { len, .. } => usize::from(*len),
            Self::Long(text) => text.len(),
            Self::Static(static_key) => static_key.encoding().len(),
        }
    }

    /// The size of its heap allocation, in bytes.
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
            Self::Static(static_key) => *self = Self::Long([static_key.encoding(), text].concat()),
        }
    }

    /// Shortens the content to at most `max_len` bytes.
    pub(super) fn truncate(&mut self, max_len: usize) {
        match self {
            Self::Short { len, bytes } => {
                *len = u8::try_from(max_len).map_or(*len, |max_len| max_len.min(*len));
                bytes[usize::from(*len)..].fill(0);
            }
            Self::Long(text) => text.truncate(max_len),
            Self::Static(static_key) => {
                let text = static_key.encoding();
                *self = Self::Long(text[..max_len.min(text.len())].to_owned());
            }
        }
    }
}

impl PartialEq for Buffer {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            // A comparison of a fixed size takes no call.
            (Self::Short { len, bytes }, Self::Short { len: other_len, bytes: other_bytes }) => {
                len == other_len && bytes == other_bytes
            }
            _ => self.as_bytes() == other.as_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_holds_the_pushed_text_of_any_length() {
        for len in 0..200 {
            for step in [1, 2, 7, 45, 46, 47, 100] {
                let text = "abcdefghij".repeat(20)[..len].to_owned();
                let mut buffer = Buffer::EMPTY;
                for piece in text.as_bytes().chunks(step) {
                    buffer.push(std::str::from_utf8(piece).expect("ASCII"));
                }
                assert_eq!((buffer.as_str(), buffer.as_bytes(), buffer.len()), (&*text, text.as_bytes(), len));
                assert_eq!(matches!(buffer, Buffer::Long(_)), len > INLINE_CAPACITY, "{len}");
                for max_len in [300, 150, 30, 5] {
                    buffer.truncate(max_len);
                    assert_eq!(buffer.as_str(), &text[..len.min(max_len)]);
                }
            }
        }
    }

    #[test]
    fn a_static_buffer_is_copied_when_it_changes() {
        static ABC: StaticKey = StaticKey::new("abc");
        let mut buffer = Buffer::Static(&ABC);
        buffer.push("def");
        assert_eq!((buffer.as_str(), buffer.as_bytes(), buffer.len()), ("abcdef", &b"abcdef"[..], 6));
        let mut cut = Buffer::Static(&ABC);
        cut.truncate(2);
        cut.truncate(5);
        assert_eq!((cut.as_str(), cut.len()), ("ab", 2));
    }

    #[test]
    fn a_uuid_as_a_part_is_stored_inline() {
        let key = crate::Key::new("user:").part("01890a5d-ac96-774b-bcce-b302099a8057");
        assert!(matches!(key.head, Buffer::Short { .. }));
    }

    #[test]
    fn a_key_fits_a_cache_line() {
        assert!(size_of::<crate::Key>() <= 64, "{} bytes", size_of::<crate::Key>());
    }
}

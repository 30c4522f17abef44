//! The key of an entry in the map of a shard.

/// An encoded key. A short one is stored in place, which takes no allocation and no further cache line.
pub(super) enum KeyBytes {
    Short { len: u8, bytes: [u8; MAX_SHORT_BYTES] },
    Long(Box<[u8]>),
}

/// The longest key that is stored in place. So the type has the size of three words.
const MAX_SHORT_BYTES: usize = 22;

impl From<&[u8]> for KeyBytes {
    fn from(key: &[u8]) -> Self {
        let mut bytes = [0; MAX_SHORT_BYTES];
        match (bytes.get_mut(..key.len()), u8::try_from(key.len())) {
            (Some(start), Ok(len)) => {
                start.copy_from_slice(key);
                Self::Short { len, bytes }
            }
            _ => Self::Long(key.into()),
        }
    }
}

impl KeyBytes {
    #[inline(always)]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len).min(MAX_SHORT_BYTES)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl PartialEq<[u8]> for KeyBytes {
    /// Compares most keys as two words, which may overlap, without a call of `memcmp`.
    #[inline(always)]
    fn eq(&self, key: &[u8]) -> bool {
        let own = self.as_bytes();
        if own.len() != key.len() {
            return false;
        }
        match (own.first_chunk::<8>(), own.last_chunk::<8>(), key.first_chunk(), key.last_chunk()) {
            (Some(first), Some(last), Some(key_first), Some(key_last)) if own.len() <= 16 => {
                first == key_first && last == key_last
            }
            _ => own == key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_equals_the_same_bytes_alone() {
        for len in 1..=40 {
            let key: Vec<u8> = (0..len).collect();
            let own = KeyBytes::from(key.as_slice());
            assert!(own == *key, "{len} bytes");
            assert!(own != key[1..] && own != *[&*key, &[0]].concat(), "another length than {len}");
            for index in 0..key.len() {
                let mut other = key.clone();
                other[index] ^= 0x80;
                assert!(own != *other, "byte {index} of {len}");
            }
        }
    }

    #[test]
    fn a_key_in_place_takes_three_words() {
        assert_eq!(size_of::<KeyBytes>(), 24);
        let is_short =
            |len| matches!(KeyBytes::from([b'a'; 40].get(..len).unwrap_or_default()), KeyBytes::Short { .. });
        assert_eq!([1, 22, 23, 40].map(is_short), [true, true, false, false]);
    }
}

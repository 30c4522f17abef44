//! The secret that names are keyed with.

use std::fmt::{self, Write};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::{Error, ErrorKind, Key};

/// HMAC-SHA-256 (RFC 2104, FIPS 198-1) under a secret of the program's.
///
/// What stands in a name are the first 128 bits: nobody can look for two keys that share them without the secret, and by
/// chance two of 10^12 keys do with a probability of 10^-15.
#[derive(Clone)]
pub(crate) struct Secret(Hmac<Sha256>);

/// Bytes of a secret, at least.
const SHORTEST: usize = 16;
/// Bytes of a code that are used.
const LEN: usize = 16;

impl Secret {
    /// # Errors
    /// [`ErrorKind::Config`] for one that could be guessed because it is too short.
    pub(crate) fn new(secret: &[u8]) -> Result<Self, Error> {
        let too_short = || Error::new(ErrorKind::Config, "a secret to hash keys with has at least 16 bytes");
        if secret.len() < SHORTEST {
            return Err(too_short());
        }
        Hmac::new_from_slice(secret).map(Self).map_err(|_| too_short())
    }

    /// Writes what stands for the key: the mark of digests alone, which no encoded key begins with, and the code in hex.
    pub(super) fn write(&self, key: &Key, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut code = Fed(self.0.clone());
        write!(code, "{}", key.subject())?;
        f.write_char('+')?;
        code.0.finalize().into_bytes()[..LEN].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Secret {
    /// Without it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// Takes in what is written.
struct Fed(Hmac<Sha256>);

impl Write for Fed {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

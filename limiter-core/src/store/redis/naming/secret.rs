//! The secret of key digests.

use std::fmt::{self, Write};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::{Error, ErrorKind, Key};

/// HMAC-SHA-256 (RFC 2104, FIPS 198-1) under the program's secret.
///
/// A name contains the first 128 bits of the digest. Without the secret, no one can search for two keys with the same
/// digest. Among 10^12 keys, two have the same digest with a probability of 10^-15.
#[derive(Clone)]
pub(crate) struct Secret(Hmac<Sha256>);

/// The least length of a secret, in bytes.
const MIN_SECRET_BYTES: usize = 16;
/// The length of the digest in a name, in bytes.
const DIGEST_BYTES: usize = 16;

impl Secret {
    /// Creates the key of the HMAC.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a secret that is short enough to be guessed.
    pub(crate) fn new(secret: &[u8]) -> Result<Self, Error> {
        let too_short = || {
            let problem = format!(
                "`hash_keys` must have a secret of at least {MIN_SECRET_BYTES} bytes, got {}: write a longer one",
                secret.len()
            );
            Error::new(ErrorKind::Config, problem)
        };
        if secret.len() < MIN_SECRET_BYTES {
            return Err(too_short());
        }
        Hmac::new_from_slice(secret).map(Self).map_err(|_| too_short())
    }

    /// Writes `+` and the digest of the encoded key in hex. No encoded key has that form: the only one that starts with
    /// `+` is the empty key, and its encoding is `+` alone.
    pub(super) fn write(&self, key: &Key, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut mac = MacWriter(self.0.clone());
        write!(mac, "{}", key.subject())?;
        f.write_char('+')?;
        mac.0.finalize().into_bytes()[..DIGEST_BYTES].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Secret {
    /// Formats no part of the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// A writer that feeds an HMAC.
struct MacWriter(Hmac<Sha256>);

impl Write for MacWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

//! The book of a limiter's receipts: the secret that signs them, and those that a store in memory has seen.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::hash::{BuildHasher, RandomState};
use std::process;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{Digest, Receipt, ReceiptBody};
use crate::request::once::{ReceiptId, ReceiptRefusal};
use crate::sync::{Mutex, lock};
use crate::{Error, ErrorKind, Key};

/// The secret of the receipts of a program: an HMAC-SHA-256 (RFC 2104, FIPS 198-1), cut to 128 bits.
#[derive(Clone)]
pub(crate) struct ReceiptSecret(Hmac<Sha256>);

/// The least length of a secret, in bytes.
const MIN_SECRET_BYTES: usize = 16;
const DIGEST_BYTES: usize = size_of::<Digest>();

impl ReceiptSecret {
    /// Creates the key of the HMAC.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a secret that is short enough to be guessed.
    pub(crate) fn new(secret: &[u8]) -> Result<Self, Error> {
        let too_short = || {
            let problem = format!(
                "`receipt_secret` must have at least {MIN_SECRET_BYTES} bytes, got {}: write a longer one",
                secret.len()
            );
            Error::new(ErrorKind::Config, problem)
        };
        if secret.len() < MIN_SECRET_BYTES {
            return Err(too_short());
        }
        Hmac::new_from_slice(secret).map(Self).map_err(|_| too_short())
    }

    /// The HMAC of a text for one purpose. No purpose and no place has a zero byte, so none continues another.
    fn mac(&self, purpose: &str, place: &str) -> MacText {
        let mut mac = MacText(self.0.clone());
        for part in [purpose, place] {
            mac.0.update(part.as_bytes());
            mac.0.update(&[0]);
        }
        mac
    }
}

impl fmt::Debug for ReceiptSecret {
    /// Formats no part of the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// An HMAC to which texts are written.
struct MacText(Hmac<Sha256>);

impl MacText {
    fn digest(self) -> Digest {
        let mut digest = Digest::default();
        digest.copy_from_slice(&self.0.finalize().into_bytes()[..DIGEST_BYTES]);
        digest
    }
}

impl Write for MacText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

/// The receipts of a limiter.
#[derive(Debug)]
pub(crate) struct ReceiptBook {
    secret: ReceiptSecret,
    /// The store in which its receipts can be used: a prefix, or a random number of a store in memory.
    place: String,
    /// The receipts that were used, of a store that does not mark them: the end of each and its id.
    spent: Mutex<BTreeSet<(u64, ReceiptId)>>,
    /// The most receipts there.
    max_spent: usize,
}

impl ReceiptBook {
    /// The book of a limiter in memory, whose receipts no other limiter takes.
    pub(crate) fn in_memory(secret: ReceiptSecret, max_spent: usize) -> Self {
        let place = format!("memory {:032x}", u128::from_be_bytes(random_id()));
        Self { secret, place, spent: Mutex::default(), max_spent }
    }

    /// The book of a limiter whose keys in a shared store have this prefix.
    pub(crate) fn in_store(secret: ReceiptSecret, prefix: &str, max_spent: usize) -> Self {
        Self { secret, place: format!("store {prefix}"), spent: Mutex::default(), max_spent }
    }

    /// Signs a receipt.
    pub(crate) fn sign(&self, body: ReceiptBody) -> Receipt {
        let mac = self.mac_of(&body).digest();
        Receipt { body, mac }
    }

    /// Checks a receipt, and that it is of this key.
    ///
    /// # Errors
    /// [`ErrorKind::Config`]: it was not signed by this secret for this store, or is of another key.
    pub(crate) fn open<'r>(&self, receipt: &'r Receipt, key: &Key) -> Result<&'r ReceiptBody, Error> {
        let Receipt { body, mac } = receipt;
        let refused = |problem: &str| Err(Error::new(ErrorKind::Config, problem));
        // It takes as long for every wrong signature.
        if self.mac_of(body).0.verify_truncated_left(mac).is_err() {
            return refused(
                "`receipt` must be one of this store, got one that was altered, or is of another secret, prefix or \
                 process: use it as it is, with the `receipt_secret` and the store of its call",
            );
        }
        if body.key != self.key_digest(key) {
            return refused("`key` must be that of the receipt, got another one: give that of its call");
        }
        Ok(body)
    }

    /// The digest of a key in receipts.
    pub(crate) fn key_digest(&self, key: &Key) -> Digest {
        let mut mac = self.secret.mac("key", "");
        // Writing to it cannot fail.
        let _ = write!(mac, "{}", key.subject());
        mac.digest()
    }

    fn mac_of(&self, body: &ReceiptBody) -> MacText {
        let mut mac = self.secret.mac("receipt 1", &self.place);
        mac.0.update(&body.to_bytes());
        mac
    }

    /// Marks a receipt as used, in a store that does not mark it. It is forgotten once it can no longer be used.
    ///
    /// # Errors
    /// It was used before, cannot be used any more, or there is no room for it.
    pub(crate) fn spend(&self, ReceiptBody { id, end, .. }: &ReceiptBody, now: u64) -> Result<(), Error> {
        if now >= *end {
            return Err(ReceiptRefusal::Ended.into());
        }
        let mut spent = lock(&self.spent);
        while spent.first().is_some_and(|(end, _)| *end <= now) {
            spent.pop_first();
        }
        if spent.contains(&(*end, *id)) {
            return Err(ReceiptRefusal::Spent.into());
        }
        if spent.len() >= self.max_spent {
            let problem = format!(
                "no room for the mark of a receipt: {} are in use, as many as `max_keys`; nothing was counted, and the \
                 receipt can be used later",
                self.max_spent
            );
            return Err(Error::new(ErrorKind::OutOfMemory, problem));
        }
        spent.insert((*end, *id));
        Ok(())
    }
}

/// A number that no other has, by the system's random source. A child of `fork` has that of its parent.
pub(crate) fn random_id() -> ReceiptId {
    let half = || u128::from(RandomState::new().hash_one(process::id()));
    (half() << u64::BITS | half()).to_be_bytes()
}

//! The names of Redis keys.

use std::fmt::{self, Write};
use std::ops::{Deref, RangeInclusive};
use std::slice;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use limiter_syntax::WindowText;
use sha2::Sha256;

use crate::concurrency::message::SlotProcessId;
use crate::request::Request;
use crate::request::once::ReceiptId;
use crate::store::redis::slot::{self, slot_of_name, slot_of_tag};
use crate::{Algorithm, Error, ErrorKind, Key, Layout};

/// The key names of one limiter, which also determine the slots of a cluster.
#[derive(Debug)]
pub(crate) struct Naming {
    prefix: String,
    /// The secret that replaces keys by digests in names.
    secret: Option<Secret>,
    /// True if keys are spread over the slots of a cluster.
    is_cluster: bool,
}

/// The prefix of sorted sets that are shared with the Spring system.
const ZSET_PREFIX: &str = "CurrentLimiter";
/// The start of the names of blocks of such keys. No sorted set has it.
const ZSET_BLOCK_PREFIX: &str = "CurrentLimiter-block:";
/// Hash tags that are tried for a key in given slots. A single slot has 20 of them on average.
const MAX_PROBE_TAGS: u32 = 20 * slot::COUNT as u32;

impl Naming {
    pub(crate) fn new(prefix: &str, secret: Option<Secret>, is_cluster: bool) -> Self {
        Self { prefix: prefix.to_owned(), secret, is_cluster }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// Writes the name of a request's counter.
    fn key_name(&self, Request { key, limit, .. }: &Request<'_>) -> KeyName {
        let tag: &[u8] = match (limit.layout(), limit.algorithm()) {
            (Layout::Zset, _) => return KeyName::from(&*key.spring_set_name()),
            (Layout::Compact, Algorithm::SlidingWindow | Algorithm::Calendar) => b"}",
            (Layout::Compact, Algorithm::FixedWindow) => b"}f",
            (Layout::Compact, Algorithm::SlidingCounter) => b"}c",
            (Layout::Compact, Algorithm::TokenBucket) => b"}t",
            (Layout::Compact, Algorithm::LeakyBucket) => b"}l",
            (Layout::Compact, Algorithm::Concurrent) => return self.slots_name(key),
        };
        let mut name = self.key_part(key, tag);
        // Zone and anchor are in no name, so a change of them is no new count.
        if let Some(calendar) = limit.calendar_periods() {
            name.push(calendar.period().name().as_bytes());
            return name;
        }
        let (number, unit) = WindowText { millis: limit.window_millis() }.in_one_unit();
        name.push(itoa::Buffer::new().format(number).as_bytes());
        name.push(unit.as_bytes());
        name
    }

    /// Writes the name of a key's slots. They have no window.
    fn slots_name(&self, key: &Key) -> KeyName {
        self.key_part(key, b"}slots")
    }

    /// Writes the prefix, the key and the end of its hash tag.
    fn key_part(&self, key: &Key, tag: &[u8]) -> KeyName {
        // All counters of a key are in one slot: the hash tag is the whole subject, which contains no brace. Each call
        // writes its name, so it takes no detour by `fmt::Arguments`.
        let mut name = KeyName::EMPTY;
        name.push(self.prefix.as_bytes());
        name.push(b":{");
        match self.subject(key) {
            NamedKey { secret: None, key } => name.push(&key.encoding()),
            // Writing to it cannot fail.
            NamedKey { secret: Some(secret), key } => drop(secret.write(key, &mut name)),
        }
        name.push(tag);
        name
    }

    /// Returns the key that marks a receipt as used, in the slot of its first counter. It is the counter's name and the id, so
    /// no counter has it. `None` if no such name is in that slot: that of a sorted set with a brace in its key.
    pub(crate) fn receipt_key(&self, counter: &RedisKey, id: ReceiptId) -> Option<RedisKey> {
        let named = |start: &str, end: &str| {
            let mut name = KeyName::EMPTY;
            [start.as_bytes(), &counter.name, end.as_bytes()].into_iter().for_each(|part| name.push(part));
            // Writing to it cannot fail.
            let _ = write!(name, ":receipt:{:032x}", u128::from_be_bytes(id));
            RedisKey { slot: self.slot(&name), name }
        };
        // The name of a sorted set may have no hash tag. Then it is one as a whole.
        let in_tag = || named(&format!("{ZSET_PREFIX}:{{"), "}");
        [named("", ""), in_tag()].into_iter().find(|key| key.slot == counter.slot)
    }

    /// Checks that no name would contain a key that the secret must hide.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for such a key.
    pub(crate) fn check_exposure(&self, requests: &[Request<'_>]) -> Result<(), Error> {
        if self.would_expose_key(requests) { Err(exposed_key()) } else { Ok(()) }
    }

    /// Returns true if a name would contain a key that the secret must hide. The name of a sorted set is the plain key,
    /// because other programs share the set.
    fn would_expose_key(&self, requests: &[Request<'_>]) -> bool {
        self.secret.is_some() && requests.iter().any(|request| request.limit.layout() == Layout::Zset)
    }

    /// Returns the key of a request's counter.
    fn redis_key(&self, request: &Request<'_>) -> RedisKey {
        let name = self.key_name(request);
        RedisKey { slot: self.slot(&name), name }
    }

    /// Returns the key of the slots that calls of this key hold.
    pub(crate) fn slots_key(&self, key: &Key) -> RedisKey {
        let name = self.slots_name(key);
        RedisKey { slot: self.slot(&name), name }
    }

    /// The start of the names of channels on which processes are told to send a message about their slots.
    pub(crate) fn notice_channel_prefix(&self) -> String {
        format!("{}:notices:", self.prefix)
    }

    /// The channel of a process: its id in hex.
    pub(crate) fn notice_channel(&self, process: SlotProcessId) -> String {
        format!("{}{:016x}", self.notice_channel_prefix(), u64::from_be_bytes(process))
    }

    /// Returns the slot of a name; 0 where there is one server.
    pub(crate) fn slot(&self, name: &[u8]) -> u16 {
        if self.is_cluster { slot_of_name(name) } else { 0 }
    }

    /// The name of a request's counter; `None` if it would contain a key that the secret must hide.
    pub(crate) fn name(&self, request: &Request<'_>) -> Option<String> {
        let name = String::from_utf8_lossy(&self.key_name(request)).into_owned();
        Some(name).filter(|_| !self.would_expose_key(slice::from_ref(request)))
    }

    /// Returns names of two keys of the limiter's own in one of these slots: one under the prefix, and one for users with
    /// sorted sets alone. No counter has such a name, because `!` is in no subject. `None` if there is no slot.
    pub(crate) fn probe_keys(&self, slots: &[RangeInclusive<u16>]) -> Option<[String; 2]> {
        let is_here = |tag: &String| slots.iter().any(|range| range.contains(&slot_of_tag(tag.as_bytes())));
        let tag = match (self.is_cluster, slots.is_empty()) {
            (false, _) => Some("!probe".to_owned()),
            (true, true) => None,
            (true, false) => (0..MAX_PROBE_TAGS).map(|number| format!("!probe{number}")).find(is_here),
        };
        tag.map(|tag| [&*self.prefix, ZSET_PREFIX].map(|prefix| format!("{prefix}:{{{tag}}}")))
    }

    /// The keys of the shared rules, in one slot. No counter has such a name, because a prefix is followed by `:{`.
    pub(crate) fn rules_keys(&self) -> RulesKeys {
        let prefix = &self.prefix;
        let key = |name: &str| format!("{prefix}-rules:{{rules}}:{name}");
        RulesKeys { prefix: prefix.clone(), version: key("version"), text: key("toml"), history: key("history") }
    }

    /// The keys of heartbeats, in one slot. No counter has such a name: behind a hash tag it has none of their words.
    pub(crate) fn live_keys(&self) -> LiveKeys {
        LiveKeys { prefix: self.prefix.clone() }
    }

    /// A key as it appears in names.
    pub(crate) fn subject<'a>(&'a self, key: &'a Key) -> NamedKey<'a> {
        // A key that was read from such a digest is not hashed again.
        NamedKey { secret: self.secret.as_ref().filter(|_| !key.is_hmac()), key }
    }
}

/// The keys of the shared rules.
#[derive(Debug)]
pub(crate) struct RulesKeys {
    /// The prefix of the limiter's keys.
    pub(crate) prefix: String,
    pub(crate) version: String,
    pub(crate) text: String,
    pub(crate) history: String,
}

/// The keys of heartbeats.
#[derive(Debug)]
pub(crate) struct LiveKeys {
    /// The prefix of the limiter's keys.
    prefix: String,
}

impl LiveKeys {
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The hash of inventories with the number of their members.
    pub(crate) fn counts(&self) -> String {
        self.key("counts")
    }

    /// The numbers of all inventories as a text.
    pub(crate) fn summary(&self) -> String {
        self.key("summary")
    }

    /// The time of the summary.
    pub(crate) fn summed(&self) -> String {
        self.key("summed")
    }

    /// The time of the number of the inventory with this digest.
    pub(crate) fn counted(&self, digest: &str) -> String {
        self.key("counted:") + digest
    }

    /// The stream of activity.
    pub(crate) fn activity(&self) -> String {
        self.key("activity")
    }

    /// The members of the inventory with this digest.
    pub(crate) fn members(&self, digest: &str) -> String {
        self.key("members:") + digest
    }

    /// The text of the inventory with this digest.
    pub(crate) fn inventory(&self, digest: &str) -> String {
        self.key("inventory:") + digest
    }

    fn key(&self, name: &str) -> String {
        let prefix = &self.prefix;
        format!("{prefix}-live:{{{prefix}}}:{name}")
    }
}

/// A key as it appears in names: encoded, or as an HMAC digest.
pub(crate) struct NamedKey<'a> {
    secret: Option<&'a Secret>,
    key: &'a Key,
}

impl fmt::Display for NamedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.secret {
            None => self.key.subject().fmt(f),
            Some(secret) => secret.write(self.key, f),
        }
    }
}

// The secret of key digests.

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
    fn write(&self, key: &Key, name: &mut impl Write) -> fmt::Result {
        let mut mac = MacWriter(self.0.clone());
        write!(mac, "{}", key.subject())?;
        name.write_char('+')?;
        mac.0.finalize().into_bytes()[..DIGEST_BYTES].iter().try_for_each(|byte| write!(name, "{byte:02x}"))
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

// The Redis keys of a call, computed once, on its caller's thread.

/// The key of one counter in Redis.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RedisKey {
    /// The slot of the name; 0 where there is one server.
    pub(crate) slot: u16,
    pub(crate) name: KeyName,
}

impl RedisKey {
    /// Returns the key of a block by a rule, of the key whose counter of this layout this is. It is in the counter's slot.
    /// `None` if no such name is: in a cluster, that of a sorted set with a brace in its key.
    pub(crate) fn block_key(&self, layout: Layout, rule: &str) -> Option<Self> {
        let named = |parts: &[&[u8]]| {
            let mut name = KeyName::EMPTY;
            parts.iter().for_each(|part| name.push(part));
            Self { slot: self.slot, name }
        };
        let rule = rule.as_bytes();
        if layout == Layout::Compact {
            // Behind the hash tag, which no part of a key can end.
            let subject_end = self.name.iter().position(|byte| *byte == b'}').map_or(self.name.len(), |end| end + 1);
            return Some(named(&[&self.name[..subject_end], b":block:", rule]));
        }
        // Any text may be the key of a sorted set, so the block has another prefix, and its rule a length. The set's name is
        // the hash tag, or has one.
        let (prefix, length) = (ZSET_BLOCK_PREFIX.as_bytes(), rule.len().to_string());
        let end = [b":", rule, b":", length.as_bytes()].concat();
        let as_tag = named(&[prefix, b"{", &self.name, b"}", &end]);
        let with_tag = || named(&[prefix, &self.name, &end]);
        let slot = slot_of_name(&self.name);
        let is_here = |key: &Self| self.slot != slot || slot_of_name(&key.name) == slot;
        Some(as_tag).filter(is_here).or_else(|| Some(with_tag()).filter(is_here))
    }
}

/// Without the name, which contains the key.
impl fmt::Debug for RedisKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisKey").field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// The keys of one call, in the order of its requests.
#[derive(Clone, Debug)]
pub(crate) enum RedisKeys {
    One(RedisKey),
    Several(Arc<SeveralKeys>),
}

#[derive(Debug)]
pub(crate) struct SeveralKeys {
    keys: Box<[RedisKey]>,
    slots: Box<[u16]>,
}

impl RedisKeys {
    /// Computes the keys of these requests.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a key that must be hidden, in a layout whose names are plain keys.
    pub(crate) fn new(requests: &[Request<'_>], naming: &Naming) -> Result<Self, Error> {
        naming.check_exposure(requests)?;
        if let [request] = requests {
            return Ok(Self::One(naming.redis_key(request)));
        }
        let keys: Box<[_]> = requests.iter().map(|request| naming.redis_key(request)).collect();
        let slots = keys.iter().map(|key| key.slot).collect();
        Ok(Self::Several(Arc::new(SeveralKeys { keys, slots })))
    }

    pub(crate) fn as_slice(&self) -> &[RedisKey] {
        match self {
            Self::One(key) => slice::from_ref(key),
            Self::Several(several) => &several.keys,
        }
    }

    /// The slot of each key.
    pub(crate) fn slots(&self) -> &[u16] {
        match self {
            Self::One(key) => slice::from_ref(&key.slot),
            Self::Several(several) => &several.slots,
        }
    }

    /// The slot of the first key.
    pub(crate) fn first_slot(&self) -> u16 {
        self.slots().first().copied().unwrap_or(0)
    }
}

/// The name of a Redis key. A short one is stored inline: it is written on the thread of a call and dropped on the
/// worker's, and an allocation that another thread frees is expensive. A short name is before each long one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum KeyName {
    /// The bytes after the name are zero.
    Short {
        bytes: [u8; INLINE_NAME_BYTES],
        len: u8,
    },
    Long(Vec<u8>),
}

/// The longest name that is stored inline: one with a UUID as a part, a prefix of 16 bytes, a text of ten, and an algorithm
/// with a window of any length.
const INLINE_NAME_BYTES: usize = 78;

impl KeyName {
    pub(crate) const EMPTY: Self = Self::Short { bytes: [0; INLINE_NAME_BYTES], len: 0 };
}

impl KeyName {
    /// Adds the next part of the name.
    #[inline]
    pub(crate) fn push(&mut self, text: &[u8]) {
        match self {
            Self::Short { bytes, len } => {
                let (from, to) = (usize::from(*len), usize::from(*len) + text.len());
                if let (Some(room), Ok(end)) = (bytes.get_mut(from..to), u8::try_from(to)) {
                    room.copy_from_slice(text);
                    *len = end;
                } else {
                    *self = Self::Long([&**self, text].concat());
                }
            }
            Self::Long(name) => name.extend_from_slice(text),
        }
    }
}

impl Deref for KeyName {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { bytes, len } => &bytes[..usize::from(*len).min(INLINE_NAME_BYTES)],
            Self::Long(name) => name,
        }
    }
}

/// Formats no part of the name, which contains the key.
impl fmt::Debug for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

impl From<&str> for KeyName {
    fn from(name: &str) -> Self {
        let mut text = Self::EMPTY;
        text.push(name.as_bytes());
        text
    }
}

impl Write for KeyName {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

fn exposed_key() -> Error {
    let problem = "`hash_keys` cannot be used with `Layout::Zset`: a shared sorted set is found by its plain key; use a \
                   limiter without `hash_keys` for this limit, or another layout";
    Error::new(ErrorKind::Config, problem)
}

#[cfg(test)]
mod tests;

//! The names of Redis keys.

use std::fmt::{self, Write};
use std::ops::RangeInclusive;
use std::slice;

use crate::request::Request;
use crate::store::redis::slot::{self, slot_of_name, slot_of_tag};
use crate::{Algorithm, Key, Layout};

mod secret;
#[cfg(test)]
mod tests;

pub(crate) use secret::Secret;

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
/// Hash tags that are tried for a key in given slots. A single slot has 20 of them on average.
const MAX_PROBE_TAGS: u32 = 20 * slot::COUNT as u32;

impl Naming {
    pub(crate) fn new(prefix: &str, secret: Option<Secret>, is_cluster: bool) -> Self {
        Self { prefix: prefix.to_owned(), secret, is_cluster }
    }

    #[cfg(feature = "rules")]
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// Appends the name of a request's counter.
    pub(crate) fn write(&self, Request { key, limit, .. }: &Request<'_>, name: &mut String) {
        let tag = match (limit.layout(), limit.algorithm()) {
            (Layout::Zset, _) => return name.push_str(&key.spring_set_name()),
            (Layout::Compact, Algorithm::SlidingWindow) => "sw",
            (Layout::Compact, Algorithm::FixedWindow) => "fw",
            (Layout::Compact, Algorithm::SlidingCounter) => "sc",
            (Layout::Compact, Algorithm::TokenBucket) => "tb",
            (Layout::Compact, Algorithm::LeakyBucket) => "lb",
        };
        // All counters of a key are in one slot: the hash tag is the whole subject, which contains no brace.
        let (prefix, subject) = (&self.prefix, self.subject(key));
        // Writing to a `String` cannot fail.
        let _ = write!(name, "{prefix}:{{{subject}}}:{tag}:{}", limit.window_millis());
    }

    /// Returns true if a name would contain a key that the secret must hide. The name of a sorted set is the plain key,
    /// because other programs share the set.
    pub(crate) fn would_expose_key(&self, requests: &[Request<'_>]) -> bool {
        self.secret.is_some() && requests.iter().any(|request| request.limit.layout() == Layout::Zset)
    }

    /// Returns the slot of a name; 0 where there is one server.
    pub(crate) fn slot(&self, name: &str) -> u16 {
        if self.is_cluster { slot_of_name(name.as_bytes()) } else { 0 }
    }

    /// The name of a request's counter; `None` if it would contain a key that the secret must hide.
    pub(crate) fn name(&self, request: &Request<'_>) -> Option<String> {
        let mut name = String::new();
        self.write(request, &mut name);
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
    #[cfg(feature = "rules")]
    pub(crate) fn rules_keys(&self) -> RulesKeys {
        let prefix = &self.prefix;
        let key = |name: &str| format!("{prefix}-rules:{{rules}}:{name}");
        RulesKeys { prefix: prefix.clone(), version: key("version"), text: key("toml"), history: key("history") }
    }

    /// A key as it appears in names.
    pub(crate) fn subject<'a>(&'a self, key: &'a Key) -> NamedKey<'a> {
        // A key that was read from such a digest is not hashed again.
        NamedKey { secret: self.secret.as_ref().filter(|_| !key.is_hmac()), key }
    }
}

/// The keys of the shared rules.
#[cfg(feature = "rules")]
#[derive(Debug)]
pub(crate) struct RulesKeys {
    /// The prefix of the limiter's keys.
    pub(crate) prefix: String,
    pub(crate) version: String,
    pub(crate) text: String,
    pub(crate) history: String,
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

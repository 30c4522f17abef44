//! The names of Redis keys.

use std::fmt;
#[cfg(feature = "redis")]
use std::fmt::Write;

#[cfg(feature = "redis")]
use crate::Algorithm;
use crate::request::Request;
use crate::store::slot;
use crate::{Key, Layout};

#[cfg(feature = "redis")]
mod secret;

#[cfg(feature = "redis")]
pub(crate) use secret::Secret;

/// A secret cannot exist without a store that names keys.
#[cfg(not(feature = "redis"))]
#[derive(Clone, Debug)]
pub(crate) enum Secret {}

/// The key names of one limiter, which also determine the slots of a cluster.
#[derive(Debug)]
pub(crate) struct Naming {
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "without it nothing has a name"))]
    prefix: String,
    /// The secret that replaces keys by digests in names.
    secret: Option<Secret>,
}

impl Naming {
    pub(crate) fn new(prefix: &str, secret: Option<Secret>) -> Self {
        Self { prefix: prefix.to_owned(), secret }
    }
}

#[cfg(feature = "redis")]
impl Naming {
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
}

impl Naming {
    /// Returns the slot of a request's counter.
    pub(crate) fn slot(&self, request: &Request<'_>) -> u16 {
        match request.limit.layout() {
            // The hash tag is the whole subject.
            Layout::Compact => slot::slot_of_tag(self.subject(request.key).to_string().as_bytes()),
            Layout::Zset => slot::slot_of_name(request.key.spring_set_name().as_bytes()),
        }
    }

    fn subject<'a>(&'a self, key: &'a Key) -> NamedKey<'a> {
        NamedKey { secret: self.secret.as_ref(), key }
    }
}

/// A key as it appears in names: encoded, or as an HMAC digest.
struct NamedKey<'a> {
    secret: Option<&'a Secret>,
    key: &'a Key,
}

impl fmt::Display for NamedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.secret {
            None => self.key.subject().fmt(f),
            #[cfg(feature = "redis")]
            Some(secret) => secret.write(self.key, f),
            #[cfg(not(feature = "redis"))]
            Some(secret) => match *secret {},
        }
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests;

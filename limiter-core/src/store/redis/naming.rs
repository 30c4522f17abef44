//! The names of Redis keys.

use std::fmt::{self, Write};

use crate::request::Request;
use crate::store::redis::slot::slot_of_name;
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

impl Naming {
    pub(crate) fn new(prefix: &str, secret: Option<Secret>, is_cluster: bool) -> Self {
        Self { prefix: prefix.to_owned(), secret, is_cluster }
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
            Some(secret) => secret.write(self.key, f),
        }
    }
}

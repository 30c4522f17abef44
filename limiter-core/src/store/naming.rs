//! What the counts of a limiter are called where others can read it.

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

/// Without a store that names keys nobody can give one.
#[cfg(not(feature = "redis"))]
#[derive(Clone, Debug)]
pub(crate) enum Secret {}

/// How one limiter names what it counts, and so in which slot of a cluster that is.
#[derive(Debug)]
pub(crate) struct Naming {
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "without it nothing has a name"))]
    prefix: String,
    /// With it no key can be read in a name.
    secret: Option<Secret>,
}

impl Naming {
    pub(crate) fn new(prefix: &str, secret: Option<Secret>) -> Self {
        Self { prefix: prefix.to_owned(), secret }
    }
}

#[cfg(feature = "redis")]
impl Naming {
    /// Adds what the count of a request is called to `text`.
    pub(crate) fn write(&self, Request { key, limit, .. }: &Request<'_>, text: &mut String) {
        let tag = match (limit.layout(), limit.algorithm()) {
            (Layout::Zset, _) => return text.push_str(&key.spring_set_name()),
            (Layout::Compact, Algorithm::SlidingWindow) => "sw",
            (Layout::Compact, Algorithm::FixedWindow) => "fw",
            (Layout::Compact, Algorithm::SlidingCounter) => "sc",
            (Layout::Compact, Algorithm::TokenBucket) => "tb",
            (Layout::Compact, Algorithm::LeakyBucket) => "lb",
        };
        // One key, one slot: the hash tag is around the whole subject, which contains no brace.
        let (prefix, subject) = (&self.prefix, self.subject(key));
        // A text takes whatever is written to it.
        let _ = write!(text, "{prefix}:{{{subject}}}:{tag}:{}", limit.window_millis());
    }

    /// Whether a name would tell what the secret is to hide: others find a set by the key's own text.
    pub(crate) fn would_expose_key(&self, requests: &[Request<'_>]) -> bool {
        self.secret.is_some() && requests.iter().any(|request| request.limit.layout() == Layout::Zset)
    }
}

impl Naming {
    /// The slot of what a request counts.
    pub(crate) fn slot(&self, request: &Request<'_>) -> u16 {
        match request.limit.layout() {
            // The hash tag is the whole subject.
            Layout::Compact => slot::of_tag(self.subject(request.key).to_string().as_bytes()),
            Layout::Zset => slot::of(request.key.spring_set_name().as_bytes()),
        }
    }

    fn subject<'a>(&'a self, key: &'a Key) -> Subject<'a> {
        Subject { secret: self.secret.as_ref(), key }
    }
}

/// A key as it stands in names: as it is encoded, or keyed with the secret.
struct Subject<'a> {
    secret: Option<&'a Secret>,
    key: &'a Key,
}

impl fmt::Display for Subject<'_> {
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

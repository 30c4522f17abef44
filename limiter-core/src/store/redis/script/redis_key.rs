//! The Redis keys of a call, computed once, on the caller's thread.

use std::slice;
use std::sync::Arc;

use crate::request::Request;
use crate::store::naming::Naming;

/// The key of one counter in Redis.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RedisKey {
    /// The slot of the name; 0 where there is one server.
    pub(crate) slot: u16,
    pub(crate) name: Box<str>,
}

/// The keys of one call, in the order of its requests. One key needs no allocation beside its name.
#[derive(Clone, Debug)]
pub(crate) enum RedisKeys {
    One(RedisKey),
    Many(Arc<[RedisKey]>),
}

impl RedisKey {
    fn of(request: &Request<'_>, naming: &Naming, is_cluster: bool) -> Self {
        let mut name = String::new();
        naming.write(request, &mut name);
        let slot = if is_cluster { naming.slot(request) } else { 0 };
        Self { slot, name: name.into() }
    }
}

impl RedisKeys {
    pub(crate) fn new(requests: &[Request<'_>], naming: &Naming, is_cluster: bool) -> Self {
        let key = |request| RedisKey::of(request, naming, is_cluster);
        match requests {
            [request] => Self::One(key(request)),
            _ => Self::Many(requests.iter().map(key).collect()),
        }
    }

    pub(crate) fn as_slice(&self) -> &[RedisKey] {
        match self {
            Self::One(key) => slice::from_ref(key),
            Self::Many(keys) => keys,
        }
    }
}

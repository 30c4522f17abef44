//! The Redis keys of a call, computed once, on the caller's thread.

use std::slice;
use std::sync::Arc;

use crate::request::Request;
use crate::store::redis::naming::Naming;
use crate::store::redis::slot::slot_of_name;

/// The key of one counter in Redis.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RedisKey {
    /// The slot of the name; 0 where there is one server.
    pub(crate) slot: u16,
    pub(crate) name: String,
}

/// The keys of one call, in the order of its requests. One key needs no allocation beside its name.
#[derive(Clone, Debug)]
pub(crate) enum RedisKeys {
    One(RedisKey),
    Many { keys: Arc<[RedisKey]>, slots: Arc<[u16]> },
}

impl RedisKeys {
    pub(crate) fn new(requests: &[Request<'_>], naming: &Naming, is_cluster: bool) -> Self {
        let key = |request: &Request<'_>| {
            let name = naming.name(request);
            let slot = if is_cluster { slot_of_name(name.as_bytes()) } else { 0 };
            RedisKey { slot, name }
        };
        match requests {
            [request] => Self::One(key(request)),
            _ => {
                let keys: Arc<[_]> = requests.iter().map(key).collect();
                let slots = keys.iter().map(|key| key.slot).collect();
                Self::Many { keys, slots }
            }
        }
    }

    pub(crate) fn as_slice(&self) -> &[RedisKey] {
        match self {
            Self::One(key) => slice::from_ref(key),
            Self::Many { keys, .. } => keys,
        }
    }

    /// The slot of each key.
    pub(crate) fn slots(&self) -> &[u16] {
        match self {
            Self::One(key) => slice::from_ref(&key.slot),
            Self::Many { slots, .. } => slots,
        }
    }
}

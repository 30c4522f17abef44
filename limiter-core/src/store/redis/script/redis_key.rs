//! The Redis keys of a call, computed once.

use std::sync::Arc;

use crate::request::Request;
use crate::store::redis::naming::Naming;
use crate::{Error, ErrorKind};

/// The key of one counter in Redis.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RedisKey {
    /// The slot of the name; 0 where there is one server.
    pub(crate) slot: u16,
    pub(crate) name: String,
}

/// The keys of one call, in the order of its requests.
///
/// In a cluster the caller computes them, since its breaker is that of the slot. For one server the worker does, so
/// that identical calls of a batch need one name.
#[derive(Clone, Debug)]
pub(crate) enum RedisKeys {
    /// Left to the worker. All keys are in slot 0.
    Deferred,
    Computed(Arc<ComputedKeys>),
}

#[derive(Debug)]
pub(crate) struct ComputedKeys {
    keys: Arc<[RedisKey]>,
    slots: Box<[u16]>,
}

impl RedisKeys {
    /// Computes the keys if they are in a cluster; otherwise they are left to the worker.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a key that must be hidden, in a layout whose names are plain keys.
    pub(crate) fn new(requests: &[Request<'_>], naming: &Naming) -> Result<Self, Error> {
        if naming.would_expose_key(requests) {
            return Err(exposed_key());
        }
        if !naming.is_cluster() {
            return Ok(Self::Deferred);
        }
        let keys = compute(requests, naming);
        let slots = keys.iter().map(|key| key.slot).collect();
        Ok(Self::Computed(Arc::new(ComputedKeys { keys, slots })))
    }

    /// The slot of each key; empty if all are in slot 0.
    pub(crate) fn slots(&self) -> &[u16] {
        match self {
            Self::Deferred => &[],
            Self::Computed(computed) => &computed.slots,
        }
    }

    /// The slot of the first key.
    pub(crate) fn first_slot(&self) -> u16 {
        self.slots().first().copied().unwrap_or(0)
    }

    /// The keys of these requests, which the call was made of.
    pub(crate) fn resolve(&self, requests: &[Request<'_>], naming: &Naming) -> Arc<[RedisKey]> {
        match self {
            Self::Deferred => compute(requests, naming),
            Self::Computed(computed) => Arc::clone(&computed.keys),
        }
    }

    /// Appends the name of the only key.
    pub(crate) fn write_name(&self, request: &Request<'_>, naming: &Naming, name: &mut String) {
        match self {
            Self::Deferred => naming.write(request, name),
            Self::Computed(computed) => name.push_str(&computed.keys[0].name),
        }
    }
}

fn compute(requests: &[Request<'_>], naming: &Naming) -> Arc<[RedisKey]> {
    let key = |request| {
        let mut name = String::new();
        naming.write(request, &mut name);
        RedisKey { slot: naming.slot(&name), name }
    };
    requests.iter().map(key).collect()
}

fn exposed_key() -> Error {
    let problem = "`hash_keys` cannot be used with `Layout::Zset`: a shared sorted set is found by its plain key; use a \
                   limiter without `hash_keys` for this limit, or another layout";
    Error::new(ErrorKind::Config, problem)
}

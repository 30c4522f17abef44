//! The answers of the routes under `api/`.

pub(crate) mod rates;
pub(crate) mod limiters;
pub(crate) mod keys;
pub(crate) mod shared_rules;
pub(crate) mod drafts;

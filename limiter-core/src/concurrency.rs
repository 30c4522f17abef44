//! Limits of calls that run at once: slots, their calls, and what processes that share a store say to it.

pub(crate) mod message;

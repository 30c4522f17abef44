//! `limiter top` and `limiter watch`: the decisions of all limiters, and who is denied, as they write it.

mod bursts;
mod sums;
mod top;
mod watch;

pub(crate) use bursts::{denials_json, denials_of_key, write_denials};
pub(crate) use top::top;
pub(crate) use watch::watch;

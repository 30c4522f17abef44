//! `limiter top` and `limiter watch`: the decisions of all limiters, and who is denied, as they write it.

mod bursts;
mod top;
mod watch;

pub(crate) use bursts::write_denials;
pub(crate) use top::top;
pub(crate) use watch::watch;

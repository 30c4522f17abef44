//! Runs of the limiter while something goes wrong, and checks of each run that share no code with the limiter. The crate
//! is unpublished and for Unix only.
//!
//! | need | module |
//! |---|---|
//! | measurements of a limiter under load and faults | [`faults`] |
//! | processes with one limit that are stopped at random, and the most admissions in one window | [`fleet`] |
//! | random schedules checked by the oracles | [`schedule`] |
//! | random calls and faults for hours | [`attack`] |
//!
//! Each but `schedule` is a program too, by `cargo run --release -p limiter-chaos --bin …`. The servers, the network that
//! fails and the oracles are those of `limiter-testkit`, which does not know the limiter.

mod cancel;
mod transport;

pub mod schedule;
pub mod faults;
pub mod fleet;
pub mod attack;

pub use transport::Transport;

//! The texts of `rate-limited`, each with one grammar: limits such as `5/10s`, `1000/month@Europe/Berlin` or `50 concurrent`,
//! blocks such as `1min x2 up to 1d`,
//! and templates of keys such as `user:{user_id}`.
//!
//! The attribute parses them at compile time, and the run time and the command `limiter` while the program runs. Each
//! writes messages of its own, so a problem here is a value. Depend on `rate-limited`: this crate changes with it.

mod block;
mod calendar;
mod duration;
mod limit;
mod suggestion;
mod template;

pub use block::{BlockProblem, BlockText, parse_block, parse_factor};
pub use calendar::{Anchor, AnchorText, Period};
pub use duration::{DurationProblem, MAX_WINDOW_MILLIS, UNIT_LIST, WindowText, parse_duration, parse_window};
pub use limit::{LimitProblem, LimitText, MAX_CONCURRENT, parse_limit};
pub use suggestion::{nearest, with_same_start};
pub use template::{Piece, Pieces, TemplateProblem, pieces};

//! The arithmetic of the limits: pure, in whole milliseconds, without a clock or a store.
//!
//! The memory store runs it; the scripts say the same in Lua and are tested against it.

pub(crate) mod sliding_window;

//! Tests of the flash sale: processes of it, and a Redis server of each test.

mod answers;
mod client;
mod leaderboard;
mod page;
mod program;
mod start;
mod storm;

//! Tests of the whole service: processes of it, requests over TCP, and a Redis server of each test.

mod client;
mod instance;
mod limits;
mod operation;

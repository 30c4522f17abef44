//! Tests of the whole service: processes of it, calls of a client of tonic, and a Redis server of each test.

mod instance;
mod limits;
mod operation;
#[path = "../../src/shop.rs"]
mod shop;

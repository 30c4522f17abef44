//! Connections to the servers: the owner of each slot, its state, and the script calls to it.

pub(crate) mod breaker;
pub(crate) mod gate_table;
pub(crate) mod round_trip;
pub(crate) mod server_connection;
pub(crate) mod in_flight_batches;
pub(crate) mod managed;
pub(crate) mod slot_owner;
pub(crate) mod cluster;
pub(crate) mod topology;

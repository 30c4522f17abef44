//! Connections to the servers: which one serves a slot, whether it is up, and one script call over it.

pub(super) mod breaker;
pub(super) mod breaker_table;
pub(super) mod cluster;
pub(super) mod context;
pub(super) mod managed;
pub(super) mod script_call;
pub(super) mod server_connection;
pub(super) mod topology;

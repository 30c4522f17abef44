//! Tests of the dashboard: its routes against real servers, and its own server.

#[path = "dashboard/support.rs"]
mod support;

#[path = "dashboard/access.rs"]
mod access;
#[path = "dashboard/drill.rs"]
mod drill;
#[path = "dashboard/edits.rs"]
mod edits;
#[path = "dashboard/mounting.rs"]
mod mounting;
#[path = "dashboard/options.rs"]
mod options;
#[path = "dashboard/private.rs"]
mod private;
#[path = "dashboard/server.rs"]
mod server;

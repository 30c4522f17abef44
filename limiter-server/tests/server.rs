//! Tests of the server: its routes over real sockets, and the program.

#[path = "server/support.rs"]
mod support;

#[path = "server/auth.rs"]
mod auth;
#[path = "server/budgets.rs"]
mod budgets;
#[path = "server/decisions.rs"]
mod decisions;
#[path = "server/documents.rs"]
mod documents;
#[path = "server/endings.rs"]
mod endings;
#[path = "server/envoy.rs"]
mod envoy;
#[path = "server/gateways.rs"]
mod gateways;
#[path = "server/outages.rs"]
mod outages;
#[path = "server/problems.rs"]
mod problems;
#[path = "server/program.rs"]
mod program;
#[path = "server/resp.rs"]
mod resp;
#[path = "server/slots.rs"]
mod slots;
#[path = "server/together.rs"]
mod together;

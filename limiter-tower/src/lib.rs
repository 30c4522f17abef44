//! The tower layers of `rate-limited`: limits of a service's requests, and of the calls of a client.
//!
//! Depend on the `rate-limited` crate, which re-exports all of this as `rate_limited::tower`.

mod header_name;
mod piece_name;
mod peer;
mod client_ip;
mod key;
mod missing;
mod repeated;
mod quota_fields;
mod answer;
mod settlement;
mod customer_plan;
mod held_body;
mod options;
mod decide;
mod permit;
mod shared;
mod decision_future;
mod future;
mod service;
mod layer;
mod fields_layer;
mod outgoing;
#[cfg(feature = "axum")]
mod ops;

#[cfg(feature = "tonic")]
pub use answer::GrpcAnswer;
pub use answer::{CustomAnswer, ProblemAnswer, SettlingAnswer};
pub use client_ip::ClientIp;
pub use fields_layer::{FieldsFuture, RateLimitFields, RateLimitFieldsLayer};
pub use future::ResponseFuture;
pub use held_body::{CallSlots, HeldBody};
pub use key::{Everyone, Extension, Header, KeyAsync, KeyFn, Method, Or, RequestKey, key_async, key_fn};
#[cfg(feature = "axum")]
pub use key::{MatchedPath, PathParam};
pub use layer::RateLimitLayer;
pub use missing::Missing;
#[cfg(feature = "axum")]
pub use ops::{Ops, ops};
pub use outgoing::{
    ChargeIf, DemandedPause, OneKey, OnePermit, Outgoing, OutgoingCost, OutgoingError, OutgoingFuture, OutgoingHold,
    OutgoingKey, OutgoingLayer, RefundIf, RetryAfter, UntilBodyEnds, retry_after,
};
pub use peer::Peer;
pub use service::RateLimit;

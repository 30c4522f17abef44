//! The time for which an outgoing call holds its slots.

use http::Response;

use crate::held_body::{CallSlots, HeldBody};

/// The choice of the time for which a call of [`OutgoingLayer`](crate::OutgoingLayer) holds its slots.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot find the end of the response `{T}`",
    note = "only responses of the crate `http` have a body that the layer knows",
    note = "call `hold_by(|response, slots| …)`, or `hold_by(|response, _| response)` to hold no slots after the response's head"
)]
pub trait OutgoingHold<T>: Send + Sync + 'static {
    /// The response that the call's caller gets.
    type Response;

    /// Returns the response, with the slots of its call. These are free when they are dropped.
    fn hold(&self, response: T, slots: CallSlots) -> Self::Response;
}

/// The end of the response's body, or its drop: the default of [`OutgoingLayer`](crate::OutgoingLayer), for responses of the
/// crate `http`.
#[derive(Clone, Copy, Debug, Default)]
pub struct UntilBodyEnds;

impl<B> OutgoingHold<Response<B>> for UntilBodyEnds {
    type Response = Response<HeldBody<B>>;

    fn hold(&self, response: Response<B>, slots: CallSlots) -> Self::Response {
        response.map(|body| HeldBody::new(body, slots))
    }
}

impl<T, U, F: Fn(T, CallSlots) -> U + Send + Sync + 'static> OutgoingHold<T> for F {
    type Response = U;

    fn hold(&self, response: T, slots: CallSlots) -> U {
        self(response, slots)
    }
}

//! The permits that an outgoing call counts, by its response.

/// The choice, by the response to a call of [`OutgoingLayer`](crate::OutgoingLayer), of the permits that it counts.
pub trait OutgoingCost<R>: Send + Sync + 'static {
    /// Returns the permits that the call counts. `None` for those that it has taken.
    fn actual_cost(&self, response: &R) -> Option<u32>;
}

/// One permit for each call that is sent: the default of [`OutgoingLayer`](crate::OutgoingLayer).
#[derive(Clone, Copy, Debug, Default)]
pub struct OnePermit;

impl<R> OutgoingCost<R> for OnePermit {
    fn actual_cost(&self, _: &R) -> Option<u32> {
        None
    }
}

/// One permit, which some responses give back: see [`OutgoingLayer::refund_if`](crate::OutgoingLayer::refund_if).
#[derive(Clone, Copy, Debug)]
pub struct RefundIf<F>(pub(super) F);

impl<R, F: Fn(&R) -> bool + Send + Sync + 'static> OutgoingCost<R> for RefundIf<F> {
    fn actual_cost(&self, response: &R) -> Option<u32> {
        (self.0)(response).then_some(0)
    }
}

/// The cost that a response has: see [`OutgoingLayer::charge_if`](crate::OutgoingLayer::charge_if).
#[derive(Clone, Copy, Debug)]
pub struct ChargeIf<F>(pub(super) F);

impl<R, F: Fn(&R) -> u32 + Send + Sync + 'static> OutgoingCost<R> for ChargeIf<F> {
    fn actual_cost(&self, response: &R) -> Option<u32> {
        Some((self.0)(response))
    }
}

//! Limits of the calls that a client makes.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use limiter_core::service::{LimitedRequest, PlanOfCall, TowerRule};
use limiter_core::{Key, Limit, Limiter, OnError};
use tower_layer::Layer;

use crate::held_body::CallSlots;

mod choices;
mod cost;
mod error;
mod future;
mod hold;
mod pauses;
mod permission;
mod retry_after;
mod service;

pub use choices::{DemandedPause, OneKey, OutgoingKey, RetryAfter};
pub use cost::{ChargeIf, OnePermit, OutgoingCost, RefundIf};
pub use error::OutgoingError;
pub use future::OutgoingFuture;
pub use hold::{OutgoingHold, UntilBodyEnds};
use permission::OutgoingLimit;
pub use retry_after::retry_after;
pub use service::Outgoing;

/// A layer of `tower` for clients: it keeps the calls of a program under the limit of a peer, such as a partner's API.
///
/// A call waits up to [`wait`](OutgoingLayer::wait) for its permit and is not sent without one. After a response with the
/// status 429 or 503 and `Retry-After` no further call of its key is sent before that time: calls wait for it, or fail
/// at once if it is longer than their wait. All processes that share a store keep the limit together. The pause is known
/// to this process alone: the others get a response of their own.
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// use http::{Request, Response};
/// use limiter_core::Key;
/// use limiter_tower::OutgoingLayer;
/// use tower::{Layer, Service, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // A client, such as that of hyper-util, reqwest or tonic.
/// let client = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new("done")) });
/// // At most 10 calls of a tenant in any second, of all processes together.
/// let layer = OutgoingLayer::new("partner", "10/s".parse()?)
///     .key_by(|request: &Request<()>| Key::new("partner:").part(request.uri().path()))
///     .wait(Duration::from_secs(2));
/// let mut client = layer.layer(client);
/// let response = client.ready().await?.call(Request::new(())).await?;
/// assert_eq!(*response.body().get_ref(), "done");
/// # Ok(())
/// # }
/// ```
///
/// # Rule
/// The layer's name is that of a rule: settings by name apply to it, and it is in metrics and logs. By default all calls
/// have one key, the name.
///
/// # Clones
/// All clones of a layer and of its clients count together and share the pauses.
///
/// # Pauses and modes
/// A pause is the peer's, so it holds in every [mode](limiter_core::Mode) of the rule, also if it is off.
///
/// # Inner clients
/// A call that waits holds no place of the client, such as one in a buffer or under a concurrency limit: the client that
/// was ready is dropped, and a clone is polled ready once the call has its permit. If the clone is not ready then, the
/// permit goes back at once, and another one is taken when the clone is ready: a permit that waits for a place could be
/// used in a later window than its own. If there is none by then, the call leaves the place and waits again. Such a call
/// counts as allowed twice for observers and metrics.
///
/// # Calls at once
/// Under a limit of [concurrent calls](Limit::concurrent) a call holds its slots until the body of its response has ended or
/// is dropped: the response's body is a [`HeldBody`](crate::HeldBody). They are free too when the call fails or its future is
/// dropped. [`hold_by`](OutgoingLayer::hold_by) is for other responses.
///
/// # Cancel safety
/// A call that is dropped while it waits takes no permit, and one that is dropped after it was sent has taken its permit. One
/// that is [charged by its response](OutgoingLayer::charge_if) is charged nothing before that. While the store decides or a
/// permit goes back, it may stay taken.
#[must_use = "a layer has no effect until it is added to a client"]
pub struct OutgoingLayer<K = OneKey, P = RetryAfter, C = OnePermit, H = UntilBodyEnds> {
    options: OutgoingOptions,
    key: Arc<K>,
    pause: Arc<P>,
    cost: Arc<C>,
    hold: Arc<H>,
    limit: Arc<OutgoingLimit>,
}

/// The options of a layer.
#[derive(Clone, Debug)]
struct OutgoingOptions {
    limit: Limit,
    wait: Duration,
    longest_pause: Duration,
    limiter: Option<Limiter>,
    on_error: Option<OnError>,
    payment: Payment,
}

/// The time at which a call takes its permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payment {
    /// A permit, before it is sent.
    Prepaid,
    /// A permit, before it is sent, and its response may give them back.
    Refundable,
    /// Permits, after its response.
    Postpaid,
}

impl OutgoingOptions {
    /// Returns the request of a call.
    fn request<'a>(&self, key: &'a Key) -> LimitedRequest<'a> {
        let (postpaid, on_error) = (Some(self.payment == Payment::Postpaid), self.on_error);
        LimitedRequest { key, form: 0, cost: 1, postpaid, on_error, wants_limits: false, plan: PlanOfCall::NONE }
    }
}

impl OutgoingLayer {
    /// Creates a layer with the name of its rule, and the limit of the peer.
    ///
    /// Names should not contain values. At most 10 000 different layers of a process have a name in decisions.
    pub fn new(rule: impl Into<String>, limit: Limit) -> Self {
        let rule = rule.into();
        let options = OutgoingOptions {
            limit,
            wait: Duration::ZERO,
            longest_pause: Duration::from_secs(300),
            limiter: None,
            on_error: None,
            payment: Payment::Prepaid,
        };
        let key = Arc::new(OneKey(Key::new(&rule)));
        let limit = Arc::new(OutgoingLimit::new(TowerRule::new(&rule, &[], Some(limit))));
        Self {
            options,
            key,
            pause: Arc::new(RetryAfter),
            cost: Arc::new(OnePermit),
            hold: Arc::new(UntilBodyEnds),
            limit,
        }
    }
}

impl<K, P, C, H> OutgoingLayer<K, P, C, H> {
    /// Sets the key of each call, for a peer that limits its clients' users or tenants, or for several peers. Calls of
    /// one key share the limit and the pauses.
    pub fn key_by<R, F>(self, key: F) -> OutgoingLayer<F, P, C, H>
    where
        F: Fn(&R) -> Key + Send + Sync + 'static,
    {
        let Self { options, pause, cost, hold, limit, .. } = self;
        OutgoingLayer { options, key: Arc::new(key), pause, cost, hold, limit }
    }

    /// Sets the pause that a response demands: `None` for no pause. The default is [`RetryAfter`], for responses of the
    /// crate `http`. [`retry_after`] reads the field of other types.
    pub fn pause_by<R, F>(self, pause: F) -> OutgoingLayer<K, F, C, H>
    where
        F: Fn(&R) -> Option<Duration> + Send + Sync + 'static,
    {
        let Self { options, key, cost, hold, limit, .. } = self;
        OutgoingLayer { options, key, pause: Arc::new(pause), cost, hold, limit }
    }

    /// Gives the permit of a call back after a response for which `refund_if` returns `true`, such as one that the peer does
    /// not count.
    ///
    /// The response waits for the refund, which is done although its future is dropped meanwhile. It replaces a `charge_if`
    /// before it.
    pub fn refund_if<R, F>(self, refund_if: F) -> OutgoingLayer<K, P, RefundIf<F>, H>
    where
        F: Fn(&R) -> bool + Send + Sync + 'static,
    {
        self.with_cost(RefundIf(refund_if), Payment::Refundable)
    }

    /// Charges a call by its response: `charge_if` returns the permits that it counts, such as the points that the peer
    /// states. Before, it takes none, and is sent while one permit is left.
    ///
    /// A charge counts whether it fits or not, as by [`Limiter::settle`]. The response waits for it, and it is done although
    /// the response's future is dropped meanwhile. A call without a response is charged nothing. It
    /// replaces a `refund_if` before it.
    ///
    /// **The limit does not bound how many calls are sent before the first response.** Put a client with a limit of
    /// concurrency inside of the layer: its place is free after the charge.
    ///
    /// ```
    /// use http::{Response, header::HeaderName};
    /// use limiter_tower::OutgoingLayer;
    ///
    /// # fn main() -> Result<(), limiter_core::Error> {
    /// static POINTS: HeaderName = HeaderName::from_static("x-points");
    /// let layer = OutgoingLayer::new("partner", "1000/min".parse()?)
    ///     .charge_if(|response: &Response<String>| {
    ///         let points = response.headers().get(&POINTS).and_then(|points| points.to_str().ok());
    ///         points.and_then(|points| points.parse().ok()).unwrap_or(1)
    ///     });
    /// # let _ = layer;
    /// # Ok(())
    /// # }
    /// ```
    pub fn charge_if<R, F>(self, charge_if: F) -> OutgoingLayer<K, P, ChargeIf<F>, H>
    where
        F: Fn(&R) -> u32 + Send + Sync + 'static,
    {
        self.with_cost(ChargeIf(charge_if), Payment::Postpaid)
    }

    fn with_cost<D>(self, cost: D, payment: Payment) -> OutgoingLayer<K, P, D, H> {
        let Self { options, key, pause, hold, limit, .. } = self;
        let options = OutgoingOptions { payment, ..options };
        OutgoingLayer { options, key, pause, cost: Arc::new(cost), hold, limit }
    }

    /// Sets what holds the slots of a call, under a limit of [concurrent calls](Limit::concurrent), once it has a response:
    /// `hold` returns what the caller gets, and the slots are free when they are dropped.
    ///
    /// By default the body of the response does, which becomes a [`HeldBody`](crate::HeldBody). Clients with responses of
    /// another type than that of the crate `http` need this, also without such a limit.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    ///
    /// use limiter_tower::OutgoingLayer;
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // The slots are free when the response is there.
    /// let layer = OutgoingLayer::new("database", "10 concurrent".parse()?)
    ///     .pause_by(|_: &u32| None)
    ///     .hold_by(|rows: u32, _| rows)
    ///     .wait(Duration::from_secs(2));
    /// let client = layer.layer(service_fn(|_: &str| async { Ok::<_, Infallible>(7) }));
    /// assert_eq!(client.oneshot("select").await?, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn hold_by<T, U, F>(self, hold: F) -> OutgoingLayer<K, P, C, F>
    where
        F: Fn(T, CallSlots) -> U + Send + Sync + 'static,
    {
        let Self { options, key, pause, cost, limit, .. } = self;
        OutgoingLayer { options, key, pause, cost, hold: Arc::new(hold), limit }
    }

    /// Sets the longest time that a call waits for its permit and for the end of a pause. Default: it does not wait.
    pub fn wait(mut self, max_wait: Duration) -> Self {
        self.options.wait = max_wait;
        self
    }

    /// Sets the longest pause after a response. A peer that demands more gets a call earlier. Default: 5 min.
    pub fn longest_pause(mut self, longest: Duration) -> Self {
        self.options.longest_pause = longest;
        self
    }

    /// Sets the limiter. The default is that of the scope in which the client is called, or else of the process.
    pub fn limiter(mut self, limiter: Limiter) -> Self {
        self.options.limiter = Some(limiter);
        self
    }

    /// Sets the policy for failures of the limiter, if no settings by name do.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.options.on_error = Some(policy);
        self
    }
}

impl<S, K, P, C, H> Layer<S> for OutgoingLayer<K, P, C, H> {
    type Service = Outgoing<S, K, P, C, H>;

    fn layer(&self, inner: S) -> Outgoing<S, K, P, C, H> {
        Outgoing::new(inner, self.clone())
    }
}

impl<K, P, C, H> Clone for OutgoingLayer<K, P, C, H> {
    fn clone(&self) -> Self {
        Self {
            options: self.options.clone(),
            key: Arc::clone(&self.key),
            pause: Arc::clone(&self.pause),
            cost: Arc::clone(&self.cost),
            hold: Arc::clone(&self.hold),
            limit: Arc::clone(&self.limit),
        }
    }
}

impl<K, P, C, H> Debug for OutgoingLayer<K, P, C, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingLayer")
            .field("options", &self.options)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

//! The layer with its options.

use std::fmt::{self, Debug};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::request::Parts;
use http::{Response, StatusCode};
use limiter_core::http::Fields;
use limiter_core::service::TowerRule;
use limiter_core::{Denied, Limit, Limiter, OnError};
use tower_layer::Layer;

use crate::answer::{CustomAnswer, HttpAnswer, ProblemAnswer, SettlingAnswer};
use crate::client_ip::ClientIp;
use crate::customer_plan::CustomerPlans;
use crate::decide::LayerLimit;
use crate::key::{MAX_FORMS, RequestKey};
use crate::missing::Missing;
use crate::options::Options;
use crate::piece_name::PieceNames;
use crate::service::RateLimit;
use crate::settlement::Settlement;
use crate::shared::Shared;

/// The most requests of a key that are open in a process, if they are charged by their answer.
const DEFAULT_MAX_OPEN: u32 = 20;

/// A layer of `tower` that limits the requests of a service.
///
/// A denied request gets 429 with fields and a [problem text](limiter_core::http::problem), and the service does not get
/// it. An allowed one has its [`Allowed`](limiter_core::Allowed) in its extensions, and its answer has the fields. By
/// default a request counts by [the address of its client](ClientIp::peer).
///
/// ```
/// use limiter_tower::{Header, RateLimitLayer, RequestKey, ClientIp};
///
/// # fn main() -> Result<(), limiter_core::Error> {
/// let layer = RateLimitLayer::new("api", "100/min".parse()?)
///     .key(Header::new("x-api-key").or(ClientIp::x_forwarded_for(1)));
/// # let _ = layer;
/// # Ok(())
/// # }
/// ```
///
/// # Rule
/// The layer's name is that of a rule: settings by name apply to it, and it is in metrics, logs and the fields. With
/// [strict](limiter_core::RuleSet::strict) rules declare the name at the limiter's
/// [builder](limiter_core::Builder::declare), which cannot see layers.
///
/// The key of a request is the rule's name and then each piece: `Key::new("api").text(":ip:").part(address)`. With this
/// key [`Limiter::named`] peeks at a quota or resets it.
///
/// # Clones
/// All clones of a layer and of its services, and all layers of one name and one limiter, count together.
///
/// # Inner services
/// The layer is ready when the service inside is. A request that is decided when the layer is called gets the service
/// that was ready. One that waits, or whose decision is on its way, holds no place of the service: a clone is polled
/// ready after the decision. An error of this poll is the answer.
///
/// # Requests at once
/// Under a limit of [concurrent calls](Limit::concurrent), its own or one of the settings, a request holds its slots until the
/// body of its answer has ended or is dropped: so the body is a [`HeldBody`](crate::HeldBody). A stream, such as server-sent
/// events, holds them as long as it lives. The slots are free too if the service fails, or if its future is dropped, as after
/// a panic. The answer to an upgrade, such as that of a web socket, has no body: let an annotated function around the
/// upgraded connection hold the slots.
///
/// # Cancel safety
/// The permits of a request are taken before the service gets it: when the service is called, or when its future is
/// polled. A request whose client disconnects has taken its permits, also if its body is never read.
#[must_use = "a layer has no effect until it is added to a service"]
pub struct RateLimitLayer<K = ClientIp, A = ProblemAnswer> {
    parts: Arc<LayerParts<K, A>>,
}

/// The parts that all clones of a layer share. Servers may clone a layer, and add it to a service, for each request.
struct LayerParts<K, A> {
    options: Options,
    key: Arc<K>,
    answer: A,
    /// Made when the layer is first added to a service.
    shared: OnceLock<Arc<Shared<K, A>>>,
}

impl RateLimitLayer {
    /// Creates a layer with the name of its rule, and the limit of each client.
    ///
    /// Names should not contain values such as a user's id. At most 10 000 different layers of a process have a name in
    /// decisions and overrides by parts.
    pub fn new(rule: impl Into<String>, limit: Limit) -> Self {
        let rule = rule.into();
        // So that the rule is listed before the layer is added to a service.
        let _ = TowerRule::new(&rule, &[], Some(limit));
        let options = Options {
            rule,
            limit,
            limit_by: None,
            more_limits: Vec::new(),
            missing: Missing::default(),
            cost: None,
            plans: CustomerPlans::None,
            when: None,
            wait: Duration::ZERO,
            limiter: None,
            on_error: None,
            fields: Fields::default(),
            settlement: None,
            max_open: DEFAULT_MAX_OPEN,
        };
        Self::of_parts(options, Arc::new(ClientIp::default()), ProblemAnswer)
    }
}

impl<K, A> RateLimitLayer<K, A> {
    fn of_parts(options: Options, key: Arc<K>, answer: A) -> Self {
        Self { parts: Arc::new(LayerParts { options, key, answer, shared: OnceLock::new() }) }
    }

    /// Returns a layer with other answers.
    fn with_answer<B>(self, answer: impl FnOnce(A) -> B) -> RateLimitLayer<K, B>
    where
        A: Clone,
    {
        let LayerParts { options, key, answer: present, .. } = &*self.parts;
        RateLimitLayer::of_parts(options.clone(), Arc::clone(key), answer(present.clone()))
    }

    /// Returns a layer that settles requests by the status of their answers.
    fn with_settlement(self, settlement: Settlement) -> RateLimitLayer<K, SettlingAnswer<A>>
    where
        A: Clone,
    {
        self.with_options(|options| options.settlement = Some(settlement)).with_answer(SettlingAnswer)
    }

    /// Returns a layer with changed options.
    fn with_options(self, change: impl FnOnce(&mut Options)) -> Self
    where
        A: Clone,
    {
        let LayerParts { options, key, answer, .. } = &*self.parts;
        let mut options = options.clone();
        change(&mut options);
        Self::of_parts(options, Arc::clone(key), answer.clone())
    }
}

impl<K, A: Clone> RateLimitLayer<K, A> {
    /// Sets what requests are counted by: see [`RequestKey`].
    ///
    /// # Panics
    /// If the key has more than 1 000 forms. Create the layer at the program's start.
    pub fn key<L: RequestKey>(self, mut key: L) -> RateLimitLayer<L, A> {
        let forms = key.form_count();
        assert!(forms <= MAX_FORMS, "`key` must have at most {MAX_FORMS} forms, got {forms}: use fewer alternatives");
        key.name_pieces(&mut PieceNames::default());
        let LayerParts { options, answer, .. } = &*self.parts;
        RateLimitLayer::of_parts(options.clone(), Arc::new(key), answer.clone())
    }

    /// Adds a limit: a request takes permits of all limits, or of none. The fields describe each of them, under the name of
    /// the rule and the window, such as `api-1s` and `api-1d`.
    ///
    /// Limits of one algorithm and one window have one count, of which a request takes its permits once: with `10/1m` and
    /// `4/1m` four requests are allowed.
    pub fn limit(self, limit: Limit) -> Self {
        self.with_options(|options| options.more_limits.push(limit))
    }

    /// Chooses the limit of each request, such as that of the user's plan, in place of the limit of
    /// [`new`](RateLimitLayer::new).
    ///
    /// Requests of one key with several limits share one count, if these limits differ in `max` alone.
    pub fn limit_by(self, limit: impl Fn(&Parts) -> Limit + Send + Sync + 'static) -> Self {
        self.with_options(|options| options.limit_by = Some(Arc::new(limit)))
    }

    /// Sets the plan of each request's customer, such as `pro`, by which the rule may have [other
    /// limits](limiter_core::Rule::plans). `None` is no plan. The plan is no part of the key: a customer who changes it keeps
    /// what was used.
    ///
    /// Settings name the limits of plans, and change them at run time. The limits of
    /// [`limit_by`](RateLimitLayer::limit_by) are in the source.
    ///
    /// ```
    /// use limiter_tower::{Extension, RateLimitLayer};
    ///
    /// #[derive(Clone)]
    /// struct Customer {
    ///     id: u64,
    ///     plan: &'static str,
    /// }
    ///
    /// # fn main() -> Result<(), limiter_core::Error> {
    /// let layer = RateLimitLayer::new("api", "1000/d".parse()?)
    ///     .key(Extension::new(|customer: &Customer| customer.id))
    ///     .plan(|parts| parts.extensions.get::<Customer>().map(|customer| customer.plan));
    /// # let _ = layer;
    /// # Ok(())
    /// # }
    /// ```
    pub fn plan<F, P>(self, plan: F) -> Self
    where
        F: Fn(&Parts) -> Option<P> + Send + Sync + 'static,
        P: AsRef<str>,
    {
        self.with_options(|options| options.plans = CustomerPlans::by(plan))
    }

    /// Sets the plan of each request's customer by an async function, such as a read of a database: see
    /// [`plan`](RateLimitLayer::plan). The last one that is set holds.
    ///
    /// The future cannot borrow from the request: copy what it needs first. A panic of the function or of its future is that
    /// of the service: no permit is taken.
    pub fn plan_async<F, U, P>(self, plan: F) -> Self
    where
        F: Fn(&Parts) -> U + Send + Sync + 'static,
        U: Future<Output = Option<P>> + Send + 'static,
        P: AsRef<str>,
    {
        self.with_options(|options| options.plans = CustomerPlans::by_async(plan))
    }

    /// Sets what a request gets that lacks its key. The default is an answer with the status 400.
    pub fn missing(self, missing: Missing) -> Self {
        self.with_options(|options| options.missing = missing)
    }

    /// Sets the permits that a request takes. The default is 1. A request that costs more than the limit allows is
    /// denied without a `retry-after`; one that costs 0 is allowed.
    pub fn cost(self, cost: impl Fn(&Parts) -> u32 + Send + Sync + 'static) -> Self {
        self.with_options(|options| options.cost = Some(Arc::new(cost)))
    }

    /// Limits only the requests for which `when` returns `true`. Others have no fields.
    pub fn when(self, when: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with_options(|options| options.when = Some(Arc::new(when)))
    }

    /// Lets a request wait up to this long for its permits, before it is denied.
    pub fn wait(self, max_wait: Duration) -> Self {
        self.with_options(|options| options.wait = max_wait)
    }

    /// Sets the limiter. The default is that of the scope in which the service is called, or else of the process.
    pub fn limiter(self, limiter: Limiter) -> Self {
        self.with_options(|options| options.limiter = Some(limiter))
    }

    /// Sets the policy for failures of the limiter, if no settings by name do. With [`OnError::Raise`] the answer is 503.
    pub fn on_error(self, policy: OnError) -> Self {
        self.with_options(|options| options.on_error = Some(policy))
    }

    /// Sets the fields about quotas. The default is [`Fields::Draft11`].
    ///
    /// They are on the answers to allowed and denied requests, but not on redirects. Nested layers add a member each to
    /// the lists of [`Fields::Draft11`]; of [`Fields::Legacy`] the fields of the innermost layer stay.
    pub fn fields(self, fields: Fields) -> Self {
        self.with_options(|options| options.fields = fields)
    }

    /// Makes the answer to a denied request. The layer adds the fields that it lacks.
    ///
    /// Other answers of the layer, those of failures and of requests that lack their key, have no body then.
    pub fn denied<F, B>(self, denied: F) -> RateLimitLayer<K, CustomAnswer<F>>
    where
        F: Fn(&Parts, &Denied) -> Response<B> + Send + Sync + 'static,
        A: HttpAnswer,
    {
        self.with_answer(|_| CustomAnswer(Arc::new(denied)))
    }

    /// Gives the permits of a request back after an answer for which `refund_if` returns `true`. So only failures count, or
    /// only successes.
    ///
    /// While such requests are under way their permits are taken: see [`charge_if`](RateLimitLayer::charge_if) for requests
    /// that take none. The answer waits for the refund. A client that disconnects meanwhile does not prevent it. The permits
    /// stay taken if it fails, if the client disconnects before the service has answered, or if the service returns an
    /// error. The layer keeps a copy of the request's head for it.
    ///
    /// It replaces a `charge_if` or `settle_if` before it: the last one that is set holds.
    ///
    /// ```
    /// use limiter_tower::{ClientIp, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), limiter_core::Error> {
    /// // Requests that the service has refused to serve do not count.
    /// let layer = RateLimitLayer::new("export", "5/15min".parse()?)
    ///     .key(ClientIp::peer())
    ///     .refund_if(|_, status| status == 503);
    /// # let _ = layer;
    /// # Ok(())
    /// # }
    /// ```
    pub fn refund_if<F>(self, refund_if: F) -> RateLimitLayer<K, SettlingAnswer<A>>
    where
        F: Fn(&Parts, StatusCode) -> bool + Send + Sync + 'static,
        A: HttpAnswer,
    {
        self.with_settlement(Settlement::Refund(Arc::new(refund_if)))
    }

    /// Makes a request count what `settle_if` returns for its answer, instead of the [`cost`](RateLimitLayer::cost) that it
    /// has taken before. `None` leaves that.
    ///
    /// What it did not need goes back, as by [`refund_if`](RateLimitLayer::refund_if), and what it needed in addition is
    /// charged whether it fits or not: see [`Limiter::settle`]. If the service has settled the request itself, nothing
    /// changes. A settlement that fails is a warning in the log. Otherwise it is as for a refund.
    ///
    /// It replaces a `refund_if` or `charge_if` before it: the last one that is set holds.
    ///
    /// ```
    /// use limiter_tower::{ClientIp, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), limiter_core::Error> {
    /// // A page that is not there costs ten.
    /// let layer = RateLimitLayer::new("pages", "100/min".parse()?)
    ///     .settle_if(|_, status| if status == 404 { Some(10) } else { None });
    /// # let _: RateLimitLayer<ClientIp, _> = layer;
    /// # Ok(())
    /// # }
    /// ```
    pub fn settle_if<F>(self, settle_if: F) -> RateLimitLayer<K, SettlingAnswer<A>>
    where
        F: Fn(&Parts, StatusCode) -> Option<u32> + Send + Sync + 'static,
        A: HttpAnswer,
    {
        self.with_settlement(Settlement::Settle(Arc::new(settle_if)))
    }

    /// Charges a request by its answer: `charge_if` returns the permits that it counts. Before, it takes none, and is
    /// allowed while one permit is left. So requests that turn out to be free never deny each other.
    ///
    /// A limit alone does not bound how many such requests start before the first charge.
    /// [`open_at_most`](RateLimitLayer::open_at_most) does: by default a key has at most 20 in each process.
    ///
    /// A charge counts whether it fits or not, as by [`Limiter::settle`]. The answer waits for it, so that the client's
    /// next request finds it counted; the fields of the answer are from before. Nothing is charged if the client disconnects
    /// before the service has answered, or if the service returns an error or panics. A client that disconnects later does
    /// not prevent the charge. A charge that fails is a warning in the log. The layer keeps a copy of the request's head for
    /// it.
    ///
    /// [`cost`](RateLimitLayer::cost) has no effect then. It replaces a `refund_if` or `settle_if` before it: the last one
    /// that is set holds.
    ///
    /// ```
    /// use limiter_tower::{ClientIp, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), limiter_core::Error> {
    /// // Five failed log-ins, and any number of successful ones.
    /// let layer = RateLimitLayer::new("log-in", "5/15min".parse()?)
    ///     .key(ClientIp::peer())
    ///     .charge_if(|_, status| if status == 401 { 1 } else { 0 })
    ///     .open_at_most(3);
    /// # let _ = layer;
    /// # Ok(())
    /// # }
    /// ```
    pub fn charge_if<F>(self, charge_if: F) -> RateLimitLayer<K, SettlingAnswer<A>>
    where
        F: Fn(&Parts, StatusCode) -> u32 + Send + Sync + 'static,
        A: HttpAnswer,
    {
        self.with_settlement(Settlement::Charge(Arc::new(charge_if)))
    }

    /// Sets the most requests of a key that have no answer yet, in this process, if they are charged by
    /// [`charge_if`](RateLimitLayer::charge_if). Otherwise it has no effect. The default is 20.
    ///
    /// Further ones are denied: the denial describes the layer's first limit, with a
    /// [`retry_after`](Denied::retry_after) of 1 s and the source [`DeniedUntil`](limiter_core::Source::DeniedUntil), and
    /// no store is called. A request is open from before its decision until its charge is counted, or until the service has
    /// returned an error, or its future is dropped. The body of an answer may be under way longer.
    ///
    /// So at most this many requests of a key, in each process, start after the limit was exceeded: in `n` processes
    /// `n * most`. Layers of one key and one limiter count together. Under a rule that is off or in shadow mode there is no
    /// bound.
    pub fn open_at_most(self, most: u32) -> Self {
        self.with_options(|options| options.max_open = most)
    }

    /// Answers as gRPC does, with a status in the trailers alone: `RESOURCE_EXHAUSTED` with `RetryInfo`, `UNAVAILABLE`
    /// if a failure policy denied the request, `INVALID_ARGUMENT` if it lacks its key.
    ///
    /// With the feature `tonic`, of tonic 0.14.
    #[cfg(feature = "tonic")]
    pub fn grpc(self) -> RateLimitLayer<K, crate::answer::GrpcAnswer>
    where
        A: crate::answer::Plain,
    {
        self.with_answer(|_| crate::answer::GrpcAnswer)
    }
}

impl<S, K: RequestKey, A: Clone> Layer<S> for RateLimitLayer<K, A> {
    type Service = RateLimit<S, K, A>;

    fn layer(&self, inner: S) -> RateLimit<S, K, A> {
        let LayerParts { options, key, answer, shared } = &*self.parts;
        let shared = shared.get_or_init(|| {
            let limit = LayerLimit::new(options.clone(), Arc::clone(key));
            Arc::new(Shared { limit, answer: answer.clone() })
        });
        RateLimit::new(inner, Arc::clone(shared))
    }
}

impl<K, A> Clone for RateLimitLayer<K, A> {
    fn clone(&self) -> Self {
        Self { parts: Arc::clone(&self.parts) }
    }
}

impl<K, A> Debug for RateLimitLayer<K, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.options.fmt(f)
    }
}

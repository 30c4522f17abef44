//! The decision about a request.

use std::ops::Deref;
use std::sync::Arc;

use http::request::Parts;
use limiter_core::private::{LimiterHandle, current};
use limiter_core::service::{HeldSlots, LimitedRequest, OpenCall, PlanOfCall, TowerRule, UndecidedRequest};
use limiter_core::{Allowed, Decision, Denied, Error, Limit, Limiter};

use crate::held_body::CallSlots;
use crate::key::{PartialKey, RequestKey};
use crate::missing::{Lack, Missing, MissingLog};
use crate::options::Options;
use crate::piece_name::{PieceName, template};
use crate::quota_fields::FieldWriter;
use crate::repeated::RepeatedLog;
use crate::settlement::Settlement;

/// The piece of requests that lack their key and share a quota. Its value is empty.
const MISSING: &str = "missing";

/// The limit of a layer.
pub(crate) struct LayerLimit<K> {
    pub(crate) options: Options,
    pub(crate) rule: TowerRule,
    key: Arc<K>,
    /// The key of requests that lack a piece and share a quota.
    missing_key: PartialKey,
    pub(crate) fields: FieldWriter,
    missing_log: MissingLog,
    repeated_log: RepeatedLog,
}

/// The beginning of a decision.
pub(crate) enum Start {
    Decided(Outcome),
    /// The store must decide, or the request may wait.
    Keyed(PreparedRequest),
    /// The key is not known yet.
    Unkeyed,
}

/// A request with its key, before the decision.
pub(crate) struct PreparedRequest {
    key: PartialKey,
    limit: Limit,
    cost: u32,
    plan: PlanOfCall,
    /// The request as it was planned, if a shared store must decide about it.
    undecided: Option<UndecidedRequest>,
}

/// The result of the decision about a request.
pub(crate) enum Outcome {
    /// The service gets the request: with its permit, unless it is not limited.
    Pass(Option<Permit>),
    Reject(Rejected),
}

/// The permit of an allowed request.
pub(crate) struct Permit {
    pub(crate) allowed: Allowed,
    /// The limiter that decided; `None` unless the answer settles the request.
    pub(crate) limiter: Option<Limiter>,
    /// Its place among the open requests of its key. `None` unless these are bounded.
    pub(crate) open: Option<Box<OpenCall>>,
    pub(crate) slots: CallSlots,
}

/// A decision with what its request holds.
struct Decided {
    decision: Decision,
    open: Option<Box<OpenCall>>,
    slots: CallSlots,
}

/// The reason why the service does not get a request.
pub(crate) enum Rejected {
    Denied(Denied),
    Failed(Error),
    LacksKey,
}

/// The treatment of a request that lacks its key.
enum LacksKey {
    Exempt,
    Rejected,
}

impl From<Decision> for Decided {
    fn from(decision: Decision) -> Self {
        Self { decision, open: None, slots: CallSlots::default() }
    }
}

impl From<LacksKey> for Outcome {
    fn from(lacks_key: LacksKey) -> Self {
        match lacks_key {
            LacksKey::Exempt => Self::Pass(None),
            LacksKey::Rejected => Self::Reject(Rejected::LacksKey),
        }
    }
}

impl<K: RequestKey> LayerLimit<K> {
    /// Registers the rule of a layer.
    pub(crate) fn new(options: Options, key: Arc<K>) -> Self {
        let Options { rule, limit, fields, .. } = &options;
        let forms = key.forms();
        let mut templates: Vec<_> = forms.iter().map(|pieces| template(rule, pieces)).collect();
        let missing_key = PartialKey::new(rule).add(PieceName::new(MISSING).text(), "");
        let missing_key = PartialKey { form: templates.len(), ..missing_key };
        templates.push(template(rule, &[MISSING.to_owned()]));
        let rule = TowerRule::new(rule, &templates, Some(*limit));
        if let Some(limiter) = &options.limiter {
            rule.resolve_settings(limiter);
        }
        Self {
            rule,
            key,
            missing_key,
            fields: FieldWriter::new(*fields, *limit),
            missing_log: MissingLog::new(&forms),
            repeated_log: RepeatedLog::default(),
            options,
        }
    }

    /// Begins the decision about a request, and ends it if that takes no wait.
    pub(crate) fn start(&self, parts: &Parts) -> Start {
        if self.options.when.as_ref().is_some_and(|when| !when(parts)) {
            return Start::Decided(Outcome::Pass(None));
        }
        self.repeated_log.check(self.rule.name(), parts);
        if self.key.is_async() || self.options.plans.is_async() {
            return Start::Unkeyed;
        }
        let found = self.key.add_to(PartialKey::new(self.rule.name()), parts);
        let prepared = match self.prepare(found, parts, self.options.plans.read_now(parts)) {
            Ok(prepared) => prepared,
            Err(lacks_key) => return Start::Decided(lacks_key.into()),
        };
        match self.try_decide(&prepared) {
            Ok(outcome) => Start::Decided(outcome),
            Err(undecided) => Start::Keyed(PreparedRequest { undecided, ..prepared }),
        }
    }

    fn try_decide(&self, prepared: &PreparedRequest) -> Result<Outcome, Option<UndecidedRequest>> {
        let Options { more_limits, wait, .. } = &self.options;
        if !wait.is_zero() || !more_limits.is_empty() || self.is_postpaid() {
            return Err(None);
        }
        let limiter = self.limiter();
        let decision = self.rule.try_decide(&limiter, &prepared.limit, &self.request(prepared))?;
        Ok(self.outcome(Decided::from(decision), &limiter))
    }

    /// Returns whether requests take nothing, and are charged by their answer.
    pub(crate) fn is_postpaid(&self) -> bool {
        self.options.settlement.as_ref().is_some_and(Settlement::is_postpaid)
    }

    fn outcome(&self, decided: Decided, limiter: &Limiter) -> Outcome {
        let Decided { decision, open, slots } = decided;
        match decision {
            Decision::Allowed(allowed) => {
                let limiter = self.options.settlement.is_some().then(|| limiter.clone());
                Outcome::Pass(Some(Permit { allowed, limiter, open, slots }))
            }
            Decision::Denied(denied) => Outcome::Reject(Rejected::Denied(denied)),
        }
    }

    /// Ends the decision about a request that [`start`](Self::start) left undecided.
    pub(crate) async fn finish(&self, prepared: Option<PreparedRequest>, parts: &Parts) -> Outcome {
        let mut prepared = match prepared {
            Some(prepared) => prepared,
            None => {
                let found = self.key.add_later(PartialKey::new(self.rule.name()), parts).await;
                match self.prepare(found, parts, self.options.plans.read(parts).await) {
                    Ok(prepared) => prepared,
                    Err(lacks_key) => return lacks_key.into(),
                }
            }
        };
        // An undecided request is polled first at its call, so this is the limiter that has planned it.
        let limiter = self.limiter();
        let decided = match prepared.undecided.take() {
            Some(undecided) => undecided.decide(&limiter, &prepared.key.key).await.map(Decided::from),
            None => self.decide(&limiter, &prepared).await,
        };
        match decided {
            Ok(decided) => self.outcome(decided, &limiter),
            Err(error) => Outcome::Reject(Rejected::Failed(error)),
        }
    }

    /// Decides about a request under all limits of the layer. If its answer charges it, it is open from here on.
    async fn decide(&self, limiter: &Limiter, prepared: &PreparedRequest) -> Result<Decided, Error> {
        let (limits, request) = (self.limits(prepared), self.request(prepared));
        let open = match self.is_postpaid() {
            true => self.rule.begin(limiter, &limits, &request, self.options.max_open),
            false => Ok(None),
        };
        match open {
            Ok(open) => {
                let mut held = HeldSlots::new();
                let decision = self.rule.decide(limiter, &limits, request, self.options.wait, &mut held).await?;
                Ok(Decided { decision, open: open.map(Box::new), slots: CallSlots::new(held) })
            }
            Err(denied) => Ok(Decision::Denied(denied).into()),
        }
    }

    /// The limits of a request.
    fn limits(&self, prepared: &PreparedRequest) -> Vec<Limit> {
        [prepared.limit].iter().chain(&self.options.more_limits).copied().collect()
    }

    fn request<'a>(&self, prepared: &'a PreparedRequest) -> LimitedRequest<'a> {
        let PreparedRequest { key: PartialKey { key, form }, cost, plan, .. } = prepared;
        let postpaid = self.options.settlement.as_ref().and_then(Settlement::postpaid);
        let on_error = self.options.on_error;
        let wants_limits = self.fields.describe_each();
        LimitedRequest { key, form: *form, cost: *cost, postpaid, on_error, wants_limits, plan: *plan }
    }

    /// Adds limit, cost and plan to the key of a request. `Err` for a request that lacks its key.
    fn prepare(
        &self,
        found: Result<PartialKey, Lack>,
        parts: &Parts,
        plan: PlanOfCall,
    ) -> Result<PreparedRequest, LacksKey> {
        let Options { limit, limit_by, cost, missing, .. } = &self.options;
        let key = match (found, missing) {
            (Ok(key), _) => key,
            (Err(_), Missing::Shared) => self.missing_key.clone(),
            (Err(_), Missing::Allow) => return Err(LacksKey::Exempt),
            (Err(lack), Missing::Deny) => {
                self.missing_log.count(self.rule.name(), &lack);
                return Err(LacksKey::Rejected);
            }
        };
        let limit = limit_by.as_ref().map_or(*limit, |limit_by| limit_by(parts));
        let cost = cost.as_ref().map_or(1, |cost| cost(parts));
        Ok(PreparedRequest { key, limit, cost, plan, undecided: None })
    }

    /// The limiter of a request.
    pub(crate) fn limiter(&self) -> impl Deref<Target = Limiter> + '_ {
        match &self.options.limiter {
            Some(limiter) => LimiterRef::Own(limiter),
            None => LimiterRef::Current(current()),
        }
    }
}

/// The limiter of a layer, or of the scope or the process.
enum LimiterRef<'a> {
    Own(&'a Limiter),
    Current(LimiterHandle),
}

impl Deref for LimiterRef<'_> {
    type Target = Limiter;

    fn deref(&self) -> &Limiter {
        match self {
            Self::Own(limiter) => limiter,
            Self::Current(limiter) => limiter,
        }
    }
}

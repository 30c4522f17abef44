//! Decisions by the rules in force.

use std::sync::Arc;

use rate_limited::{Allowed, Decision, Denied, Error, ErrorKind, Key, Limit, Limiter};

use crate::denials::Denials;
use crate::reply::Rejection;
use crate::rules::{Mode, Policy, Rule, Rules};
use crate::rules_file::CurrentRules;

/// The limiter with the rules in force.
pub(crate) struct Gate {
    limiter: Limiter,
    rules: CurrentRules,
    pub(crate) denials: Denials,
    /// The limit of the calls that probe the store. No probe is denied.
    probe_limit: Limit,
}

/// A call that a rule limits.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    name: &'static str,
    rule: &'a Rule,
    user: Option<&'a str>,
    cost: u32,
}

/// The permits of a call that was let through.
#[derive(Default)]
pub(crate) struct Permit {
    /// The decision of the rules that are on. `None` if there are none, or if they failed open.
    pub(crate) allowed: Option<Allowed>,
    /// The decisions of the rules in shadow mode.
    in_shadow: Vec<Allowed>,
    /// The permits of `allowed` that were given back.
    pub(crate) refunded: u32,
}

impl<'a> Call<'a> {
    /// Creates a call that counts for one user, and costs one permit.
    pub(crate) fn of_user(name: &'static str, rule: &'a Rule, user: &'a str) -> Self {
        Self { name, rule, user: Some(user), cost: 1 }
    }

    /// Creates a call that counts for all users together, and costs one permit.
    pub(crate) fn of_all(name: &'static str, rule: &'a Rule) -> Self {
        Self { name, rule, user: None, cost: 1 }
    }

    /// Sets the number of permits that the call takes.
    pub(crate) fn cost(self, cost: u32) -> Self {
        Self { cost, ..self }
    }

    fn limit(&self) -> Limit {
        self.rule.limit_of(self.user)
    }

    fn key(&self) -> Key {
        match self.user {
            Some(user) => Key::new(self.name).text(":").part(user),
            None => Key::new(self.name),
        }
    }
}

impl Gate {
    /// Creates a gate. The limiter must raise its failures.
    ///
    /// # Errors
    /// The text of the probe's limit is not a limit.
    pub(crate) fn new(limiter: Limiter, rules: CurrentRules) -> Result<Self, Error> {
        Ok(Self { limiter, rules, denials: Denials::default(), probe_limit: "1000000/s".parse()? })
    }

    /// Returns the rules in force.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.rules.borrow().clone()
    }

    /// Lets a call through if all of its rules allow it.
    ///
    /// The rules that are on make one decision. Only a call that they allow is counted by the rules in shadow mode.
    ///
    /// # Errors
    /// The answer to a call that is denied, or that cannot be decided.
    pub(crate) async fn admit(&self, calls: &[Call<'_>]) -> Result<Permit, Rejection> {
        let enforced: Vec<_> = calls.iter().filter(|call| call.rule.mode == Mode::On).copied().collect();
        let mut permit = Permit::default();
        if !enforced.is_empty() {
            match self.check(&enforced).await {
                Ok(Decision::Allowed(allowed)) => permit.allowed = Some(allowed),
                Ok(Decision::Denied(denied)) => return Err(self.deny(&enforced, &denied)),
                Err(error) if fails_open(&enforced, &error) => {}
                Err(_) => return Err(Rejection::Unavailable),
            }
        }
        for call in calls.iter().filter(|call| call.rule.mode == Mode::Shadow) {
            match self.check(&[*call]).await {
                Ok(Decision::Allowed(allowed)) => permit.in_shadow.push(allowed),
                Ok(Decision::Denied(_)) => self.denials.count_in_shadow(call.name),
                Err(_) => {} // a rule in shadow mode stops no call
            }
        }
        Ok(permit)
    }

    /// Gives all permits of a call back.
    pub(crate) async fn refund(&self, mut permit: Permit, cost: u32) -> Permit {
        for allowed in permit.allowed.iter().chain(&permit.in_shadow) {
            if let Err(error) = self.limiter.refund(allowed).await {
                tracing::warn!(%error, "permits were not given back");
            }
        }
        permit.refunded = cost;
        permit
    }

    /// Gives the unused part of a permit back, once the cost of the call is known.
    ///
    /// A refund gives back all permits of a decision. So the used ones are taken again. Between the two steps another
    /// call may take them: then this call's permits are not counted.
    pub(crate) async fn settle(&self, permit: Permit, call: Call<'_>, used: u32) -> Permit {
        let permit = self.refund(permit, call.cost).await;
        match self.admit(&[call.cost(used)]).await {
            Ok(settled) => settled,
            Err(_) => {
                tracing::warn!(rule = call.name, used, "permits were used and are not counted");
                permit
            }
        }
    }

    /// Probes the store, and returns its failure.
    ///
    /// A probe takes a permit: without a write it would not notice a store that is full or read-only.
    pub(crate) async fn probe(&self) -> Result<(), Error> {
        self.limiter.check(&Key::new("probe"), &self.probe_limit).await.map(drop)
    }

    async fn check(&self, calls: &[Call<'_>]) -> Result<Decision, Error> {
        let keyed: Vec<_> = calls.iter().map(|call| (call.key(), call.limit(), call.cost)).collect();
        let requests: Vec<_> = keyed.iter().map(|(key, limit, cost)| (key, limit, *cost)).collect();
        self.limiter.check_all(&requests).await
    }

    fn deny(&self, calls: &[Call<'_>], denied: &Denied) -> Rejection {
        // A denial has the limit that denied, but neither its key nor its position. Of equal limits it may be another.
        let call = calls.iter().find(|call| call.limit() == denied.limit()).unwrap_or(&calls[0]);
        self.denials.count(call.name, call.user);
        Rejection::Denied { rule: call.name, limit: denied.limit(), retry_after: denied.retry_after() }
    }
}

/// Returns whether a call goes on without a decision. Callers can cause an overload, so that failure opens no rule.
fn fails_open(calls: &[Call<'_>], error: &Error) -> bool {
    error.kind() != ErrorKind::Overloaded && calls.iter().all(|call| call.rule.on_error == Policy::Open)
}

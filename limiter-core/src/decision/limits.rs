//! The limits of a decision: one for each of its requests, if its caller has asked for them before.

use std::fmt;
use std::time::Duration;

use super::{Allowed, Decision, Denied, Description, Details};
use crate::Limit;

/// One limit of a decision, with the permits that are left of it.
///
/// [`Decision::limits`] returns one for each limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LimitState<'a> {
    pub(super) name: &'static str,
    pub(super) limit: Limit,
    pub(super) remaining: u32,
    /// Microseconds.
    pub(super) reset_after: u64,
    pub(super) key: Option<&'a str>,
}

impl<'a> LimitState<'a> {
    /// The name of its rule: an attribute's `name`, or `check` for a direct call. The limits of one rule have one name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// Permits that are left of it now. A denial has taken none.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// The time until all of its permits are available again, without further calls.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset_after)
    }

    /// The encoded key that it counts; `None` unless the limiter [exposes keys](crate::Builder::expose_keys).
    #[must_use]
    pub fn key(&self) -> Option<&'a str> {
        self.key
    }

    /// The name that lives until the process ends.
    pub(crate) fn static_name(&self) -> &'static str {
        self.name
    }
}

/// Does not contain the key.
impl fmt::Debug for LimitState<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, limit, remaining, reset_after: _, key: _ } = self;
        f.debug_struct("LimitState")
            .field("name", name)
            .field("limit", limit)
            .field("remaining", remaining)
            .field("reset_after", &self.reset_after())
            .finish()
    }
}

/// The limits of a decision with their keys.
pub(crate) type LimitStates = Vec<(LimitState<'static>, Option<String>)>;

impl Decision {
    /// Returns each limit of the call, in the order of its rules and their limits, with the permits that are left.
    ///
    /// All are there if they were asked for before the decision: by
    /// [`Builder::report_limits`](crate::Builder::report_limits), by the fields of a layer, or by a
    /// `RateLimitFieldsLayer` around the handler. Otherwise there is one, the limit that the decision describes. So it is if
    /// a failure policy decided without a count. Rules in [shadow mode](crate::Mode::Shadow) and those that are off are
    /// left out, unless the decision describes one, as for a call [without any other](Allowed::is_enforced).
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Key, Limiter};
    ///
    /// let limiter = Limiter::builder().report_limits(true).build()?;
    /// let (user, second, day) = (Key::new("user:").part(42), "5/s".parse()?, "1000/d".parse()?);
    /// let decision = limiter.check_all_blocking(&[(&user, &second, 1), (&user, &day, 1)])?;
    /// let left: Vec<_> = decision.limits().map(|state| (state.limit(), state.remaining())).collect();
    /// assert_eq!(left, [(second, 4), (day, 999)]);
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn limits(&self) -> impl Iterator<Item = LimitState<'_>> {
        match self {
            Self::Allowed(allowed) => limits(&allowed.details, allowed.description()),
            Self::Denied(denied) => limits(&denied.details, denied.description()),
        }
    }

    /// Sets the limits of the call. There are at least two.
    #[cold]
    pub(crate) fn set_limits(&mut self, limits: LimitStates) {
        let description = match self {
            Self::Allowed(allowed) => &mut allowed.extras.get_or_insert_default().description,
            Self::Denied(denied) => denied.description.get_or_insert_default(),
        };
        description.limits = limits;
    }
}

impl Allowed {
    /// Returns each limit of the call with the permits that are left: see [`Decision::limits`].
    pub fn limits(&self) -> impl Iterator<Item = LimitState<'_>> {
        limits(&self.details, self.description())
    }
}

impl Denied {
    /// Returns each limit of the call with the permits that are left: see [`Decision::limits`].
    ///
    /// A denial repeats the first limit that denied, by [`limit`](Denied::limit). Others may have no permits left either.
    pub fn limits(&self) -> impl Iterator<Item = LimitState<'_>> {
        limits(&self.details, self.description())
    }
}

fn limits<'a>(details: &Details, description: Option<&'a Description>) -> impl Iterator<Item = LimitState<'a>> {
    let all = description.map_or(&[][..], |description| &description.limits);
    let lone = || details.limit_state(description.and_then(|description| description.key.as_deref()));
    let lone = all.is_empty().then(lone);
    lone.into_iter().chain(all.iter().map(|(state, key)| LimitState { key: key.as_deref(), ..*state }))
}

impl Details {
    /// The limit that the details describe.
    pub(super) fn limit_state<'a>(&self, key: Option<&'a str>) -> LimitState<'a> {
        let &Self { name, limit, remaining, reset_after, .. } = self;
        LimitState { name, limit, remaining, reset_after, key }
    }
}

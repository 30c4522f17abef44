//! The limit of a descriptor: `rate_limit`, as Envoy's service has it and with this server's own settings beside.

use std::time::Duration;

use limiter_syntax::nearest;
use rate_limited::{Algorithm, Limit};

use super::fields::{Field, Fields};
use super::mistake::Mistakes;
use super::yaml::{Node, Place, Yaml};

/// The time for which a slot of a descriptor is held at most: longer than the 15 s of Envoy's default timeout of a route.
const DEFAULT_HOLD: Duration = Duration::from_secs(60);
const MIN_HOLD: Duration = crate::service::MIN_TTL;
const MAX_HOLD: Duration = crate::service::MAX_TTL;

/// The limit of a descriptor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RateLimitField {
    pub(super) kind: RateLimitKind,
    pub(super) algorithm: Option<Algorithm>,
    pub(super) burst: Option<u32>,
    pub(super) is_postpaid: bool,
    /// Later requests may give its permits back.
    pub(super) has_refunds: bool,
    /// The longest time for which a slot is held that no later request gives back, and for which permits can be given back.
    pub(super) hold: Duration,
    pub(super) name: Option<Box<str>>,
    /// The names of the limits that it replaces.
    pub(super) replaces: Vec<Box<str>>,
}

/// What a descriptor may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RateLimitKind {
    Limited(Limit),
    /// `requests_per_unit: 0`: nothing. The limit has the window.
    Denied(Limit),
    Unlimited,
}

/// The units of Envoy, with their lengths as its service counts them.
pub(crate) const UNITS: [(&str, u64); 7] = [
    ("second", 1),
    ("minute", 60),
    ("hour", 3_600),
    ("day", 86_400),
    ("week", 7 * 86_400),
    ("month", 30 * 86_400),
    ("year", 365 * 86_400),
];

const ALGORITHMS: [(&str, Algorithm); 5] = [
    ("sliding_window", Algorithm::SlidingWindow),
    ("fixed_window", Algorithm::FixedWindow),
    ("sliding_counter", Algorithm::SlidingCounter),
    ("token_bucket", Algorithm::TokenBucket),
    ("leaky_bucket", Algorithm::LeakyBucket),
];

const NAMES: [&str; 12] = [
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
    "unit_multiplier",
    "limit",
    "algorithm",
    "burst",
    "postpaid",
    "refunds",
    "hold",
];

impl RateLimitField {
    /// Reads a `rate_limit`. `None` after a mistake.
    pub(super) fn read(node: &Node, mistakes: &mut Mistakes) -> Option<Self> {
        let before = mistakes.len();
        let fields = Fields::read(node, "`rate_limit`", &NAMES, mistakes)?;
        let is_unlimited = fields.get("unlimited").and_then(|field| field.flag(mistakes)).unwrap_or(false);
        let kind = if is_unlimited {
            for name in ["unit", "requests_per_unit", "unit_multiplier", "limit", "algorithm", "burst", "postpaid"] {
                if let Some(field) = fields.get(name) {
                    mistakes
                        .add(field.place, format!("`{name}` must be left out beside `unlimited`, got it: remove one"));
                }
            }
            Some(RateLimitKind::Unlimited)
        } else {
            Self::limit(&fields, node.place, mistakes)
        };
        let algorithm = fields.get("algorithm").and_then(|field| algorithm(&field, mistakes));
        let burst = fields.get("burst").and_then(|field| field.number("a number of permits", 1, mistakes));
        let is_postpaid = fields.get("postpaid").and_then(|field| field.flag(mistakes)).unwrap_or(false);
        let has_refunds = fields.get("refunds").and_then(|field| field.flag(mistakes)).unwrap_or(false);
        if let Some(field) = fields.get("refunds").filter(|_| has_refunds && is_postpaid) {
            mistakes
                .add(field.place, "`refunds` must be left out beside `postpaid`, got both: its requests take nothing");
        }
        let hold =
            fields.get("hold").and_then(|field| hold(&field, kind, has_refunds, mistakes)).unwrap_or(DEFAULT_HOLD);
        let name = fields.get("name").and_then(|field| field.text(mistakes)).filter(|name| !name.is_empty());
        let replaces = fields.get("replaces").map(|field| replaces(&field, name, mistakes));
        let rate_limit = Self {
            kind: kind?,
            algorithm,
            burst,
            is_postpaid,
            has_refunds,
            hold,
            name: name.map(Into::into),
            replaces: replaces.unwrap_or_default(),
        };
        (mistakes.len() == before).then_some(rate_limit)
    }

    fn limit(fields: &Fields<'_>, place: Place, mistakes: &mut Mistakes) -> Option<RateLimitKind> {
        if let Some(limit) = fields.get("limit") {
            for name in ["unit", "requests_per_unit", "unit_multiplier"] {
                if let Some(field) = fields.get(name) {
                    mistakes.add(field.place, format!("`{name}` must be left out beside `limit`, got it: remove one"));
                }
            }
            let text = limit.text(mistakes)?;
            return match text.parse() {
                Ok(parsed) => Some(RateLimitKind::Limited(parsed)),
                Err(error) => {
                    mistakes.add(limit.place, error.to_string());
                    None
                }
            };
        }
        let (unit, requests) = (fields.get("unit"), fields.get("requests_per_unit"));
        if unit.is_none() && requests.is_none() {
            mistakes
                .add(place, "`rate_limit` must have `unit` and `requests_per_unit`, or `limit`, got none: write them");
            return None;
        }
        if unit.is_none() {
            mistakes.add(
                place,
                "`rate_limit` must have `unit` beside `requests_per_unit`, got none: write one such as `minute`",
            );
        }
        if requests.is_none() {
            mistakes.add(
                place,
                "`rate_limit` must have `requests_per_unit` beside `unit`, got none: write a number, 0 to deny",
            );
        }
        let seconds = unit.and_then(|field| unit_seconds(&field, mistakes));
        let multiplier = match fields.get("unit_multiplier") {
            Some(field) => field.number("a number of units", 1, mistakes)?,
            None => 1,
        };
        let requests = requests.and_then(|field| field.number("a number of requests", 0, mistakes));
        let window = Duration::from_secs(seconds?.saturating_mul(u64::from(multiplier)));
        let requests = requests?;
        match (Limit::new(requests.max(1), window), requests) {
            (Ok(limit), 0) => Some(RateLimitKind::Denied(limit)),
            (Ok(limit), _) => Some(RateLimitKind::Limited(limit)),
            (Err(error), _) => {
                mistakes.add(place, error.to_string());
                None
            }
        }
    }
}

fn unit_seconds(field: &Field<'_>, mistakes: &mut Mistakes) -> Option<u64> {
    let text = field.text(mistakes)?;
    let found = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    if found.is_none() {
        let names: Vec<_> = UNITS.iter().map(|(name, _)| format!("`{name}`")).collect();
        let fix = "write another window as `limit: 5/30s`";
        mistakes.add(field.place, format!("`unit` must be one of {}, got `{text}`: {fix}", names.join(", ")));
    }
    found.map(|(_, seconds)| *seconds)
}

fn algorithm(field: &Field<'_>, mistakes: &mut Mistakes) -> Option<Algorithm> {
    let text = field.text(mistakes)?;
    let found = ALGORITHMS.iter().find(|(name, _)| *name == text);
    if found.is_none() {
        let names: Vec<_> = ALGORITHMS.iter().map(|(name, _)| format!("`{name}`")).collect();
        let fix = nearest(text, ALGORITHMS.iter().map(|(name, _)| *name)).unwrap_or("sliding_window");
        mistakes
            .add(field.place, format!("`algorithm` must be one of {}, got `{text}`: write `{fix}`", names.join(", ")));
    }
    found.map(|(_, algorithm)| *algorithm)
}

fn hold(
    field: &Field<'_>,
    kind: Option<RateLimitKind>,
    has_refunds: bool,
    mistakes: &mut Mistakes,
) -> Option<Duration> {
    let text = field.text(mistakes)?;
    if let Some(RateLimitKind::Limited(limit)) = kind
        && !limit.is_concurrent()
        && !has_refunds
    {
        mistakes.add(
            field.place,
            format!("`hold` must be left out for `{limit}`, got it: it is of calls at once and of `refunds`"),
        );
        return None;
    }
    let parsed = limiter_syntax::parse_duration(text)
        .ok()
        .map(Duration::from_millis)
        .filter(|hold| (MIN_HOLD..=MAX_HOLD).contains(hold));
    if parsed.is_none() {
        mistakes
            .add(field.place, format!("`hold` must be between 1s and 10min, got `{text}`: write one such as `60s`"));
    }
    parsed
}

fn replaces(field: &Field<'_>, own: Option<&str>, mistakes: &mut Mistakes) -> Vec<Box<str>> {
    let Yaml::List(items) = &field.node.value else {
        let kind = field.node.kind();
        mistakes.add(field.node.place, format!("`replaces` must be a list, got {kind}: write `- name: …` for each"));
        return Vec::new();
    };
    let mut names = Vec::new();
    for item in items {
        let Some(fields) = Fields::read(item, "an entry of `replaces`", &["name"], mistakes) else { continue };
        match fields.get("name").and_then(|field| field.text(mistakes)) {
            None | Some("") => {
                mistakes.add(item.place, "an entry of `replaces` must have a `name`, got none: write that of a limit");
            }
            Some(name) if Some(name) == own => {
                mistakes.add(
                    item.place,
                    format!("`replaces` must name other limits, got its own name `{name}`: remove it"),
                );
            }
            Some(name) => names.push(name.into()),
        }
    }
    names
}

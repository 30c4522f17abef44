//! The names of the arguments, and their names in other limiters.

use limiter_syntax::nearest;
use syn::Expr;

use crate::value::string;

/// An argument of the attribute that has a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Argument {
    Key,
    Name,
    Window,
    Max,
    Limit,
    Limits,
    Concurrent,
    Algorithm,
    Burst,
    Zone,
    Anchor,
    Cost,
    When,
    Leases,
    Block,
    Plan,
    Wait,
    Fallback,
    OnError,
    Recover,
    Settle,
    Permit,
    Limiter,
    Crate,
}

const NAMES: [(&str, Argument); 24] = [
    ("key", Argument::Key),
    ("name", Argument::Name),
    ("window", Argument::Window),
    ("max", Argument::Max),
    ("limit", Argument::Limit),
    ("limits", Argument::Limits),
    ("concurrent", Argument::Concurrent),
    ("algorithm", Argument::Algorithm),
    ("burst", Argument::Burst),
    ("zone", Argument::Zone),
    ("anchor", Argument::Anchor),
    ("cost", Argument::Cost),
    ("when", Argument::When),
    ("leases", Argument::Leases),
    ("block", Argument::Block),
    ("plan", Argument::Plan),
    ("wait", Argument::Wait),
    ("fallback", Argument::Fallback),
    ("on_error", Argument::OnError),
    ("recover", Argument::Recover),
    ("settle", Argument::Settle),
    ("permit", Argument::Permit),
    ("limiter", Argument::Limiter),
    ("crate", Argument::Crate),
];

/// Names of the arguments in other limiters and in older interfaces.
const SYNONYMS: [(&str, &[&str]); 21] = [
    ("key", &["by", "cache_key", "id", "keys", "prefix", "resource", "subject", "value"]),
    ("name", &["label", "rule"]),
    ("window", &["duration", "every", "interval", "per", "period", "time", "time_window", "window_time", "windows"]),
    ("max", &["calls", "capacity", "count", "limit_max", "max_count", "permits", "qps", "quota", "rate", "requests"]),
    ("limits", &["bandwidths", "quotas", "rates"]),
    ("concurrent", &["at_once", "bulkhead", "concurrency", "max_concurrent", "parallel", "semaphore", "slots"]),
    ("algorithm", &["algo", "kind", "strategy"]),
    ("zone", &["time_zone", "timezone", "tz"]),
    ("anchor", &["begins", "first_day", "reset_day", "start", "starts"]),
    ("cost", &["amount", "n", "tokens", "weight"]),
    ("when", &["condition", "enabled", "execute_condition", "only_if"]),
    ("block", &["ban", "block_duration", "block_for", "lockout", "penalty"]),
    ("plan", &["package", "product", "subscription", "tier"]),
    ("wait", &["max_wait", "timeout", "timeout_duration", "wait_for"]),
    ("fallback", &["default", "degrade", "degrade_callback", "fallback_fn", "fallback_method", "on_denied", "or_else"]),
    ("on_error", &["error", "error_callback", "error_handler", "fail", "on_err", "on_fail", "on_failure", "policy"]),
    ("recover", &["catch", "on_body_error", "rescue"]),
    ("settle", &["actual", "charge", "postpaid", "reconcile", "usage"]),
    ("permit", &["allowed", "bind", "decision", "guard", "receipt"]),
    ("limiter", &["backend", "client", "redis", "store", "using", "with"]),
    ("crate", &["crate_path", "krate"]),
];

/// The only argument without a value.
pub(crate) const SKIP: &str = "skip";
const SKIP_SYNONYMS: [&str; 4] = ["exclude", "exempt", "ignore", "none"];

impl Argument {
    pub(crate) fn from_name(text: &str) -> Option<Self> {
        NAMES.iter().find(|(name, _)| *name == text).map(|(_, argument)| *argument)
    }

    pub(crate) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, argument)| *argument == self).map_or("", |(name, _)| name)
    }

    /// Returns the argument that an unknown name probably means.
    pub(crate) fn meant_by(text: &str) -> Option<Self> {
        let synonym = SYNONYMS.iter().find(|(_, others)| others.contains(&text)).map(|(name, _)| *name);
        synonym.or_else(|| nearest(text, NAMES.map(|(name, _)| name))).and_then(Self::from_name)
    }

    /// Returns `limit` instead of a number or a list of limits if the value is a string, as in `rate = "5/s"`.
    pub(crate) fn or_limit(self, value: Option<&Expr>) -> Self {
        match self {
            Self::Max | Self::Limits if value.is_some_and(|value| string(value).is_some()) => Self::Limit,
            other => other,
        }
    }
}

pub(crate) fn means_skip(text: &str) -> bool {
    SKIP_SYNONYMS.contains(&text) || nearest(text, [SKIP]).is_some()
}

/// Returns the message for an unknown name.
pub(crate) fn unknown_message(text: &str, meant: Option<Argument>) -> String {
    match meant {
        Some(meant) => format!("unknown argument `{text}`, did you mean `{}`?", meant.name()),
        None if means_skip(text) => format!("unknown argument `{text}`, did you mean `{SKIP}`?"),
        None => {
            let names = NAMES.map(|(name, _)| format!("`{name}`")).join(", ");
            format!("unknown argument `{text}`: the arguments are {names}")
        }
    }
}

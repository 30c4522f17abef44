//! The rules of the service, as the file of limits states them.

use std::collections::BTreeMap;

use rate_limited::{Error, Limit};
use serde::{Deserialize, Serialize};

/// The permits that a report takes before its cost is known.
pub(crate) const REPORT_COST: u32 = 10;

/// All rules. The file must have each of them and no others.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Rules {
    pub(crate) quote: Rule,
    pub(crate) order: Rule,
    pub(crate) order_all: Rule,
    pub(crate) login: Rule,
    pub(crate) report: Rule,
}

/// The settings of one rule.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    limit: ConfiguredLimit,
    #[serde(default)]
    pub(crate) mode: Mode,
    pub(crate) on_error: Policy,
    /// Limits of single users, in place of `limit`.
    #[serde(default)]
    users: BTreeMap<String, ConfiguredLimit>,
}

/// The effect of a rule's denials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    #[default]
    On,
    /// The rule does not decide.
    Off,
    /// The rule decides, but its denials are only counted.
    Shadow,
}

/// The policy of a rule when the limiter fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Policy {
    /// The call is allowed.
    Open,
    /// The call is answered with 503.
    Closed,
}

impl Rules {
    /// Parses the text of the file.
    ///
    /// # Errors
    /// A message of one line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let rules: Self = toml::from_str(text).map_err(|error| {
            let line =
                error.span().and_then(|span| text.get(..span.start)).map_or(0, |head| head.matches('\n').count());
            format!("line {}: {}", line + 1, error.message().replace('\n', " "))
        })?;
        let report = &rules.report;
        let too_small = report.users.values().chain([&report.limit]).find(|limit| limit.0.max() < REPORT_COST);
        if let Some(limit) = too_small {
            return Err(format!("`report` must allow at least {REPORT_COST} permits, got {}", limit.0));
        }
        Ok(rules)
    }

    /// Returns all rules with their names.
    pub(crate) fn named(&self) -> [(&'static str, &Rule); 5] {
        let Self { quote, order, order_all, login, report } = self;
        [("quote", quote), ("order", order), ("order-all", order_all), ("login", login), ("report", report)]
    }
}

impl Rule {
    /// Returns the limit of one user.
    pub(crate) fn limit_of(&self, user: Option<&str>) -> Limit {
        user.and_then(|user| self.users.get(user)).unwrap_or(&self.limit).0
    }
}

/// A limit in the text form of the library, such as `100/min`.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
struct ConfiguredLimit(Limit);

impl TryFrom<String> for ConfiguredLimit {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse().map(Self)
    }
}

impl From<ConfiguredLimit> for String {
    fn from(limit: ConfiguredLimit) -> Self {
        limit.0.to_string()
    }
}

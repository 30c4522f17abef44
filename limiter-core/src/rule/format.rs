//! The format of a rule: its fields in a text of rules and in the formats of serde, with their bounds and messages.
//!
//! [`FIELDS`] describes each field of one value. All readers and writers use it, so a new setting is one row.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::time::Duration;

use limiter_syntax::{nearest, parse_duration};

use crate::error::NamedValue;
use crate::limit::{PACKED_BOUND, PackedBuckets};
use crate::request::options::{is_valid_deadline, leases_problem};
use crate::rule::MAX_LIMITS;
use crate::rule::message_text::{cut, list, name_fix, quoted};
use crate::{Algorithm, Block, Error, ErrorKind, Layout, Limit, Mode, OnError, Rule};

/// The tables that may have a field, beside that of a rule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// That of a limit.
    Limit,
    /// None.
    Rule,
    /// `[defaults]`.
    AllRules,
}

/// A field of one value.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: FieldKind,
    scope: Scope,
    /// Sets it in a rule. An error without a message is a value outside of the bound.
    read: ReadField,
    /// Its value in a rule that sets it.
    pub(crate) written: fn(&Rule) -> Option<WrittenValue>,
}

type ReadField = fn(&mut Rule, &Found<'_>) -> Result<(), Option<String>>;

/// The kind of a field's values.
pub(crate) enum FieldKind {
    /// One of these names.
    Word(fn() -> Vec<&'static str>),
    /// A number of permits, 1 to `u32::MAX`.
    Permits,
    /// The text of a deadline.
    Deadline,
    Flag,
    /// The text of a block.
    Block,
    /// The number of hashes of packed counts.
    Buckets,
}

/// A value as a reader has found it.
pub(crate) enum Found<'v> {
    Text(&'v str),
    /// A number as it is written, with its value if that is whole and not too large.
    Number(Cow<'v, str>, Option<u32>),
    Flag(bool),
    /// A composed value, such as a list.
    #[cfg(feature = "rules")]
    Other(&'static str),
}

/// A value as it is written.
pub(crate) enum WrittenValue {
    Word(&'static str),
    Number(u64),
    Flag(bool),
    /// Written in whole milliseconds, rounded up.
    Time(Duration),
    Block(Block),
}

/// The fields of one value that rules and overrides have.
pub(crate) static FIELDS: [Field; 10] = [
    Field {
        name: "algorithm",
        kind: FieldKind::Word(Algorithm::names),
        scope: Scope::Limit,
        read: |rule, found| set(&mut rule.algorithm, found.word()),
        written: |rule| rule.algorithm.map(WrittenValue::word),
    },
    Field {
        name: "burst",
        kind: FieldKind::Permits,
        scope: Scope::Limit,
        read: |rule, found| set(&mut rule.burst, found.permits()),
        written: |rule| rule.burst.map(|burst| WrittenValue::Number(burst.into())),
    },
    Field {
        name: "layout",
        kind: FieldKind::Word(Layout::names),
        scope: Scope::Limit,
        read: |rule, found| set(&mut rule.layout, found.word()),
        written: |rule| rule.layout.map(WrittenValue::word),
    },
    Field {
        name: "packed",
        kind: FieldKind::Buckets,
        scope: Scope::Rule,
        read: |rule, found| match found.number().map(PackedBuckets::new) {
            Some(Err(fix)) => Err(Some(wrong_value_problem("packed", PACKED_BOUND, &found.to_string(), &fix))),
            buckets => set(&mut rule.packed, buckets.and_then(Result::ok).map(PackedBuckets::number)),
        },
        written: |rule| rule.packed.map(|number| WrittenValue::Number(number.into())),
    },
    Field {
        name: "mode",
        kind: FieldKind::Word(Mode::names),
        scope: Scope::AllRules,
        read: |rule, found| set(&mut rule.mode, found.word()),
        written: |rule| rule.mode.map(WrittenValue::word),
    },
    Field {
        name: "on_error",
        kind: FieldKind::Word(OnError::names),
        scope: Scope::AllRules,
        read: |rule, found| set(&mut rule.call.on_error, found.word()),
        written: |rule| rule.call.on_error.map(WrittenValue::word),
    },
    Field {
        name: "deadline",
        kind: FieldKind::Deadline,
        scope: Scope::AllRules,
        read: |rule, found| set(&mut rule.call.deadline, found.deadline()),
        written: |rule| rule.call.deadline.map(WrittenValue::Time),
    },
    Field {
        name: "leases",
        kind: FieldKind::Flag,
        scope: Scope::AllRules,
        read: |rule, found| match leases_problem(found.flag() == Some(true), "`leases`") {
            None => set(&mut rule.call.leases, found.flag()),
            problem => Err(problem),
        },
        written: |rule| rule.call.leases.map(WrittenValue::Flag),
    },
    Field {
        name: "postpaid",
        kind: FieldKind::Flag,
        scope: Scope::Rule,
        read: |rule, found| set(&mut rule.call.postpaid, found.flag()),
        written: |rule| rule.call.postpaid.map(WrittenValue::Flag),
    },
    Field {
        name: "block",
        kind: FieldKind::Block,
        scope: Scope::Rule,
        read: |rule, found| match found.text().map(str::parse::<Block>) {
            Some(Err(error)) => Err(Some(error.to_string())),
            block => set(&mut rule.call.block, block.and_then(Result::ok)),
        },
        written: |rule| rule.call.block.map(WrittenValue::Block),
    },
];

fn set<T>(setting: &mut Option<T>, value: Option<T>) -> Result<(), Option<String>> {
    *setting = Some(value.ok_or(None)?);
    Ok(())
}

/// Returns the field of this name.
pub(crate) fn field(name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name)
}

/// The names of the fields that a condition holds for, between others.
fn names(first: &[&'static str], condition: impl Fn(&Field) -> bool, last: &[&'static str]) -> Vec<&'static str> {
    let fields = FIELDS.iter().filter(|field| condition(field)).map(|field| field.name);
    first.iter().copied().chain(fields).chain(last.iter().copied()).collect()
}

impl Field {
    /// Returns whether the table of a limit may have it.
    pub(crate) fn is_of_limit(&self) -> bool {
        self.scope == Scope::Limit
    }

    /// Returns whether the table of the defaults may have it.
    pub(crate) fn is_of_all_rules(&self) -> bool {
        self.scope == Scope::AllRules
    }

    /// Sets the field in a rule.
    ///
    /// # Errors
    /// The message about a value outside of its bound.
    pub(crate) fn read(&self, rule: &mut Rule, found: &Found<'_>) -> Result<(), String> {
        (self.read)(rule, found).map_err(|problem| {
            problem
                .unwrap_or_else(|| wrong_value_problem(self.name, &self.bound(), &found.to_string(), &self.fix(found)))
        })
    }

    /// The values that the field may have, as in a message.
    pub(crate) fn bound(&self) -> String {
        match self.kind {
            FieldKind::Word(names) => format!("one of {}", list(&names())),
            FieldKind::Permits => "a whole number from 1 to 4294967295".to_owned(),
            FieldKind::Deadline => "a duration from 1 ms to 60 s, in quotes".to_owned(),
            FieldKind::Flag => FLAG.to_owned(),
            FieldKind::Block => "a time in quotes, or a table".to_owned(),
            FieldKind::Buckets => PACKED_BOUND.to_owned(),
        }
    }

    /// What to write instead of a value.
    fn fix(&self, found: &Found<'_>) -> String {
        match self.kind {
            FieldKind::Word(names) => name_fix(found.text(), &names()),
            FieldKind::Permits => "one such as `10`, without quotes".to_owned(),
            FieldKind::Deadline => "one such as `\"50ms\"` or `\"2s\"`".to_owned(),
            FieldKind::Flag => FLAG_FIX.to_owned(),
            FieldKind::Buckets => "one such as `262144`, without quotes".to_owned(),
            FieldKind::Block => "one such as `\"10min\"` or `\"1min x2 up to 1d\"`".to_owned(),
        }
    }
}

/// The values of a flag, and what to write instead of another value.
pub(crate) const FLAG: &str = "`true` or `false`";
pub(crate) const FLAG_FIX: &str = "it without quotes";

impl Found<'_> {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn word<T: NamedValue>(&self) -> Option<T> {
        self.text().and_then(T::named)
    }

    /// The value of a whole number. One that is too large is the largest.
    fn number(&self) -> Option<u64> {
        match self {
            Self::Number(_, Some(number)) => Some((*number).into()),
            Self::Number(text, None) => text.bytes().all(|byte| byte.is_ascii_digit()).then_some(u64::MAX),
            _ => None,
        }
    }

    fn permits(&self) -> Option<u32> {
        match self {
            Self::Number(_, number) => number.filter(|permits| *permits > 0),
            _ => None,
        }
    }

    fn deadline(&self) -> Option<Duration> {
        let millis = parse_duration(self.text()?).ok()?;
        Some(Duration::from_millis(millis)).filter(|deadline| is_valid_deadline(*deadline))
    }

    pub(crate) fn flag(&self) -> Option<bool> {
        match self {
            Self::Flag(flag) => Some(*flag),
            _ => None,
        }
    }
}

/// Describes the value in a message: as it is written, or by its kind.
impl Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::Number(text, _) => write!(f, "`{}`", cut(text)),
            Self::Flag(flag) => write!(f, "`{flag}`"),
            #[cfg(feature = "rules")]
            Self::Other(kind) => f.write_str(kind),
        }
    }
}

impl WrittenValue {
    fn word(value: impl NamedValue) -> Self {
        Self::Word(value.name())
    }
}

/// A time in whole milliseconds, rounded up.
pub(crate) fn whole_millis(time: Duration) -> u128 {
    time.as_nanos().div_ceil(1_000_000)
}

// The names of fields, in messages about unknown ones.

/// The names of a map's fields, with the kind of its fields.
pub(crate) struct FieldNames {
    pub(crate) kind: &'static str,
    pub(crate) names: Vec<&'static str>,
}

impl FieldNames {
    /// Those of a limit that is more than a text.
    pub(crate) fn of_limit() -> Self {
        Self { kind: "a part of a limit", names: names(&["limit"], Field::is_of_limit, &[]) }
    }

    /// Those of a block that is more than a text.
    #[cfg(feature = "rules")]
    pub(crate) fn of_block() -> Self {
        Self { kind: "a part of a block", names: vec!["time", "factor", "most", "extend"] }
    }

    pub(crate) fn of_rule() -> Self {
        Self {
            kind: "a setting of a rule",
            names: names(&["limit", "limits"], |_| true, &["key", "plans", "override"]),
        }
    }

    pub(crate) fn of_override() -> Self {
        Self { kind: "a setting of an override", names: names(&["match", "key", "limit", "limits"], |_| true, &[]) }
    }

    #[cfg(feature = "rules")]
    pub(crate) fn of_plan() -> Self {
        Self { kind: "a setting of a plan", names: names(&["limit", "limits"], |_| true, &[]) }
    }

    pub(crate) fn of_defaults() -> Self {
        Self { kind: "a setting of the defaults", names: names(&[], Field::is_of_all_rules, &[]) }
    }

    /// Returns the message for a field that is none of these, with a suggestion.
    pub(crate) fn unknown_problem(&self, field: &str) -> String {
        let fix = match nearest(field, self.names.iter().copied()) {
            Some(meant) => format!("`{meant}`"),
            None => {
                let known = list(&self.names).replacen(" and ", " or ", 1);
                format!("{known}, or remove it; a newer version may have more")
            }
        };
        let (field, kind) = (cut(field), self.kind);
        format!("`{field}` must be {kind}, got an unknown name: write {fix}")
    }
}

// The limits of a rule.

/// The field with the limits of a rule. `None` if it has none.
pub(crate) fn written_limits(rule: &Rule) -> Option<(&'static str, &[Limit])> {
    match &rule.limits[..] {
        [] => None,
        limits @ [_] => Some(("limit", limits)),
        limits => Some(("limits", limits)),
    }
}

/// Returns the limit of a table that is more than a text: its `limit` with its other parts, which were read into a rule.
///
/// # Errors
/// The message, with the field of the culprit if there is one.
pub(crate) fn limit_of_parts(parts: &Rule) -> Result<Limit, (Option<&'static str>, String)> {
    let Rule { limits, algorithm, burst, layout, .. } = parts;
    let limit = *limits.first().ok_or_else(|| (None, no_limit_problem()))?;
    if let Some(setting) = parts.setting_of_windows(limit).filter(|_| limit.is_whole()) {
        return Err((Some(setting), of_windows_problem(setting, limit)));
    }
    let algorithm = algorithm.unwrap_or_default();
    let mut limit = limit.with_algorithm(algorithm);
    if let Some(burst) = *burst {
        limit = limit.with_burst(burst).map_err(|_| (Some("burst"), burst_problem(algorithm, burst)))?;
    }
    if let Some(layout) = *layout {
        limit = limit.with_layout(layout).map_err(|_| (Some("layout"), zset_problem(algorithm)))?;
    }
    Ok(limit)
}

/// The parts of a limit that its text would lose, as the fields of a table. Empty if its text is all of it.
pub(crate) fn parts_beside_text(limit: Limit) -> impl Iterator<Item = (&'static str, WrittenValue)> {
    let parts = Rule {
        algorithm: Some(limit.algorithm()).filter(|algorithm| *algorithm != Algorithm::default() && !limit.is_whole()),
        burst: limit.own_burst(),
        layout: Some(limit.layout()).filter(|layout| *layout != Layout::default()),
        ..Rule::default()
    };
    FIELDS.iter().filter_map(move |field| Some((field.name, (field.written)(&parts)?)))
}

/// The most overrides of a text or of a rule.
pub(crate) const MAX_OVERRIDES: usize = 100_000;

/// Parses a text such as `5/10s`.
///
/// # Errors
/// [`ErrorKind::InvalidLimit`], with the beginning of a long text.
pub(crate) fn parse_limit(text: &str) -> Result<Limit, Error> {
    const MAX_BYTES: usize = 200;
    if text.len() > MAX_BYTES || text.contains(char::is_control) {
        return Err(Error::new(ErrorKind::InvalidLimit, limit_text_problem(text)));
    }
    text.parse()
}

fn limit_text_problem(text: &str) -> String {
    let found = cut(text);
    format!("`limit` must be `permits/window`, got `{found}`: write one such as `\"5/10s\"` or `\"100/min\"`")
}

fn no_limit_problem() -> String {
    "`limit` must be in the table of a limit, got none: write one such as `{ limit = \"5/10s\" }`".to_owned()
}

pub(crate) fn both_limits_problem() -> String {
    "`limit` must be left out with `limits`, got both: remove one of them".to_owned()
}

pub(crate) fn no_limits_problem() -> String {
    "`limits` must have at least one limit, got an empty list: write one such as `[\"5/s\", \"100/min\"]`, or remove it \
     for the attribute's"
        .to_owned()
}

pub(crate) fn too_many_limits_problem(count: usize) -> String {
    format!("`limits` must have at most {MAX_LIMITS} limits, got {count}: remove the others")
}

pub(crate) fn burst_problem(algorithm: Algorithm, burst: u32) -> String {
    let algorithm = algorithm.name();
    format!(
        "`burst` must be left out for `{algorithm}`, got {burst}: write `algorithm = \"token_bucket\"` or \
         `\"leaky_bucket\"`, or remove it"
    )
}

pub(crate) fn of_windows_problem(setting: &str, limit: Limit) -> String {
    format!("`{setting}` must be left out for `{limit}`, got one: remove it")
}

pub(crate) fn zset_problem(algorithm: Algorithm) -> String {
    let algorithm = algorithm.name();
    format!(
        "`layout` must be `compact` for `{algorithm}`, got `zset`: write `algorithm = \"sliding_window\"`, or remove it"
    )
}

pub(crate) fn both_matches_problem() -> String {
    "`key` must be left out with `match`, got both: remove one of them".to_owned()
}

pub(crate) fn no_match_problem() -> String {
    "`match` must be set in an override, got none: write one such as `match = { user_id = \"42\" }`, or \
     `key = \"user:@42\"`"
        .to_owned()
}

pub(crate) fn empty_match_problem() -> String {
    "`match` must name at least one part of the key, got none: write one such as `match = { user_id = \"42\" }`, or set \
     the rule itself"
        .to_owned()
}

/// Returns the message for an override of the same keys as an earlier one.
pub(crate) fn equal_match_problem(earlier: impl Display) -> String {
    format!("`match` must differ from that of other overrides, got the one of {earlier}: remove one of them")
}

pub(crate) fn too_many_overrides_problem() -> String {
    format!("`override` must be used at most {MAX_OVERRIDES} times, got more: use parts of keys, or remove some")
}

/// Returns the message for a value outside of its bound. `fix` is what to write.
pub(crate) fn wrong_value_problem(field: &str, bound: &str, found: &str, fix: &str) -> String {
    let field = cut(field);
    format!("`{field}` must be {bound}, got {found}: write {fix}")
}

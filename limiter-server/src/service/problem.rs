//! The reasons why a call has no answer. Each protocol writes them in its own form.

use std::time::Duration;

use rate_limited::{Error, ErrorKind};

/// The reason why a call has no answer. A denial is an answer.
#[derive(Clone, Debug)]
pub(crate) enum Problem {
    /// No rule has the name.
    UnknownRule { rule: String, nearest: Option<String> },
    /// The rule's key is an expression of a program.
    KeyIsExpression { rule: String },
    /// The rule has no limit for the key, so nothing would bound its calls.
    RuleWithoutLimit { rule: String },
    /// The rule has limits for plans alone, and the call names none of them.
    PlanNeeded { rule: String, plans: Vec<String>, given: String },
    /// The rule counts calls at once, and the call would hold no slot.
    RuleHoldsSlots { rule: String },
    /// A part of the key has no value.
    MissingValue { rule: String, part: String },
    /// A value is of no part of the key.
    UnknownValue { rule: String, part: String, parts: Vec<String>, nearest: Option<String> },
    /// A part has two values.
    RepeatedValue { rule: String, part: String },
    /// There are not as many values as parts.
    WrongNumberOfValues { rule: String, parts: Vec<String>, given: usize },
    /// The server takes no limits of callers.
    LimitsNotAllowed,
    /// The limits of the call cannot be used: the limiter's message.
    InvalidLimits { message: String },
    /// The wait is longer than the server's longest one.
    WaitTooLong { given: Duration, most: Duration },
    /// The time to live of a slot is out of its range.
    TimeToLiveOutOfRange { given: Duration, least: Duration, most: Duration },
    /// The text is no receipt.
    NotAReceipt,
    /// The receipt is of another server, store or key, or too old: the limiter's message.
    ForeignReceipt { message: String },
    /// The receipt was used.
    UsedReceipt,
    /// The text is no slot.
    NotASlot,
    /// The slot is of another server.
    ForeignSlot,
    /// The slot has ended: its caller has left, or did not renew it.
    EndedSlot,
    /// The server holds as many slots as it keeps.
    TooManySlots { most: usize },
    /// The server runs as many calls as it runs at once.
    TooManyCalls { most: usize },
    /// The limiter could not decide, and the policy of the rule is to raise that.
    Undecided { kind: ErrorKind },
}

/// The kinds of problems, for the statuses of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProblemClass {
    /// The call is wrong in itself.
    Invalid,
    /// The call names something that does not exist.
    Unknown,
    /// The call names something that was used up.
    Used,
    /// The call is right, and what it names cannot serve it.
    Unusable,
    /// The server does not permit it.
    Forbidden,
    /// A later call may succeed.
    Unavailable,
}

impl Problem {
    /// Its kind.
    pub(crate) fn class(&self) -> ProblemClass {
        match self {
            Self::MissingValue { .. }
            | Self::UnknownValue { .. }
            | Self::RepeatedValue { .. }
            | Self::WrongNumberOfValues { .. }
            | Self::InvalidLimits { .. }
            | Self::WaitTooLong { .. }
            | Self::PlanNeeded { .. }
            | Self::TimeToLiveOutOfRange { .. }
            | Self::NotAReceipt
            | Self::NotASlot => ProblemClass::Invalid,
            Self::UnknownRule { .. } | Self::ForeignReceipt { .. } | Self::ForeignSlot | Self::EndedSlot => {
                ProblemClass::Unknown
            }
            Self::UsedReceipt => ProblemClass::Used,
            Self::KeyIsExpression { .. } | Self::RuleWithoutLimit { .. } | Self::RuleHoldsSlots { .. } => {
                ProblemClass::Unusable
            }
            Self::LimitsNotAllowed => ProblemClass::Forbidden,
            Self::TooManySlots { .. } | Self::TooManyCalls { .. } | Self::Undecided { .. } => ProblemClass::Unavailable,
        }
    }

    /// Its name for programs, which stays the same.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::UnknownRule { .. } => "unknown-rule",
            Self::KeyIsExpression { .. } => "key-is-expression",
            Self::RuleWithoutLimit { .. } => "rule-without-limit",
            Self::PlanNeeded { .. } => "plan-needed",
            Self::RuleHoldsSlots { .. } => "rule-holds-slots",
            Self::MissingValue { .. } => "missing-value",
            Self::UnknownValue { .. } => "unknown-value",
            Self::RepeatedValue { .. } => "repeated-value",
            Self::WrongNumberOfValues { .. } => "wrong-number-of-values",
            Self::LimitsNotAllowed => "limits-not-allowed",
            Self::InvalidLimits { .. } => "invalid-limits",
            Self::WaitTooLong { .. } => "wait-too-long",
            Self::TimeToLiveOutOfRange { .. } => "ttl-out-of-range",
            Self::NotAReceipt => "not-a-receipt",
            Self::ForeignReceipt { .. } => "foreign-receipt",
            Self::UsedReceipt => "used-receipt",
            Self::NotASlot => "not-a-slot",
            Self::ForeignSlot => "foreign-slot",
            Self::EndedSlot => "ended-slot",
            Self::TooManySlots { .. } => "too-many-slots",
            Self::TooManyCalls { .. } => "too-many-calls",
            Self::Undecided { .. } => "undecided",
        }
    }

    /// One line for a person. It is the same for each problem of the code.
    pub(crate) fn title(&self) -> &'static str {
        match self {
            Self::UnknownRule { .. } => "No rule has this name",
            Self::KeyIsExpression { .. } => "The rule cannot be called by name",
            Self::RuleWithoutLimit { .. } => "The rule has no limit",
            Self::PlanNeeded { .. } => "The rule needs the plan of the customer",
            Self::RuleHoldsSlots { .. } => "The rule counts calls at once",
            Self::MissingValue { .. } => "A value is missing",
            Self::UnknownValue { .. } => "A value is of no part of the key",
            Self::RepeatedValue { .. } => "A value is given twice",
            Self::WrongNumberOfValues { .. } => "The number of values is wrong",
            Self::LimitsNotAllowed => "Limits of callers are not allowed",
            Self::InvalidLimits { .. } => "The limits cannot be used",
            Self::WaitTooLong { .. } => "The wait is too long",
            Self::TimeToLiveOutOfRange { .. } => "The time to live is out of its range",
            Self::NotAReceipt => "The text is no receipt",
            Self::ForeignReceipt { .. } => "The receipt is not of this server, rule and key",
            Self::UsedReceipt => "The receipt was used before",
            Self::NotASlot => "The text is no slot",
            Self::ForeignSlot => "The slot is of another server",
            Self::EndedSlot => "The slot has ended",
            Self::TooManySlots { .. } => "Too many slots are held",
            Self::TooManyCalls { .. } => "Too many calls run",
            Self::Undecided { .. } => "The limiter could not decide",
        }
    }

    /// A sentence about this problem. It names no server of the store.
    pub(crate) fn detail(&self) -> String {
        match self {
            Self::UnknownRule { rule, .. } => format!("no rule is named `{}`", cut(rule)),
            Self::KeyIsExpression { rule } => {
                format!("the key of the rule `{rule}` has an expression of a program between its braces")
            }
            Self::RuleWithoutLimit { rule } => {
                format!("neither the rule `{rule}` nor an override or a plan has a limit for this key")
            }
            Self::PlanNeeded { rule, given, .. } if given.is_empty() => {
                format!("the rule `{rule}` has limits for its plans alone, and the call names none")
            }
            Self::PlanNeeded { rule, given, .. } => {
                format!("the rule `{rule}` has limits for its plans alone, and `{}` is none of them", cut(given))
            }
            Self::RuleHoldsSlots { rule } => {
                format!("the limit of the rule `{rule}` counts calls at once, and this call would hold no slot")
            }
            Self::MissingValue { rule, part } => format!("the key of the rule `{rule}` needs a value for `{part}`"),
            Self::UnknownValue { rule, part, .. } => {
                format!("the key of the rule `{rule}` has no part `{}`", cut(part))
            }
            Self::RepeatedValue { rule, part } => {
                format!("the part `{part}` of the key of the rule `{rule}` must have one value, got two")
            }
            Self::WrongNumberOfValues { rule, parts, given } => {
                format!("the key of the rule `{rule}` has {} parts, got {given} values", parts.len())
            }
            Self::LimitsNotAllowed => "this server decides by its rules alone".to_owned(),
            Self::InvalidLimits { message } | Self::ForeignReceipt { message } => message.clone(),
            Self::WaitTooLong { given, most } => {
                format!("a call may wait for {} ms at most, got {} ms", most.as_millis(), given.as_millis())
            }
            Self::TimeToLiveOutOfRange { given, least, most } => format!(
                "a slot must live for {} to {} ms, got {} ms",
                least.as_millis(),
                most.as_millis(),
                given.as_millis()
            ),
            Self::NotAReceipt => "the text has not the form of a receipt".to_owned(),
            Self::UsedReceipt => "a receipt can be used once; nothing was changed".to_owned(),
            Self::NotASlot => "the text has not the form of a slot".to_owned(),
            Self::ForeignSlot => "this server did not give the slot, or has restarted since".to_owned(),
            Self::EndedSlot => "its caller has left, or did not renew it in time".to_owned(),
            Self::TooManySlots { most } => format!("{most} slots are held, and this server keeps no more"),
            Self::TooManyCalls { most } => format!("{most} calls run, and this server runs no more at once"),
            Self::Undecided { kind } => format!("the limiter failed, and the rule has no other policy: {kind}"),
        }
    }

    /// Returns what to send instead, if there is something.
    pub(crate) fn suggestion(&self) -> Option<String> {
        match self {
            Self::UnknownRule { nearest: Some(name), .. } => Some(format!("write `{name}`")),
            Self::UnknownValue { nearest: Some(name), .. } => Some(format!("write `{name}`")),
            Self::UnknownValue { parts, .. } if parts.is_empty() => Some("leave the values out".to_owned()),
            Self::UnknownValue { parts, .. } | Self::WrongNumberOfValues { parts, .. } => {
                let parts: Vec<_> = parts.iter().map(|part| format!("`{part}`")).collect();
                Some(format!("write a value for each of {}", parts.join(", ")))
            }
            Self::MissingValue { part, .. } => Some(format!("add a value for `{part}`")),
            Self::KeyIsExpression { .. } => Some("write names alone between the braces of `key`".to_owned()),
            Self::RuleWithoutLimit { .. } => Some("write its `limit` into the rules".to_owned()),
            Self::PlanNeeded { plans, .. } => {
                let plans: Vec<_> = plans.iter().map(|plan| format!("`{plan}`")).collect();
                Some(format!("write one of {} as the `plan`", plans.join(", ")))
            }
            Self::RuleHoldsSlots { .. } => Some("enter, and leave when the call has ended".to_owned()),
            Self::LimitsNotAllowed => Some("name a rule, or start the server with `--allow-limits`".to_owned()),
            Self::ForeignSlot | Self::EndedSlot => Some("enter again".to_owned()),
            _ => None,
        }
    }

    /// The problem of a failed decision.
    pub(crate) fn of_decision(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::InvalidLimit => Self::InvalidLimits { message: error.to_string() },
            kind => Self::Undecided { kind },
        }
    }

    /// The problem of a failed use of a receipt.
    pub(crate) fn of_receipt(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Settled => Self::UsedReceipt,
            ErrorKind::Config => Self::ForeignReceipt { message: error.to_string() },
            kind => Self::Undecided { kind },
        }
    }
}

/// Returns the start of a text of a caller.
fn cut(text: &str) -> String {
    const MAX_LETTERS: usize = 100;
    let mut letters = text.chars();
    let start: String = letters.by_ref().take(MAX_LETTERS).collect();
    if letters.next().is_some() { format!("{start}…") } else { start }
}

//! The commands that the service decides, from their arguments to their replies.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use rate_limited::Usage;

use super::commands::shown;
use super::parser::{Arguments, number};
use super::reply::{Protocol, Replies};
use super::throttle;
use crate::reports::Outcome;
use crate::service::{
    Answer, Call, Catalog, CatalogRule, DecisionService, Problem, ProblemClass, Target, Value, Values, millis,
};

/// The kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    /// `RL.CHECK rule [part …] [COST n] [WAIT ms] [PLAN name]`
    Check,
    /// `RL.PEEK rule [part …] [PLAN name]`
    Peek,
    /// `RL.CHARGE rule [part …] [COST n] [PLAN name]`
    Charge,
    /// `RL.RESET rule [part …] [PLAN name]`
    Reset,
    /// `CL.THROTTLE key max_burst count period [n]`
    Throttle,
}

/// The commands of [`CallKind`] in its order, for the series.
pub(super) const CALL_NAMES: [&str; 5] = ["RL.CHECK", "RL.PEEK", "RL.CHARGE", "RL.RESET", "CL.THROTTLE"];

/// A call that was read.
#[derive(Clone, Debug)]
pub(super) struct ReadCall<'b> {
    pub(super) kind: CallKind,
    pub(super) call: Call<'b>,
}

/// The result of a call.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly each is the large one")]
pub(super) enum Decided {
    Answer(Answer),
    Usage(Usage),
    /// The counters were reset.
    Reset,
}

/// The reason why arguments are no call.
#[derive(Debug)]
pub(super) enum CallError {
    /// An argument is not UTF-8.
    NotText,
    /// An argument after the values is no option of the command.
    UnknownOption { option: String, kind: CallKind, rule: String, parts: usize },
    /// An option is there twice.
    RepeatedOption { option: &'static str },
    /// An option has no value after it.
    NoValue { option: &'static str },
    /// A number is none, or out of its range.
    Number { name: &'static str, least: u64, most: u64, given: String },
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotText => f.write_str("arguments must be UTF-8"),
            Self::UnknownOption { option, kind, rule, parts } => {
                let (values, options) = (if *parts == 1 { "value" } else { "values" }, kind.options());
                write!(f, "unknown option '{option}' after {parts} {values} of the rule '{rule}': write {options}")
            }
            Self::RepeatedOption { option } => write!(f, "{option} must be there once, got it twice"),
            Self::NoValue { option } => write!(f, "{option} must have a value after it"),
            Self::Number { name, least, most, given } => {
                write!(f, "{name} must be a whole number of {least} to {most}, got '{given}'")
            }
        }
    }
}

impl CallKind {
    /// The options of the command, for a message.
    fn options(self) -> &'static str {
        match self {
            Self::Check => "COST n, WAIT ms, PLAN name or nothing",
            Self::Charge => "COST n, PLAN name or nothing",
            Self::Peek | Self::Reset | Self::Throttle => "PLAN name or nothing",
        }
    }
}

impl<'b> ReadCall<'b> {
    /// Reads the arguments of a call.
    ///
    /// As many arguments as the rule's key has parts are its values, whatever their text is. The options are behind them.
    ///
    /// # Errors
    /// An argument is wrong. Whether the rule exists is for the service.
    pub(super) fn read(kind: CallKind, arguments: Arguments<'_, 'b>, catalog: &'b Catalog) -> Result<Self, CallError> {
        if kind == CallKind::Throttle {
            return Ok(Self { kind, call: throttle::read(arguments)? });
        }
        let name = text(arguments.get(1).unwrap_or_default())?;
        // Without a rule there is nothing to read: the service has the problem.
        let found = catalog.find(name);
        let parts = found.and_then(CatalogRule::part_count);
        let values = arguments.after(2).take(parts.unwrap_or(0)).map(|value| text(value).map(Value::from));
        let values = Values::InOrder(values.collect::<Result<_, _>>()?);
        let mut call = Call { found, ..Call::new(Target::Rule { name: Cow::Borrowed(name), values }) };
        if let Some(parts) = parts {
            read_options(kind, &mut call, name, parts, arguments.after(2 + parts))?;
        }
        Ok(Self { kind, call })
    }

    /// Returns whether it demands a wait for permits.
    pub(super) fn may_wait(&self) -> bool {
        !self.call.max_wait.is_zero()
    }

    /// Returns whether it may run beside other calls of its pipeline, which begin in their order.
    pub(super) fn is_joint(&self) -> bool {
        // A reset of several counters is no single step of the store.
        !self.may_wait() && self.kind != CallKind::Reset
    }

    /// Decides the call.
    ///
    /// # Cancel safety
    /// As for the method of the service.
    pub(super) async fn decide(&self, service: &DecisionService) -> Result<Decided, Problem> {
        match self.kind {
            CallKind::Check | CallKind::Throttle => service.check(&self.call).await.map(Decided::Answer),
            CallKind::Peek => service.peek(&self.call).await.map(Decided::Answer),
            CallKind::Charge => service.charge(&self.call).await.map(Decided::Usage),
            CallKind::Reset => service.reset(&self.call).await.map(|()| Decided::Reset),
        }
    }
}

fn read_options<'b>(
    kind: CallKind,
    call: &mut Call<'b>,
    rule: &str,
    parts: usize,
    mut arguments: impl Iterator<Item = &'b [u8]>,
) -> Result<(), CallError> {
    let mut seen = [false; 3];
    while let Some(option) = arguments.next() {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        let (index, option) = match kind {
            CallKind::Check | CallKind::Charge if is("COST") => (0, "COST"),
            CallKind::Check if is("WAIT") => (1, "WAIT"),
            _ if is("PLAN") => (2, "PLAN"),
            _ => {
                let (option, rule) = (shown(option), rule.to_owned());
                return Err(CallError::UnknownOption { option, kind, rule, parts });
            }
        };
        if std::mem::replace(&mut seen[index], true) {
            return Err(CallError::RepeatedOption { option });
        }
        let value = arguments.next().ok_or(CallError::NoValue { option })?;
        match index {
            0 => call.cost = narrow(read_number(option, value, 0, u32::MAX.into())?),
            1 => call.max_wait = Duration::from_millis(read_number(option, value, 0, u32::MAX.into())?),
            _ => call.plan = text(value)?,
        }
    }
    Ok(())
}

/// Returns an argument as text.
pub(super) fn text(argument: &[u8]) -> Result<&str, CallError> {
    std::str::from_utf8(argument).map_err(|_| CallError::NotText)
}

/// Reads a number of `least` to `most`.
pub(super) fn read_number(name: &'static str, argument: &[u8], least: u64, most: u64) -> Result<u64, CallError> {
    let value = number(argument).and_then(|value| u64::try_from(value).ok());
    let value = value.filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| CallError::Number { name, least, most, given: shown(argument) })
}

/// Returns a number that was read as at most `u32::MAX`.
pub(super) fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Writes the reply to a call. Returns its outcome.
pub(super) fn write_result(
    kind: CallKind,
    decided: &Result<Decided, Problem>,
    replies: &mut Replies,
    protocol: Protocol,
) -> Outcome {
    match decided {
        Ok(Decided::Answer(answer)) => {
            match kind {
                CallKind::Throttle => throttle::write(answer, replies),
                _ => write_answer(answer, replies, protocol),
            }
            if answer.is_allowed() { Outcome::Ok } else { Outcome::Denied }
        }
        Ok(Decided::Usage(usage)) => {
            write_usage(usage, replies, protocol);
            Outcome::Ok
        }
        Ok(Decided::Reset) => {
            replies.status("OK");
            Outcome::Ok
        }
        Err(problem) => {
            write_problem(problem, replies);
            if problem.class() == ProblemClass::Unavailable { Outcome::Failed } else { Outcome::Invalid }
        }
    }
}

/// Writes a problem. The first word is `UNAVAILABLE` if the same call may succeed later, and `NOPERM` or `ERR` if not.
fn write_problem(problem: &Problem, replies: &mut Replies) {
    let word = match problem.class() {
        ProblemClass::Unavailable => "UNAVAILABLE",
        ProblemClass::Forbidden => "NOPERM",
        ProblemClass::Invalid | ProblemClass::Unknown | ProblemClass::Used | ProblemClass::Unusable => "ERR",
    };
    let (code, detail) = (problem.code(), problem.detail());
    match problem.suggestion() {
        Some(suggestion) => replies.error(format_args!("{word} {code}: {detail}: {suggestion}")),
        None => replies.error(format_args!("{word} {code}: {detail}")),
    }
}

/// Writes the answer, with the numbers of the limit that the decision describes.
fn write_answer(answer: &Answer, replies: &mut Replies, protocol: Protocol) {
    let (decision, retry_after) = (answer.decision(), answer.retry_after().map(millis));
    // A mode that decided without a limit has no numbers.
    let has_limit = answer.limits().next().is_some();
    let numbers = has_limit.then(|| (decision.limit().burst(), decision.remaining(), millis(decision.reset_after())));
    if protocol == Protocol::Resp2 {
        replies.array(5);
        replies.boolean(answer.is_allowed(), protocol);
        let (limit, remaining) = numbers.map_or((-1, -1), |(limit, remaining, _)| (limit.into(), remaining.into()));
        replies.integer(limit);
        replies.integer(remaining);
        match retry_after {
            Some(retry_after) => replies.unsigned(retry_after),
            None => replies.integer(-1),
        }
        replies.unsigned(numbers.map_or(0, |(_, _, reset_after)| reset_after));
        return;
    }
    let receipt = answer.receipt();
    replies.map(if receipt.is_some() { 8 } else { 7 }, protocol);
    replies.bulk(b"allowed");
    replies.boolean(answer.is_allowed(), protocol);
    replies.bulk(b"rule");
    replies.bulk(answer.rule().as_bytes());
    let mut optional = |name: &[u8], value: Option<u64>| {
        replies.bulk(name);
        match value {
            Some(value) => replies.unsigned(value),
            None => replies.null(protocol),
        }
    };
    optional(b"limit", numbers.map(|(limit, _, _)| limit.into()));
    optional(b"remaining", numbers.map(|(_, remaining, _)| remaining.into()));
    optional(b"retry_after_ms", retry_after);
    optional(b"reset_after_ms", Some(numbers.map_or(0, |(_, _, reset_after)| reset_after)));
    replies.bulk(b"source");
    replies.bulk(answer.source().as_str().as_bytes());
    if let Some(receipt) = receipt {
        replies.bulk(b"receipt");
        replies.bulk(receipt.to_string().as_bytes());
    }
}

fn write_usage(usage: &Usage, replies: &mut Replies, protocol: Protocol) {
    let numbers: [(&[u8], u64); 5] = [
        (b"limit", usage.limit().burst().into()),
        (b"remaining", usage.remaining().into()),
        (b"overdrawn", usage.overdrawn().into()),
        (b"uncounted", usage.uncounted().into()),
        (b"reset_after_ms", millis(usage.reset_after())),
    ];
    if protocol == Protocol::Resp2 {
        replies.array(numbers.len());
        return numbers.iter().for_each(|(_, value)| replies.unsigned(*value));
    }
    replies.map(numbers.len() + 1, protocol);
    for (name, value) in numbers {
        replies.bulk(name);
        replies.unsigned(value);
    }
    replies.bulk(b"source");
    replies.bulk(usage.source().as_str().as_bytes());
}

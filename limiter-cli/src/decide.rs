//! `limiter check`, `charge`, `peek`, `usage`, `why` and `reset`: decisions about one key.

use std::env;
use std::ffi::OsString;
use std::time::Duration;

use rate_limited::{Decision, Entry, Limit, Source, Usage};
use serde_json::json;

use crate::arguments::{ChargeArguments, CheckArguments, PeekArguments};
use crate::connection::{Connection, DEADLINE};
use crate::duration_text;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

mod answer;
mod counts;
mod holding;
mod program;
#[cfg_attr(not(unix), path = "decide/no_signals.rs")]
mod signals;
mod slots;
mod target;
mod use_of_limits;
mod why;

use answer::Answer;
use counts::no_count;
use limiter_inspect::millis;
use target::Target;
pub(crate) use why::why;

/// Takes permits. If they were granted, it runs the program. A program that cannot be started gives them back.
///
/// With slots it waits for the end of the program. Otherwise the program replaces this process where that is possible.
pub(crate) async fn check(
    arguments: &CheckArguments,
    connection: &Connection,
    output: &Output,
) -> Result<Exit, Failure> {
    let CheckArguments { key, limits, count, end_on_loss, program } = arguments;
    connection.require_shared("check")?;
    require_program(program, limits.limit.iter().copied().find(Limit::is_concurrent))?;
    if *end_on_loss && limits.rule.is_none() && !limits.limit.iter().any(Limit::is_concurrent) {
        return Err(Failure::usage(
            "`--end-on-loss` must have a limit of concurrent calls, got none: remove it, or add `--limit '1 concurrent'`",
        ));
    }
    let target = Target::new(key.read()?, limits, connection).await?;
    require_program(program, target.concurrent_limit()?)?;
    let (rule, limit, max_wait) = (target.rule(), &target.default_limit, count.wait.unwrap_or(Duration::ZERO));
    let denied_exit = Exit::with_code(count.denied_code);
    let [name, program_arguments @ ..] = &program[..] else {
        let decision = rule.wait_n(&target.key, limit, count.cost, max_wait).await?;
        let exit = if decision.is_allowed() { Exit::SUCCESS } else { denied_exit };
        return Ok(output.settle(Answer::new(&target.key, &decision).write(output), exit));
    };
    let entered = match rule.enter_wait_n(&target.key, limit, count.cost, max_wait).await? {
        Entry::Entered(entered) => entered,
        Entry::Denied(denied) => {
            // Another limit may have denied after the slot was taken.
            target.limiter.return_slots(DEADLINE).await;
            let decision = Decision::Denied(denied);
            let answer = Answer::new(&target.key, &decision);
            if output.is_json() {
                return Ok(output.settle(answer.write(output), denied_exit));
            }
            // The output of a program stays apart from the command's own.
            output.show(answer.text(&output.painted_for_errors()));
            return Ok(denied_exit);
        }
    };
    if entered.holds_slots() {
        return holding::run(program, entered, &target, *end_on_loss, output).await;
    }
    let not_started = match program::run(name, program_arguments) {
        Ok(exit) => return Ok(exit),
        Err(not_started) => not_started,
    };
    let has_refund = target.limiter.refund(entered.allowed()).await.is_ok();
    Err(not_started.failure(if has_refund { "its permits were given back" } else { "its permits are taken" }))
}

/// Returns an error for `--` without a program, as by an empty variable of a shell script. The check would take a permit
/// for nothing. So it would for a limit of concurrent calls without a program.
fn require_program(program: &[OsString], concurrent: Option<Limit>) -> Result<(), Failure> {
    let is_empty = match program {
        [] => env::args_os().any(|argument| argument == "--"),
        [program, ..] => program.is_empty(),
    };
    if is_empty {
        return Err(Failure::usage("`--` must have a program behind it, got none: write one, or remove `--`"));
    }
    match concurrent.filter(|_| program.is_empty()) {
        None => Ok(()),
        Some(limit) => Err(Failure::usage(format!(
            "`check` must have a program for `{limit}`, got none: write `-- PROGRAM`, which holds the slot while it runs"
        ))),
    }
}

/// Counts permits whether they fit or not.
pub(crate) async fn charge(
    arguments: &ChargeArguments,
    connection: &Connection,
    output: &Output,
) -> Result<Exit, Failure> {
    connection.require_shared("charge")?;
    let target = Target::new(arguments.key.read()?, &arguments.limits, connection).await?;
    target.require_limit().await?;
    let usage = target.rule().charge(&target.key, &target.default_limit, arguments.cost).await?;
    let key = target.key.encoded();
    let written = if output.is_json() {
        output.json(&json!({
            "key": key,
            "limit": usage.limit().to_string(),
            "remaining": usage.remaining(),
            "overdrawn": usage.overdrawn(),
            "uncounted": usage.uncounted(),
            "reset_after_ms": millis(usage.reset_after()),
            "source": usage.source().as_str(),
        }))
    } else {
        output.line(format_args!("charged: {key}, {}", usage_text(&usage)))
    };
    Ok(output.settle(written, Exit::SUCCESS))
}

fn usage_text(usage: &Usage) -> String {
    if usage.source() == Source::Mode {
        return "nothing: the rule is off, or denies every call".to_owned();
    }
    let uncounted = match usage.uncounted() {
        0 => String::new(),
        uncounted => format!(", {uncounted} not counted: the counter is full"),
    };
    let level = match usage.overdrawn() {
        0 => format!("{} left of", usage.remaining()),
        overdrawn => format!("{overdrawn} beyond"),
    };
    format!("{level} {}, full quota in {}{uncounted}", usage.limit(), duration_text::write(usage.reset_after()))
}

/// Shows the decision about one permit and takes nothing.
pub(crate) async fn peek(arguments: &PeekArguments, connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    connection.require_shared("peek")?;
    let target = Target::new(arguments.key.read()?, &arguments.limits, connection).await?;
    let decision = target.rule().peek(&target.key, &target.default_limit).await?;
    let mut answer = Answer::new(&target.key, &decision).with_counts(target.counts().await?);
    answer = answer.with_slots(target.slots().await?);
    // Without it the answer only lacks what counts beyond the limit.
    if decision.is_denied()
        && let Ok(usage) = target.rule().charge(&target.key, &target.default_limit, 0).await
    {
        answer = answer.with_usage(usage);
    }
    let exit = if decision.is_allowed() { Exit::SUCCESS } else { Exit::DENIED };
    Ok(output.settle(answer.write(output), exit))
}

/// Shows the use of each limit of a key.
pub(crate) async fn usage(
    arguments: &PeekArguments,
    connection: &Connection,
    output: &Output,
) -> Result<Exit, Failure> {
    connection.require_shared("usage")?;
    let target = Target::new(arguments.key.read()?, &arguments.limits, connection).await?;
    let limits = target.rule().usage_or(&target.key, &target.default_limit).await?;
    Ok(output.settle(use_of_limits::write(&target.key, &limits, output), Exit::SUCCESS))
}

/// Deletes the counts of a key.
pub(crate) async fn reset(
    arguments: &PeekArguments,
    connection: &Connection,
    output: &Output,
) -> Result<Exit, Failure> {
    connection.require_shared("reset")?;
    let target = Target::new(arguments.key.read()?, &arguments.limits, connection).await?;
    target.require_limit().await?;
    let counts = target.counts().await?;
    let before = target.rule().peek(&target.key, &target.default_limit).await?;
    let was_blocked = matches!(&before, Decision::Denied(denied) if denied.is_blocked());
    // The block of an attribute is in no rule that the command knows.
    let known_block = (was_blocked || arguments.limits.rule.is_none()).then_some(was_blocked);
    target.rule().reset(&target.key, &target.default_limit).await?;
    let (key, slots) = (target.key.encoded(), target.slots().await?);
    let written = if output.is_json() {
        let had_count = counts.are_known().then(|| !counts.are_empty());
        let mut answer = json!({ "key": key, "reset": true, "had_count": had_count, "was_blocked": known_block });
        if let Some(slots) = &slots {
            answer["slots_in_use"] = json!(slots.in_use());
        }
        output.json(&answer)
    } else if let Some(slots) = &slots {
        output.line(format_args!("reset: {key}, {}", slots.kept_text()))
    } else if was_blocked {
        output.line(format_args!("reset: {key} is no longer blocked, and has its full quota"))
    } else if counts.are_empty() {
        // The attribute may have a block that the rules do not show.
        let block =
            if arguments.limits.rule.is_some() { "; a block by the rule, if there was one, has ended" } else { "" };
        output.line(format_args!("reset: {}{block}", no_count(&target.key, &counts)))
    } else {
        output.line(format_args!("reset: {key} has its full quota"))
    };
    Ok(output.settle(written, Exit::SUCCESS))
}

//! `limiter check`, `charge`, `peek` and `reset`: decisions about one key.

use std::env;
use std::ffi::OsString;
use std::time::Duration;

use rate_limited::{Decision, Source, Usage};
use serde_json::json;

use crate::arguments::{ChargeArguments, CheckArguments, PeekArguments};
use crate::connection::Connection;
use crate::duration_text;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

mod answer;
mod counts;
mod program;
mod target;

use answer::{Answer, millis};
use counts::no_count;
use target::Target;

/// Takes permits. If they were granted, it runs the program. A program that cannot be started gives them back.
pub(crate) async fn check(
    arguments: &CheckArguments,
    connection: &Connection,
    output: &Output,
) -> Result<Exit, Failure> {
    let CheckArguments { key, limits, count, program } = arguments;
    connection.require_shared("check")?;
    require_program(program)?;
    let target = Target::new(key.read()?, limits, connection).await?;
    let max_wait = count.wait.unwrap_or(Duration::ZERO);
    let decision = target.rule().wait_n(&target.key, &target.default_limit, count.cost, max_wait).await?;
    let answer = Answer::new(&target.key, &decision);
    let exit = if decision.is_allowed() { Exit::SUCCESS } else { Exit::with_code(count.denied_code) };
    match (&program[..], &decision) {
        ([program, arguments @ ..], Decision::Allowed(allowed)) => {
            let not_started = match program::run(program, arguments) {
                Ok(exit) => return Ok(exit),
                Err(not_started) => not_started,
            };
            let has_refund = target.limiter.refund(allowed).await.is_ok();
            Err(not_started.failure(has_refund))
        }
        // The output of a program stays apart from the command's own.
        ([_, ..], Decision::Denied(_)) if !output.is_json() => {
            output.show(answer.text(&output.painted_for_errors()));
            Ok(exit)
        }
        _ => Ok(output.settle(answer.write(output), exit)),
    }
}

/// Returns an error for `--` without a program, as by an empty variable of a shell script. The check would take a permit
/// for nothing.
fn require_program(program: &[OsString]) -> Result<(), Failure> {
    let is_empty = match program {
        [] => env::args_os().any(|argument| argument == "--"),
        [program, ..] => program.is_empty(),
    };
    if is_empty {
        return Err(Failure::usage("`--` must have a program behind it, got none: write one, or remove `--`"));
    }
    Ok(())
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
    // Without it the answer only lacks what counts beyond the limit.
    if decision.is_denied()
        && let Ok(usage) = target.rule().usage(&target.key, &target.default_limit).await
    {
        answer = answer.with_usage(usage);
    }
    let exit = if decision.is_allowed() { Exit::SUCCESS } else { Exit::DENIED };
    Ok(output.settle(answer.write(output), exit))
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
    target.rule().reset(&target.key, &target.default_limit).await?;
    let key = target.key.encoded();
    let written = if output.is_json() {
        let had_count = counts.are_known().then(|| !counts.are_empty());
        output.json(&json!({ "key": key, "reset": true, "had_count": had_count }))
    } else if counts.are_empty() {
        output.line(format_args!("reset: {}", no_count(&target.key, &counts)))
    } else {
        output.line(format_args!("reset: {key} has its full quota"))
    };
    Ok(output.settle(written, Exit::SUCCESS))
}

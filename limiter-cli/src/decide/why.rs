//! `limiter why`: the state of a key under each rule that fits it.

use std::time::Duration;

use limiter_inspect::{KeyProblem, KeyQuestion, KeyReport, KeyState, RulesVersions, limit_text};
use rate_limited::Key;

use crate::activity::write_denials;
use crate::arguments::WhyArguments;
use crate::connection::Connection;
use crate::duration_text;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Output, Style, visible};
use crate::suggestion;

/// Shows for each rule that fits the key its limits in force, what is used of them, and when the next call is allowed.
/// Nothing is taken.
pub(crate) async fn why(arguments: &WhyArguments, connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    connection.require_shared("why")?;
    let key = arguments.key.read()?;
    let reader = connection.limiter().await?;
    let (rule, plan) = (arguments.rule.as_deref(), arguments.plan.as_deref().unwrap_or_default());
    let report = KeyReport::read(&reader, KeyQuestion { key: &key, rule, plan }).await;
    let report = report.map_err(|problem| failure(problem, rule.unwrap_or_default()))?;
    if let Some(error) = &report.left_out {
        output.warn(format_args!("version {} of the shared rules is left out: {error}", report.versions.published));
    }
    if report.denials.is_none() {
        output.warn("the last denials are unknown: permit `~rl-live:* +xrevrange`, with the prefix in place of `rl`");
    }
    let exit = if report.is_denied() { Exit::DENIED } else { Exit::SUCCESS };
    let written = if output.is_json() {
        output.json(&report.to_json(&key))
    } else {
        write(&key, &report, output).and_then(|()| write_denials(report.denials.as_deref().unwrap_or_default(), output))
    };
    Ok(output.settle(written, exit))
}

fn failure(problem: KeyProblem, rule: &str) -> Failure {
    match problem {
        KeyProblem::NeedsRule => {
            Failure::usage("`--rule` must be written for a key with a digest, got none: its template cannot be found")
        }
        KeyProblem::UnknownRule(known) => {
            let remedy = match suggestion::nearest(rule, known.iter().map(String::as_str)) {
                Some(name) => format!("write `{}`", visible(name)),
                None => "leave it out for each rule that fits the key".to_owned(),
            };
            Failure::usage(format!(
                "`--rule` must be a rule of a limiter that lives or of the shared rules, got `{}`: {remedy}",
                visible(rule)
            ))
        }
        KeyProblem::OtherKeys(templates) => {
            let templates: Vec<_> = templates.iter().map(|template| visible(template)).collect();
            Failure::usage(format!(
                "`--rule` must be a rule of this key, got `{}`, whose keys are `{}`: write another one, or leave it out",
                visible(rule),
                templates.join("`, `")
            ))
        }
        KeyProblem::Store(error) => error.into(),
    }
}

/// Returns the next call that one of several limits allows. The others are as they are for the rule.
fn next_of_limit(state: &KeyState, wait: Duration) -> String {
    match state.denied_for() {
        Some((Some(_), false)) if wait.is_zero() => "now".to_owned(),
        Some((Some(_), false)) => format!("in {}", duration_text::write(wait)),
        _ => next(state),
    }
}

fn next(state: &KeyState) -> String {
    match state.denied_for() {
        None if state.unread.is_empty() => "now".to_owned(),
        None => "?".to_owned(),
        Some((None, _)) => "never".to_owned(),
        Some((Some(after), is_blocked)) => {
            let blocked = if is_blocked { ", blocked" } else { "" };
            format!("in {}{blocked}", duration_text::write(after))
        }
    }
}

fn write(key: &Key, report: &KeyReport, output: &Output) -> Result<(), Failure> {
    const MAX_TEMPLATES: usize = 10;
    let KeyReport { states, versions, templates, .. } = report;
    output.line(key.encoded())?;
    if states.is_empty() {
        let templates: Vec<_> = templates.iter().take(MAX_TEMPLATES).map(|template| visible(template)).collect();
        let have = match &templates[..] {
            [] => String::new(),
            templates => format!(": their keys are `{}`, and a part has `@` before it", templates.join("`, `")),
        };
        output
            .line(format_args!("no rule of a limiter that lives, and none of the shared rules, fits this key{have}"))?;
        return write_versions(versions, output);
    }
    let mut table = output.table(&["RULE", "LIMIT", "FROM", "MODE", "USED", "LEFT", "NEXT CALL", "LIMITERS"]);
    for state in states {
        let limiters = match state.limiters {
            (some, all) if some == all => all.to_string(),
            (some, all) => format!("{some} of {all}"),
        };
        let row = |limit: String, used: String, left: String, next: String| {
            let [rule, from] = [&state.rule, &state.origin].map(|text| visible(text));
            [rule, limit, from, state.mode.as_str().to_owned(), used, left, next, limiters.clone()]
        };
        for (usage, wait) in state.limits.iter().zip(&state.waits) {
            let left = match usage.overdrawn() {
                0 => usage.remaining().to_string(),
                beyond => format!("{beyond} beyond"),
            };
            table.add_row(row(limit_text(&usage.limit()), usage.used().to_string(), left, next_of_limit(state, *wait)));
        }
        for unread in &state.unread {
            table.add_row(row(visible(unread), "?".to_owned(), "?".to_owned(), "?".to_owned()));
        }
        if state.limits.is_empty() && state.unread.is_empty() {
            table.add_row(row("-".to_owned(), "-".to_owned(), "-".to_owned(), next(state)));
        }
    }
    output.print(table)?;
    for state in states.iter().filter(|state| !state.others.is_empty()) {
        output.line(format_args!("`{}` is other in: {}", visible(&state.rule), visible(&state.others.join("; "))))?;
    }
    write_versions(versions, output)?;
    // The one that denies for the longest time.
    let wait = |state: &&KeyState| state.denied_for().map(|(after, _)| after.unwrap_or(Duration::MAX));
    match states.iter().filter(|state| state.decision.is_denied()).max_by_key(wait) {
        Some(denying) => {
            output.line(output.paint(
                Style::Yellow,
                format_args!("denied by `{}`: next call {}", visible(&denying.rule), next(denying)),
            ))
        }
        None if states.iter().any(|state| !state.unread.is_empty()) => {
            output.line("each limit that is known allows the next call")
        }
        None => output.line(output.paint(Style::Green, "each of them allows the next call")),
    }
}

/// The most versions that are written.
const MAX_VERSIONS: usize = 10;

/// Writes the version of the shared rules in each limiter.
fn write_versions(RulesVersions { published, followed }: &RulesVersions, output: &Output) -> Result<(), Failure> {
    if followed.is_empty() {
        output.note("no limiter lives, so only the shared rules are known");
        return Ok(());
    }
    let text = |(version, limiters): (&Option<u64>, &Vec<String>)| {
        let version = version.map_or("none".to_owned(), |version| version.to_string());
        // The usual version need not be listed limiter by limiter.
        let places = match limiters.len() {
            1..=3 => format!(" ({})", visible(&limiters.join(", "))),
            _ => String::new(),
        };
        format!("{version} in {}{places}", limiters.len())
    };
    let texts = followed.iter().take(MAX_VERSIONS).map(text).collect::<Vec<_>>().join("; ");
    let more = match followed.len().saturating_sub(MAX_VERSIONS) {
        0 => String::new(),
        more => format!("; and {more} more versions"),
    };
    output.line(format_args!("shared rules: version {published} is published; limiters follow {texts}{more}"))
}

//! `limiter top`: the rates of each rule, and the keys that are denied and allowed most often.

use std::env;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use limiter_inspect::{ActivitySums, KeySum, RATES, RuleSum, rfc3339, rule_names};
use rate_limited::{ActivityLog, Error, Limiter};
use serde_json::{Map, Value, json};

use crate::arguments::TopArguments;
use crate::connection::Connection;
use crate::duration_text;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Output, lines, visible};
use crate::suggestion;

/// The most programs that are named.
const MAX_PROGRAMS: usize = 20;

/// Writes the activity of all limiters: once, or again and again on a terminal.
pub(crate) async fn top(arguments: &TopArguments, connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    connection.require_shared("top")?;
    let (limiter, mut log) = (connection.limiter().await?, ActivityLog::new());
    limiter.activity(&mut log).await?;
    if output.is_json() {
        output.json(&as_json(&sums(arguments, &log), arguments, &log))?;
        return Ok(Exit::SUCCESS);
    }
    if arguments.once || !is_repainted() {
        screen(arguments, &log, output).iter().try_for_each(|line| output.line(line))?;
        return Ok(Exit::SUCCESS);
    }
    repaint(arguments, &limiter, &mut log, output).await
}

/// Returns whether standard output is a terminal whose cursor can be moved.
fn is_repainted() -> bool {
    io::stdout().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Writes the activity in place until the program is ended. A store that fails is waited for.
async fn repaint(
    arguments: &TopArguments,
    limiter: &Limiter,
    log: &mut ActivityLog,
    output: &Output,
) -> Result<Exit, Failure> {
    let mut failure: Option<Error> = None;
    loop {
        let mut shown = screen(arguments, log, output);
        shown.extend(
            failure.map(|error| format!("the store has failed, and is read again: {}", visible(&error.to_string()))),
        );
        paint(&shown)?;
        tokio::time::sleep(arguments.every).await;
        failure = limiter.activity(log).await.err();
    }
}

/// Writes lines over those from before: as many as the terminal has.
fn paint(lines: &[String]) -> Result<(), Failure> {
    let rows = rows().map_or(usize::MAX, |rows| rows.saturating_sub(1).max(1));
    let mut text = String::from("\u{1b}[H");
    for line in lines.iter().take(rows) {
        let _ = write!(text, "{line}\u{1b}[K\r\n");
    }
    text.push_str("\u{1b}[J");
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| Failure::output(&error))
}

/// The rows of the terminal, if they are known.
#[cfg(unix)]
fn rows() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_row)).filter(|rows| *rows > 0)
}

#[cfg(not(unix))]
fn rows() -> Option<usize> {
    None
}

/// Returns the sums of the rules and keys that the arguments name.
fn sums(TopArguments { denied, rule, key, .. }: &TopArguments, log: &ActivityLog) -> ActivitySums {
    let rule = rule.as_deref().map(ActivityLog::name_of_rule);
    let mut sums = ActivitySums::of(log, rule.as_deref(), *denied);
    if let Some(part) = key {
        for keys in [&mut sums.denied, &mut sums.allowed] {
            keys.retain(|sum| sum.key.contains(part));
        }
    }
    sums
}

/// Returns the lines that are shown.
fn screen(arguments: &TopArguments, log: &ActivityLog, output: &Output) -> Vec<String> {
    let TopArguments { denied, rule, key, rows, .. } = arguments;
    let (sums, most) = (sums(arguments, log), usize::try_from(*rows).unwrap_or(usize::MAX));
    if sums.programs.is_empty() {
        return vec![
            "no limiter has written activity in the last 15 min: call `Builder::activity` in the program".to_owned(),
        ];
    }
    if let (Some(rule), true) = (rule, sums.rules.is_empty()) {
        return vec![unknown_rule(rule, log)];
    }
    let mut shown = vec![programs_line(&sums), String::new()];
    shown.extend(rule_lines(&sums.rules, most, output));
    let now = log.read_at();
    let mut add_keys = |title: &str, count: &str, keys: &[KeySum]| {
        if !keys.is_empty() {
            let mut table = output.table(&[title, "RULE", count, "LIMITERS", "LAST"]);
            for key in keys.iter().take(most) {
                let KeySum { rule, key, count, error, limiters, last_seen } = key;
                let count =
                    if *error > 0 { format!("{} to {count}", count - error.min(count)) } else { count.to_string() };
                let age = now.duration_since(*last_seen).unwrap_or_default();
                let last = format!("{} ago", duration_text::write(Duration::from_secs(age.as_secs())));
                table.add_row([visible(key), visible(rule), count, limiters.to_string(), last]);
            }
            shown.push(String::new());
            shown.extend(lines(table));
        }
    };
    add_keys("DENIED KEY", "DENIALS", &sums.denied);
    if !denied {
        add_keys("ALLOWED KEY", "CALLS", &sums.allowed);
    }
    if let Some(part) = key
        && sums.denied.is_empty()
        && (*denied || sums.allowed.is_empty())
    {
        shown.push(String::new());
        shown.push(format!("no key has `{}`: a limiter writes its most frequent keys alone", visible(part)));
    }
    shown
}

/// Returns the message about a rule that no limiter has decided by.
pub(super) fn unknown_rule(rule: &str, log: &ActivityLog) -> String {
    let advice = match suggestion::nearest(rule, rule_names(log)) {
        Some(name) => format!(": write `{}`", visible(name)),
        None => String::new(),
    };
    format!("no limiter has decided by the rule `{}` in the last 15 min{advice}", visible(rule))
}

/// Returns the line about the programs.
fn programs_line(ActivitySums { programs, .. }: &ActivitySums) -> String {
    let named = programs.iter().take(MAX_PROGRAMS);
    let named: Vec<_> = named.map(|(name, limiters)| format!("{} in {limiters}", visible(name))).collect();
    let more = match programs.len().saturating_sub(MAX_PROGRAMS) {
        0 => String::new(),
        more => format!(", and {more} more programs"),
    };
    format!("{} limiters: {}{more}", programs.values().sum::<usize>(), named.join(", "))
}

fn rule_lines(rules: &[(String, RuleSum)], most: usize, output: &Output) -> Vec<String> {
    let mut table =
        output.table(&["RULE", "ALLOWED/S", "DENIED/S", "DECIDED ELSEWHERE/S", "DENIED IN ALL", "LIMITERS"]);
    for (rule, sum) in rules.iter().take(most) {
        let [allowed, denied, others @ ..] = sum.rates;
        let named = RATES[2..].iter().zip(others).filter(|(_, rate)| *rate > 0.0);
        let others =
            named.map(|((name, _), rate)| format!("{name} {}", rate_text(rate))).collect::<Vec<_>>().join(", ");
        table.add_row([
            visible(rule),
            rate_text(allowed),
            rate_text(denied),
            if others.is_empty() { "-".to_owned() } else { others },
            sum.totals[1].to_string(),
            sum.limiters.to_string(),
        ]);
    }
    let mut lines = lines(table);
    if rules.len() > most {
        lines.push(format!("and {} more: `-n {}` shows them", rules.len() - most, rules.len()));
    }
    lines
}

/// Writes a rate for people: `0`, `0.25`, `12.3` or `1234`.
fn rate_text(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        ..1.0 => format!("{rate:.2}"),
        1.0..100.0 => format!("{rate:.1}"),
        _ => format!("{rate:.0}"),
    }
}

fn as_json(sums: &ActivitySums, arguments: &TopArguments, log: &ActivityLog) -> Value {
    let most = usize::try_from(arguments.rows).unwrap_or(usize::MAX);
    let rules = sums.rules.iter().take(most).map(|(rule, sum)| {
        let named = |rates: &mut dyn Iterator<Item = Value>| -> Map<String, Value> {
            RATES.iter().zip(rates).map(|((name, _), rate)| ((*name).to_owned(), rate)).collect()
        };
        json!({
            "rule": rule,
            "per_second": named(&mut sum.rates.iter().map(|rate| json!(rate))),
            "total": named(&mut sum.totals.iter().map(|total| json!(total))),
            "limiters": sum.limiters,
        })
    });
    let keys = |keys: &[KeySum]| {
        let key = |key: &KeySum| {
            json!({
                "key": key.key,
                "rule": key.rule,
                "count": key.count,
                "error": key.error,
                "limiters": key.limiters,
                "last_seen": rfc3339(key.last_seen),
            })
        };
        keys.iter().take(most).map(key).collect::<Vec<_>>()
    };
    let mut top = json!({
        "at": rfc3339(log.read_at()),
        "programs": sums.programs,
        "rules": rules.collect::<Vec<_>>(),
        "denied": keys(&sums.denied),
    });
    if !arguments.denied {
        top["allowed"] = json!(keys(&sums.allowed));
    }
    top
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_short() {
        let cases = [(0.0, "0"), (0.25, "0.25"), (12.345, "12.3"), (99.96, "100.0"), (1234.4, "1234")];
        for (rate, text) in cases {
            assert_eq!(rate_text(rate), text);
        }
    }
}

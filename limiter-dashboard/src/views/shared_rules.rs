//! The text of the shared rules: check, publication, history and rollback.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use limiter_inspect::{DiffLine, Fleet, LimitChange, TextEffect, TextWarning, check_text, diff, text_warnings};
use rate_limited::{Change, Error, ErrorKind, Limiter, Published, SharedRules};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::answer::{Problem, json_response, read_json, text};
use crate::routes::{Service, Trusted};
use crate::series::unix_millis;

/// The most lines of a difference.
const MAX_DIFF_LINES: usize = 2_000;
/// The time after which the changed lines of further versions are not counted.
const MAX_DIFF_TIME: Duration = Duration::from_secs(2);
/// The text that has no rules, since an empty one may be a mistake.
const NO_RULES: &str = "# No rules.\n";
/// The most versions of the history.
const MAX_VERSIONS: usize = 100;

/// Returns the text in force.
pub(crate) async fn present(_: Trusted, State(service): State<Arc<Service>>) -> Result<Response, Problem> {
    let published = SharedRules::new(&service.limiter).read().await?;
    Ok(json_response(StatusCode::OK, &published_json(&published)))
}

/// Returns the mistake of a text, or the effect of its publication: what changes for which keys, the difference, the rules
/// whose counts begin anew, and the names that no limiter has.
pub(crate) async fn check(
    _: Trusted,
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Response, Problem> {
    let body = body_of(request).await?;
    let toml = text(&body, "toml")?.to_owned();
    let published = SharedRules::new(&service.limiter).read().await?;
    // A reader without the permission for heartbeats has no limiters.
    let fleet = Fleet::read(&service.limiter).await.ok();
    let effect = move || {
        let mistake = mistake(&toml);
        let mut answer = json!({
            "version": published.version,
            "is_empty": toml.trim().is_empty(),
            "mistake": mistake.as_ref().map(|message| mistake_json(message)),
            "diff": diff_json(&published.toml, &toml),
            "changes": [],
            "notes": [],
            "warnings": [],
        });
        if mistake.is_none() {
            add_effect(&mut answer, fleet.as_ref(), &published.toml, &toml);
            answer["warnings"] = match &fleet {
                Some(fleet) => warnings_json(&text_warnings(fleet, &published.toml, &toml)),
                None => {
                    json!([{ "message": "the names of rules and keys are not checked: the limiters cannot be read" }])
                }
            };
        }
        answer
    };
    Ok(json_response(StatusCode::OK, &compute(&service, effect).await?))
}

/// Publishes a text that is based on the version in force. A name that is nearly one of a limiter needs `anyway`.
pub(crate) async fn publish(
    _: Trusted,
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Response, Problem> {
    let body = body_of(request).await?;
    let (toml, change) = (text(&body, "toml")?, change(&body)?);
    let operator = operator(&service)?;
    let checked = toml.to_owned();
    if let Some(message) = compute(&service, move || mistake(&checked)).await? {
        let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, message.clone());
        return Err(problem.with("mistake", mistake_json(&message)));
    }
    if body["anyway"] != json!(true) {
        refuse_misspelt(&service, toml, change.based_on).await?;
    }
    let published = SharedRules::new(operator).publish(toml, change).await;
    settle(&service, operator, published, toml).await
}

/// Refuses a text with a name that is nearly one of a limiter. Without a reading of the limiters nothing is refused.
async fn refuse_misspelt(service: &Service, toml: &str, based_on: u64) -> Result<(), Problem> {
    let rules = SharedRules::new(&service.limiter);
    let (published, fleet) = tokio::join!(rules.read(), Fleet::read(&service.limiter));
    // Of two changes at once the later one is a conflict.
    let (Some(published), Ok(fleet)) = (published.ok().filter(|text| text.version == based_on), fleet) else {
        return Ok(());
    };
    let toml = toml.to_owned();
    let mut warnings = compute(service, move || text_warnings(&fleet, &published.toml, &toml)).await?;
    warnings.retain(|warning| warning.suggestion.is_some());
    let Some(first) = warnings.first() else { return Ok(()) };
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, first.message.clone());
    Err(problem.with("needs_consent", json!(true)).with("warnings", warnings_json(&warnings)))
}

/// Publishes the text of an earlier version again. Version 0 is the time before the first one: a text without rules.
pub(crate) async fn rollback(
    _: Trusted,
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Response, Problem> {
    let body = body_of(request).await?;
    let (version, change) = (number(&body, "version")?, change(&body)?);
    let operator = operator(&service)?;
    let rules = SharedRules::new(operator);
    let toml = if version == 0 { NO_RULES.to_owned() } else { find(&rules, version).await?.toml };
    let published = rules.publish(&toml, change).await;
    settle(&service, operator, published, &toml).await
}

/// Returns the versions without their texts, the newest first.
pub(crate) async fn history(_: Trusted, State(service): State<Arc<Service>>) -> Result<Response, Problem> {
    let entries = SharedRules::new(&service.limiter).history(MAX_VERSIONS).await?;
    let versions = move || {
        let began = Instant::now();
        let older = entries.iter().skip(1).map(|entry| &*entry.toml).chain([""]);
        let entry = |(entry, older): (&Published, &str)| {
            let mut value = details_json(entry);
            // Long texts that differ in all lines take long.
            if began.elapsed() < MAX_DIFF_TIME {
                let lines = diff(older, &entry.toml);
                let count =
                    |is_counted: fn(&DiffLine<'_>) -> bool| lines.iter().filter(|line| is_counted(line)).count();
                value["added"] = json!(count(|line| matches!(line, DiffLine::Added(_))));
                value["removed"] = json!(count(|line| matches!(line, DiffLine::Removed(_))));
            }
            value
        };
        json!({ "versions": entries.iter().zip(older).map(entry).collect::<Vec<_>>() })
    };
    Ok(json_response(StatusCode::OK, &compute(&service, versions).await?))
}

/// Returns an earlier version, with the difference that its publication would make.
pub(crate) async fn version(
    _: Trusted,
    State(service): State<Arc<Service>>,
    Path(version): Path<String>,
) -> Result<Response, Problem> {
    let rules = SharedRules::new(&service.limiter);
    let version = version.parse().map_err(|_| no_version())?;
    let present = rules.read().await?;
    let (toml, details) = match version {
        0 => (NO_RULES.to_owned(), json!({ "version": 0, "toml": NO_RULES })),
        version => find(&rules, version).await.map(|earlier| (earlier.toml.clone(), published_json(&earlier)))?,
    };
    let fleet = Fleet::read(&service.limiter).await.ok();
    let answer = move || {
        let mut answer = details;
        answer["present"] = json!(present.version);
        answer["diff"] = diff_json(&present.toml, &toml);
        add_effect(&mut answer, fleet.as_ref(), &present.toml, &toml);
        answer
    };
    Ok(json_response(StatusCode::OK, &compute(&service, answer).await?))
}

/// Computes an answer beside the threads of the runtime. Few are computed at once.
pub(crate) async fn compute<A: Send + 'static>(
    service: &Service,
    answer: impl FnOnce() -> A + Send + 'static,
) -> Result<A, Problem> {
    let _place = service.questions.acquire().await;
    let failed = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be computed");
    spawn_blocking(answer).await.map_err(failed)
}

async fn body_of(request: Request) -> Result<Value, Problem> {
    let (parts, body) = request.into_parts();
    read_json(&parts.headers, body).await
}

fn operator(service: &Service) -> Result<&Limiter, Problem> {
    service.operator.as_ref().ok_or_else(|| {
        Problem::new(StatusCode::FORBIDDEN, "the dashboard has no operator's URL: start it with `--operator-url`")
    })
}

/// Reads the details of a change. The author is a claim: the token is that of all operators.
fn change(body: &Value) -> Result<Change, Problem> {
    let who = match text(body, "who")?.trim() {
        "" => "dashboard".to_owned(),
        who => format!("{who} (dashboard)"),
    };
    Ok(Change { based_on: number(body, "if_version")?, who, why: text(body, "why")?.trim().to_owned() })
}

fn number(body: &Value, field: &str) -> Result<u64, Problem> {
    let message = || Problem::new(StatusCode::BAD_REQUEST, format!("`{field}` must be the number of a version"));
    body[field].as_u64().ok_or_else(message)
}

async fn find(rules: &SharedRules, version: u64) -> Result<Published, Problem> {
    let entries = rules.history(MAX_VERSIONS).await?;
    let found = entries.into_iter().find(|entry| entry.version == version);
    found.ok_or_else(no_version)
}

fn no_version() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "the history does not have this version any more")
}

/// Returns the answer to a publication. A conflict has both texts.
async fn settle(
    service: &Service,
    operator: &Limiter,
    published: Result<u64, Error>,
    toml: &str,
) -> Result<Response, Problem> {
    service.feed.rules_changed().await;
    match published {
        Ok(version) => Ok(json_response(StatusCode::OK, &json!({ "version": version }))),
        Err(error) if error.kind() == ErrorKind::Conflict => {
            let present = SharedRules::new(operator).read().await?;
            let problem = Problem::new(StatusCode::CONFLICT, "another version was published meanwhile");
            let problem = problem.with("present", published_json(&present)).with("yours", json!(toml));
            Err(problem.with("diff", diff_json(&present.toml, toml)))
        }
        Err(error) => {
            let is_unknown = matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable);
            Err(Problem::from(error).with("may_be_published", json!(is_unknown)))
        }
    }
}

/// Returns the mistake of a text.
fn mistake(toml: &str) -> Option<String> {
    if toml.trim().is_empty() {
        return Some(
            "the text must have rules, got an empty one: write a comment such as `# No rules.` to have none".to_owned(),
        );
    }
    check_text(toml).err()
}

/// Returns a mistake with its line and its column, which begin at 1.
fn mistake_json(message: &str) -> Value {
    let number_behind = |word: &str| -> Option<u32> {
        let (_, rest) = message.split_once(word)?;
        rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
    };
    json!({ "message": message, "line": number_behind("line "), "column": number_behind("column ") })
}

/// Adds what changes for which keys, and sentences about the rules whose counts begin anew.
fn add_effect(answer: &mut Value, fleet: Option<&Fleet>, old: &str, new: &str) {
    let TextEffect { changes, left_out, new_counts } = TextEffect::of(fleet, old, new);
    let change = |LimitChange { keys, before, after, starts_new_counts }| json!({ "keys": keys, "before": before, "after": after, "starts_new_counts": starts_new_counts });
    answer["changes"] = changes.into_iter().map(change).collect();
    answer["changes_left_out"] = json!(left_out);
    answer["notes"] = new_counts.into_iter().map(|counts| counts.message).collect();
}

fn warnings_json(warnings: &[TextWarning]) -> Value {
    let warning = |TextWarning { message, line, suggestion }: &TextWarning| json!({ "message": message, "line": line, "suggestion": suggestion });
    warnings.iter().map(warning).collect()
}

fn published_json(published: &Published) -> Value {
    let mut value = details_json(published);
    value["toml"] = json!(published.toml);
    value
}

fn details_json(Published { version, who, when, why, .. }: &Published) -> Value {
    json!({ "version": version, "who": who, "when": unix_millis(*when), "why": why })
}

/// Returns a difference as lines, each with its kind: `@`, ` `, `-` or `+`.
fn diff_json(old: &str, new: &str) -> Value {
    let lines = diff(old, new);
    let mut shown: Vec<_> = lines.iter().take(MAX_DIFF_LINES).map(line_json).collect();
    if lines.len() > MAX_DIFF_LINES {
        shown.push(json!(["@", format!("and {} more lines", lines.len() - MAX_DIFF_LINES)]));
    }
    shown.into()
}

/// Returns the place of changed lines in words.
fn hunk_text(old: (usize, usize), new: (usize, usize)) -> String {
    match (old, new) {
        ((_, 0), (line, _)) => format!("new, from line {line}"),
        ((line, _), (_, 0)) => format!("removed, from line {line}"),
        ((old, _), (new, _)) if old == new => format!("from line {old}"),
        ((old, _), (new, _)) => format!("from line {new}, before line {old}"),
    }
}

fn line_json(line: &DiffLine<'_>) -> Value {
    match line {
        DiffLine::Hunk { old, new } => json!(["@", hunk_text(*old, *new)]),
        DiffLine::Same(line) => json!([" ", line]),
        DiffLine::Removed(line) => json!(["-", line]),
        DiffLine::Added(line) => json!(["+", line]),
        DiffLine::NoNewline => json!(["@", "no newline at the end"]),
    }
}

//! The text of the shared rules: check, publication, history and rollback.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use limiter_inspect::{DiffLine, check_text, diff, new_counts};
use rate_limited::{Change, Error, ErrorKind, Limiter, Published, SharedRules};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use toml_edit::DocumentMut;

use crate::answer::{Problem, json_response, read_json, text};
use crate::routes::{Service, Trusted};
use crate::series::unix_millis;

/// The most lines of a difference.
const MAX_DIFF_LINES: usize = 2_000;
/// The time after which the changed lines of further versions are not counted.
const MAX_DIFF_TIME: Duration = Duration::from_secs(2);
/// The most versions of the history.
const MAX_VERSIONS: usize = 100;

/// Returns the text in force.
pub(crate) async fn present(_: Trusted, State(service): State<Arc<Service>>) -> Result<Response, Problem> {
    let published = SharedRules::new(&service.limiter).read().await?;
    Ok(json_response(StatusCode::OK, &published_json(&published)))
}

/// Returns the mistake of a text, or the effect of its publication: the difference, and the rules whose counts begin anew.
pub(crate) async fn check(
    _: Trusted,
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Response, Problem> {
    let body = body_of(request).await?;
    let toml = text(&body, "toml")?.to_owned();
    let published = SharedRules::new(&service.limiter).read().await?;
    let effect = move || {
        let mistake = mistake(&toml);
        json!({
            "version": published.version,
            "mistake": mistake.as_ref().map(|message| mistake_json(message)),
            "diff": diff_json(&published.toml, &toml),
            "notes": if mistake.is_none() { notes(&published.toml, &toml) } else { json!([]) },
        })
    };
    Ok(json_response(StatusCode::OK, &compute(&service, effect).await?))
}

/// Publishes a text that is based on the version in force.
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
    let published = SharedRules::new(operator).publish(toml, change).await;
    settle(&service, operator, published, toml).await
}

/// Publishes the text of an earlier version again.
pub(crate) async fn rollback(
    _: Trusted,
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Response, Problem> {
    let body = body_of(request).await?;
    let (version, change) = (number(&body, "version")?, change(&body)?);
    let operator = operator(&service)?;
    let rules = SharedRules::new(operator);
    let earlier = find(&rules, version).await?;
    let published = rules.publish(&earlier.toml, change).await;
    settle(&service, operator, published, &earlier.toml).await
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
    let (earlier, present) = (find(&rules, version).await?, rules.read().await?);
    let answer = move || {
        let mut answer = published_json(&earlier);
        answer["present"] = json!(present.version);
        answer["diff"] = diff_json(&present.toml, &earlier.toml);
        answer["notes"] = notes(&present.toml, &earlier.toml);
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
        return Some("the text must have rules, got an empty one: write `#` to have none".to_owned());
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

/// Returns sentences about the rules whose counts begin anew.
fn notes(old: &str, new: &str) -> Value {
    let Ok(new) = new.parse::<DocumentMut>() else { return json!([]) };
    let old = old.parse::<DocumentMut>().unwrap_or_default();
    new_counts(&old, &new).into_iter().map(|counts| counts.message).collect()
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

fn line_json(line: &DiffLine<'_>) -> Value {
    match line {
        DiffLine::Hunk { old, new } => json!(["@", format!("lines {} and {}", old.0, new.0)]),
        DiffLine::Same(line) => json!([" ", line]),
        DiffLine::Removed(line) => json!(["-", line]),
        DiffLine::Added(line) => json!(["+", line]),
        DiffLine::NoNewline => json!(["@", "no newline at the end"]),
    }
}

//! The state of a key. It is in the body of a request: addresses are in logs and histories, and a key may name a customer.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use limiter_inspect::{KeyProblem, KeyQuestion, KeyReport, nearest_keys, without_escapes};
use rate_limited::Key;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::answer::{Problem, json_response, read_json, text};
use crate::routes::{Service, Trusted};

/// The longest time of a question. A limiter of more than 10 s would write heartbeats.
const MAX_QUESTION_TIME: Duration = Duration::from_secs(8);

/// Returns what `limiter why` tells: for each rule that fits the key its limits, what is used and the next call.
pub(crate) async fn report(
    _: Trusted,
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let body = read_json(&parts.headers, body).await?;
    let key = read_key(&body)?;
    let (rule, plan) = (text(&body, "rule")?, text(&body, "plan")?);
    let report = read_report(&service, &key, rule, plan).await?;
    let mut answer = report.to_json(&key);
    // A key of a template is written with its values apart.
    answer["templates"] = json!(report.templates);
    answer["suggestions"] = json!(suggestions(&key, &report.templates));
    answer["left_out"] = json!(report.left_out.map(|error| error.to_string()));
    Ok(json_response(StatusCode::OK, &answer))
}

/// Reads the state of a key under a rule, or under each one that fits it if the rule is an empty text.
pub(crate) async fn read_report(service: &Service, key: &Key, rule: &str, plan: &str) -> Result<KeyReport, Problem> {
    let _place = service.questions.acquire().await;
    let question = KeyQuestion { key, rule: Some(rule).filter(|rule| !rule.is_empty()), plan };
    let report = timeout(MAX_QUESTION_TIME, KeyReport::read(&service.limiter, question)).await;
    let report = report.map_err(|_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the store took too long"))?;
    report.map_err(|problem| match problem {
        KeyProblem::NeedsRule => unprocessable("the rule must be named for a key with a digest"),
        KeyProblem::UnknownRule(_) => {
            unprocessable("no limiter that lives has this rule, and neither have the shared rules")
        }
        KeyProblem::OtherKeys(templates) => {
            let problem = unprocessable(&format!("the keys of this rule are {}", templates.join(", ")));
            problem.with("suggestions", json!(suggestions(key, &templates)))
        }
        KeyProblem::Store(error) => error.into(),
    })
}

/// Returns the keys of these templates that a text probably means.
fn suggestions(key: &Key, templates: &[String]) -> Vec<String> {
    nearest_keys(&without_escapes(&key.encoded()), templates.iter().map(String::as_str))
}

/// Reads the key in its encoding, and the values behind it.
fn read_key(body: &Value) -> Result<Key, Problem> {
    let encoded = text(body, "key")?;
    let parts = match &body["parts"] {
        Value::Null => &[],
        Value::Array(parts) => parts.as_slice(),
        _ => return Err(unprocessable("`parts` must be a list of texts")),
    };
    let key = if encoded.is_empty() && !parts.is_empty() { Ok(Key::new("")) } else { Key::from_encoded(encoded) };
    let key = key.map_err(|_| {
        unprocessable("the key must be encoded as in Redis, such as `user:@42`: write its text, and its values apart")
    })?;
    parts.iter().try_fold(key, |key, part| {
        part.as_str().map(|part| key.part(part)).ok_or_else(|| unprocessable("`parts` must be a list of texts"))
    })
}

fn unprocessable(message: &str) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, message)
}

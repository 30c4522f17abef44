//! Drafts of a change: the shared text with an override for one key, or with the limit of a rule.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use limiter_inspect::{DraftSubject, Fleet, LiveRule, draft_limit, stated_keys};
use rate_limited::{Key, Limit, LimitUsage, SharedRules};
use serde_json::{Value, json};

use crate::answer::{Problem, json_response, read_json, text};
use crate::routes::{Service, Trusted};
use crate::views::keys::read_report;
use crate::views::shared_rules::compute;

/// Returns a text in which the limit of a key, or of a rule, can be changed, and the place of the limit. Nothing is
/// published. A body without `toml` means the published text.
pub(crate) async fn draft(
    _: Trusted,
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let body = read_json(&parts.headers, body).await?;
    let (rule, plan) = (text(&body, "rule")?.to_owned(), text(&body, "plan")?);
    let unprocessable = |message: &str| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, message);
    if rule.is_empty() {
        return Err(unprocessable("`rule` must be the name of a rule"));
    }
    let key = Some(text(&body, "key")?).filter(|key| !key.is_empty());
    let key =
        key.map(Key::from_encoded).transpose().map_err(|_| unprocessable("the key must be encoded as in Redis"))?;
    let published = SharedRules::new(&service.limiter).read().await?;
    let fleet = Fleet::read(&service.limiter).await?;
    let toml = match &body["toml"] {
        Value::Null => published.toml.clone(),
        _ => text(&body, "toml")?.to_owned(),
    };
    let mut limits: Vec<Limit> = Vec::new();
    if let Some(key) = &key {
        let report = read_report(&service, key, &rule, plan).await?;
        limits = report.states.iter().flat_map(|state| &state.limits).map(LimitUsage::limit).collect();
    }
    let live = fleet.rule(&rule);
    if limits.is_empty()
        && let Some((most, _)) = live.and_then(LiveRule::by_limiters)
    {
        limits.clone_from(&most.limits);
    }
    let mut templates: Vec<String> = live.into_iter().flat_map(|live| live.keys.iter().cloned()).collect();
    let drafted = move || {
        templates.extend(stated_keys(&toml).remove(&rule).flatten());
        // The name of a direct call's rule may be its key.
        templates.push(rule.clone());
        let templates: Vec<&str> = templates.iter().map(String::as_str).collect();
        let subject = DraftSubject { rule: &rule, key: key.as_ref(), templates: &templates, limits: &limits };
        let draft = draft_limit(&toml, subject)?;
        let place = |at: usize| draft.toml.get(..at).unwrap_or_default().replace("\r\n", "\n").encode_utf16().count();
        let select = [place(draft.limit_at.start), place(draft.limit_at.end)];
        Ok::<_, String>(json!({
            "version": published.version,
            "published": published.toml,
            "toml": draft.toml,
            // The units and the ends of lines are those of a text area.
            "select": select,
            "limits": limits.iter().map(Limit::to_string).collect::<Vec<_>>(),
        }))
    };
    let answer = compute(&service, drafted).await?.map_err(|message| unprocessable(&message))?;
    Ok(json_response(StatusCode::OK, &answer))
}

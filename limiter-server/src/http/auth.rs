//! `/v1/auth`: a decision about a request that a gateway has received.
//!
//! The answer has the fields of the layer and nothing else, because gateways pass all headers of a denial to the client.

use std::borrow::Cow;
use std::collections::HashMap;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::answer::{add_fields, bytes_response};
use super::problem::HttpProblem;
use crate::error::Error;
use crate::reports::Outcome;
use crate::service::{Answer, Call, CatalogRule, DecisionService, Target, Value, Values, millis};

/// The headers that have the values of keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartHeaders {
    of_all: HashMap<String, HeaderName>,
    of_rules: HashMap<String, HashMap<String, HeaderName>>,
}

impl PartHeaders {
    /// Adds the header of a part of a rule's key, from a text such as `user_id=x-user-id` for every rule, or
    /// `search/user_id=x-user-id` for one. A rule's name may have a slash, a part has none.
    ///
    /// # Errors
    /// The text has another form, or the part has a header already.
    pub(crate) fn add(&mut self, text: &str) -> Result<(), Error> {
        let form = || {
            Error::new(format!(
                "`header` must be a part and its header, got `{text}`: write `user_id=x-user-id`, or `search/user_id=x-user-id` \
                 for one rule"
            ))
        };
        let (target, header) = text.rsplit_once('=').ok_or_else(form)?;
        let (rule, part) = target.rsplit_once('/').map_or((None, target), |(rule, part)| (Some(rule), part));
        if part.is_empty() || rule == Some("") {
            return Err(form());
        }
        let name = HeaderName::try_from(header).map_err(|_| {
            Error::new(format!(
                "`header` must end with the name of a header, got `{header}`: write one such as `x-user-id`"
            ))
        })?;
        let earlier = match rule {
            None => self.of_all.insert(part.to_owned(), name),
            Some(rule) => self.of_rules.entry(rule.to_owned()).or_default().insert(part.to_owned(), name),
        };
        match earlier {
            None => Ok(()),
            Some(_) => Err(Error::new(format!("`header` must have one header for `{target}`, got two: remove one"))),
        }
    }

    /// The rules that are named, each with a part.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (&str, &str)> {
        self.of_rules.iter().flat_map(|(rule, parts)| parts.keys().map(|part| (&**rule, &**part)))
    }

    /// The parts that have a header in every rule.
    pub(crate) fn parts_of_all(&self) -> impl Iterator<Item = &str> {
        self.of_all.keys().map(String::as_str)
    }

    fn of(&self, rule: &str, part: &str) -> Option<&HeaderName> {
        let of_rule = self.of_rules.get(rule).and_then(|parts| parts.get(part));
        of_rule.or_else(|| self.of_all.get(part))
    }
}

/// The query of a request.
#[derive(Debug)]
struct AuthQuery<'q> {
    rule: Cow<'q, str>,
    plan: Cow<'q, str>,
    denied: StatusCode,
    cost: u32,
}

/// Decides about the request of a gateway. No body is read.
pub(crate) async fn answer(
    service: &DecisionService,
    part_headers: &PartHeaders,
    request: &Parts,
) -> Result<(Response<Body>, Outcome), HttpProblem> {
    let query = AuthQuery::parse(request.uri.query().unwrap_or_default())?;
    let values = {
        let catalog = service.catalog();
        let rule = catalog.rule(&query.rule)?;
        values_of(rule, part_headers, &request.headers)?
    };
    let target = Target::Rule { name: Cow::Borrowed(&*query.rule), values: Values::Named(values) };
    let call = Call { plan: &query.plan, cost: query.cost, ..Call::new(target) };
    let answer = service.check(&call).await?;
    let outcome = if answer.is_allowed() { Outcome::Ok } else { Outcome::Denied };
    Ok((response(&answer, query.denied), outcome))
}

fn response(answer: &Answer, denied: StatusCode) -> Response<Body> {
    let status = if answer.is_allowed() { StatusCode::OK } else { denied };
    let body = match (answer.is_allowed(), answer.retry_after()) {
        (true, _) => r#"{"allowed":true}"#.to_owned(),
        (false, None) => r#"{"allowed":false,"retry_after_ms":null}"#.to_owned(),
        (false, Some(time)) => format!(r#"{{"allowed":false,"retry_after_ms":{}}}"#, millis(time)),
    };
    let mut response = bytes_response(status, HeaderValue::from_static("application/json"), body);
    add_fields(answer, response.headers_mut());
    response
}

/// Reads the value of each part of a rule's key from the headers of a request.
fn values_of<'h>(
    rule: &CatalogRule,
    part_headers: &PartHeaders,
    headers: &'h HeaderMap,
) -> Result<Vec<(Cow<'static, str>, Value<'h>)>, HttpProblem> {
    // A key that a caller cannot build is the problem of the check.
    let parts = rule.parts().unwrap_or_default();
    let value = |part: &str| {
        let Some(name) = part_headers.of(rule.name(), part) else {
            let detail = format!("no header is set for the part `{part}` of the key of the rule `{}`", rule.name());
            let problem = HttpProblem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "no-header-set",
                "A part of the key has no header",
                detail,
            );
            return Err(
                problem.suggest(format!("start the server with `--header {part}=x-{}`", part.replace(['_', '.'], "-")))
            );
        };
        let mut sent = headers.get_all(name).iter();
        let missing = || {
            let detail = format!("the request lacks the header `{name}`, which has the part `{part}` of the key");
            HttpProblem::invalid("missing-value", "A value is missing", detail)
        };
        let first = sent.next().filter(|value| !value.is_empty()).ok_or_else(missing)?;
        if sent.next().is_some() {
            let detail = format!("the request must have the header `{name}` once, got several");
            return Err(HttpProblem::invalid("repeated-value", "A value is given twice", detail));
        }
        let text = std::str::from_utf8(first.as_bytes()).map_err(|_| {
            let detail = format!("the header `{name}` must be UTF-8, got other bytes");
            HttpProblem::invalid("invalid-value", "A value cannot be read", detail)
        })?;
        Ok((Cow::Owned(part.to_owned()), Value::from(text)))
    };
    parts.into_iter().map(value).collect()
}

impl<'q> AuthQuery<'q> {
    fn parse(query: &'q str) -> Result<Self, HttpProblem> {
        let invalid = |detail: String| HttpProblem::invalid("invalid-query", "The query cannot be read", detail);
        let (mut rule, mut plan, mut denied, mut cost) = (None, None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let place = match name {
                "rule" => &mut rule,
                "plan" => &mut plan,
                "denied" => &mut denied,
                "cost" => &mut cost,
                _ => {
                    let nearest = limiter_syntax::nearest(name, ["rule", "plan", "denied", "cost"]);
                    let problem = invalid(format!("`{}` is no parameter of this route", cut(name)));
                    return Err(match nearest {
                        Some(nearest) => problem.suggest(format!("write `{nearest}`")),
                        None => problem,
                    });
                }
            };
            let value = decoded(value).ok_or_else(|| invalid(format!("`{name}` must be UTF-8 in percent encoding")))?;
            if place.replace(value).is_some() {
                return Err(invalid(format!("`{name}` must be set once, got two")));
            }
        }
        let rule = rule.filter(|rule| !rule.is_empty()).ok_or_else(|| invalid("`rule` must be set".to_owned()))?;
        let denied = denied.map_or(Ok(StatusCode::TOO_MANY_REQUESTS), |text| {
            let status = text.parse::<u16>().ok().filter(|status| (400..=499).contains(status));
            let status = status.and_then(|status| StatusCode::from_u16(status).ok());
            status.ok_or_else(|| invalid(format!("`denied` must be a status of 400 to 499, got `{}`", cut(&text))))
        })?;
        let cost = cost.map_or(Ok(1), |text| {
            text.parse::<u32>()
                .map_err(|_| invalid(format!("`cost` must be a number of 0 to 4294967295, got `{}`", cut(&text))))
        })?;
        Ok(Self { rule, plan: plan.unwrap_or_default(), denied, cost })
    }
}

/// Decodes a value of a query: `%` with two digits, and `+` for a space. `None` for bytes that are not UTF-8.
fn decoded(value: &str) -> Option<Cow<'_, str>> {
    if !value.contains(['%', '+']) {
        return Some(Cow::Borrowed(value));
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(value.len()), value.as_bytes());
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let (digits, after) = tail.split_first_chunk::<2>()?;
                let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
                let text = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
                bytes.push(u8::from_str_radix(text, 16).ok()?);
                rest = after;
            }
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Returns the start of a text of a caller.
fn cut(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_strictly() {
        let parsed = AuthQuery::parse("rule=user%3A%7Bid%7D&denied=403&cost=2&plan=a+b").expect("valid");
        let AuthQuery { rule, plan, denied, cost } = parsed;
        assert_eq!((&*rule, &*plan, denied.as_u16(), cost), ("user:{id}", "a b", 403, 2));
        let parsed = AuthQuery::parse("rule=search").expect("valid");
        assert_eq!((parsed.denied.as_u16(), parsed.cost), (429, 1));
        for wrong in [
            "",
            "rule",
            "rule=",
            "rule=a&rule=b",
            "rule=a&denied=500",
            "rule=a&denied=4e2",
            "rule=a&denied=",
            "rule=a&cost=-1",
            "rule=a&cost=1.5",
            "rule=a&deneid=403",
            "rule=a&x=1",
            "rule=%ff",
            "rule=%2",
            "rule=%zz",
            "rule=a%",
        ] {
            assert!(AuthQuery::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_part_has_the_header_of_its_rule_or_else_of_all() {
        let mut headers = PartHeaders::default();
        for text in ["user=x-user", "search/user=x-search-user", "a/b/user=X-Other"] {
            headers.add(text).expect(text);
        }
        let of = |rule, part| headers.of(rule, part).map(HeaderName::as_str);
        assert_eq!(of("search", "user"), Some("x-search-user"));
        assert_eq!(of("a/b", "user"), Some("x-other"));
        assert_eq!(of("other", "user"), Some("x-user"));
        assert_eq!(of("search", "tenant"), None);
        for wrong in ["", "user", "=x", "/user=x", "search/=x", "user=", "user=a b", "user=x-again"] {
            assert!(headers.add(wrong).is_err(), "{wrong}");
        }
    }
}

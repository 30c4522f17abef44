//! The bodies of requests. Texts are borrowed from the bytes where JSON has no escapes.

use std::borrow::Cow;
use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::LengthLimitError;
use rate_limited::Limit;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::problem::HttpProblem;
use crate::service::{Target, Value, Values};

/// The most bytes of a body, and of one of `/v1/batch`.
pub(crate) const MAX_BODY_BYTES: usize = 64 << 10;
pub(crate) const MAX_BATCH_BYTES: usize = 1 << 20;
/// The longest time of a body.
const MAX_BODY_TIME: Duration = Duration::from_secs(10);

/// Reads the body of a request of JSON.
///
/// # Errors
/// Another type, a body that is too large or broken, and one that does not end in time.
pub(crate) async fn read_json(request: Request<Body>, most: usize) -> Result<Bytes, HttpProblem> {
    let (parts, body) = request.into_parts();
    check_type(&parts.headers)?;
    let too_large = || {
        let detail = format!("the body must have at most {most} bytes");
        HttpProblem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "The body is too large", detail)
    };
    let length = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > most as u64) {
        return Err(too_large());
    }
    match timeout(MAX_BODY_TIME, to_bytes(body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if error.source().is_some_and(|source| source.is::<LengthLimitError>()) => Err(too_large()),
        Ok(Err(_)) => Err(HttpProblem::invalid("broken-body", "The body cannot be read", "the body broke off")),
        Err(_) => {
            let detail = format!("the body must end within {} s", MAX_BODY_TIME.as_secs());
            Err(HttpProblem::new(StatusCode::REQUEST_TIMEOUT, "slow-body", "The body came too slowly", detail))
        }
    }
}

/// A body without a type is read as JSON.
fn check_type(headers: &HeaderMap) -> Result<(), HttpProblem> {
    let Some(kind) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let essence = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if essence.eq_ignore_ascii_case(b"application/json") {
        return Ok(());
    }
    let problem = HttpProblem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported-media-type",
        "The type of the body is not supported",
        "the body must be of the type application/json",
    );
    Err(problem.suggest("send `content-type: application/json`"))
}

/// Parses a body.
///
/// # Errors
/// It is no JSON, or has a field that the route does not know. The problem has the line and the column.
pub(crate) fn parse<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> Result<T, HttpProblem> {
    serde_json::from_slice(bytes).map_err(|error| HttpProblem::of_json(&error))
}

macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* })+) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Deserialize)]
            #[serde(deny_unknown_fields)]
            pub(crate) struct $name<'b> {
                #[serde(borrow)]
                rule: Option<Text<'b>>,
                #[serde(borrow)]
                values: Option<NamedValues<'b>>,
                #[serde(borrow)]
                plan: Option<Text<'b>>,
                #[serde(borrow)]
                key: Option<Vec<Text<'b>>>,
                limit: Option<Limit>,
                limits: Option<Vec<Limit>>,
                $($(#[$field_doc])* pub(crate) $field: $kind,)*
            }

            impl<'b> $name<'b> {
                /// Takes the target of the call, and the plan of its customer.
                ///
                /// # Errors
                /// It names neither a rule nor a key with limits, or both.
                pub(crate) fn take_call(&mut self) -> Result<(Target<'b>, Cow<'b, str>), HttpProblem> {
                    let plan = self.plan.take().map_or(Cow::Borrowed(""), |plan| plan.0);
                    let own = (self.key.take(), self.limit.take(), self.limits.take());
                    Ok((target(self.rule.take(), self.values.take(), own)?, plan))
                }
            }
        )+
    };
}

bodies! {
    /// The body of `/v1/check`, and of one check of `/v1/batch`.
    CheckBody {
        cost: Option<u32>,
        wait_ms: Option<u64>,
        receipt: Option<bool>,
    }
    /// The body of `/v1/peek` and `/v1/reset`.
    TargetOnlyBody {}
    /// The body of `/v1/charge`.
    ChargeBody {
        cost: u32,
    }
    /// The body of `/v1/settle`.
    SettleBody {
        #[serde(borrow)]
        receipt: Text<'b>,
        actual: u32,
    }
    /// The body of `/v1/refund`.
    RefundBody {
        #[serde(borrow)]
        receipt: Text<'b>,
    }
    /// The body of `/v1/enter`, which begins a slot, or renews one.
    EnterBody {
        cost: Option<u32>,
        wait_ms: Option<u64>,
        receipt: Option<bool>,
        ttl_ms: Option<u64>,
        #[serde(borrow)]
        slot: Option<Text<'b>>,
    }
}

/// The body of `/v1/leave`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaveBody<'b> {
    #[serde(borrow)]
    pub(crate) slot: Text<'b>,
}

/// The body of `/v1/batch`. Its checks are read one by one: a wrong one is a problem of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchBody<'b> {
    #[serde(borrow)]
    pub(crate) checks: Vec<&'b RawValue>,
}

fn target<'b>(
    rule: Option<Text<'b>>,
    values: Option<NamedValues<'b>>,
    own: (Option<Vec<Text<'b>>>, Option<Limit>, Option<Vec<Limit>>),
) -> Result<Target<'b>, HttpProblem> {
    let invalid = |detail| Err(HttpProblem::invalid("invalid-target", "The call has no clear target", detail));
    match (rule, own) {
        (Some(rule), (None, None, None)) => {
            let values = Values::Named(values.unwrap_or_default().0);
            Ok(Target::Rule { name: rule.0, values })
        }
        (None, (Some(key), limit, limits)) if values.is_none() => {
            let limits = match (limit, limits) {
                (Some(limit), None) => vec![limit],
                (None, Some(limits)) => limits,
                (None, None) => return invalid("`limit` or `limits` must be set beside `key`"),
                (Some(_), Some(_)) => return invalid("`limit` and `limits` exclude each other: remove one"),
            };
            Ok(Target::Limits { key: key.into_iter().map(|piece| piece.0).collect(), limits })
        }
        (None, (Some(_), ..)) => invalid("`values` are of a rule: write them into `key`"),
        (None, (None, None, None)) => invalid("`rule` must be set: the name of a rule"),
        (None, (None, ..)) => invalid("`key` must be set beside limits of the call's own"),
        (Some(_), _) => invalid("`rule` excludes `key`, `limit` and `limits`: remove them, or the rule"),
    }
}

impl EnterBody<'_> {
    /// Returns whether it has fields of a call, which a renewal does not have.
    pub(crate) fn has_call(&self) -> bool {
        let of_target = self.rule.is_some() || self.values.is_some() || self.plan.is_some() || self.key.is_some();
        let of_limits = self.limit.is_some() || self.limits.is_some();
        of_target || of_limits || self.cost.is_some() || self.wait_ms.is_some() || self.receipt.is_some()
    }
}

/// A text, borrowed if it has no escapes.
#[derive(Debug)]
pub(crate) struct Text<'b>(pub(crate) Cow<'b, str>);

impl<'de: 'b, 'b> Deserialize<'de> for Text<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

/// The values of the parts of a key, by their names.
#[derive(Debug, Default)]
pub(crate) struct NamedValues<'b>(Vec<(Cow<'b, str>, Value<'b>)>);

impl<'de: 'b, 'b> Deserialize<'de> for NamedValues<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ValuesVisitor)
    }
}

struct ValuesVisitor;

impl<'de> Visitor<'de> for ValuesVisitor {
    type Value = NamedValues<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a value for each part of the key")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<NamedValues<'de>, M::Error> {
        let mut values = Vec::new();
        while let Some((name, value)) = map.next_entry::<Text<'de>, PartValue<'de>>()? {
            values.push((name.0, value.0));
        }
        Ok(NamedValues(values))
    }
}

struct PartValue<'b>(Value<'b>);

impl<'de: 'b, 'b> Deserialize<'de> for PartValue<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(PartValue)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number or a boolean")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Value<'de>, E> {
        Ok(Value::Unsigned(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Value<'de>, E> {
        Ok(Value::Signed(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Value<'de>, E> {
        // Above it two numbers may be one float, and so one key.
        const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
        if number.abs() > MAX_EXACT {
            return Err(E::custom("a number of more digits than can be kept: write it as a text"));
        }
        Ok(Value::Float(number))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value<'de>, E> {
        Ok(Value::Bool(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(), HttpProblem> {
        parse::<CheckBody<'_>>(text.as_bytes())?.take_call().map(drop)
    }

    /// Two customers would share a key.
    #[test]
    fn a_number_that_would_lose_digits_is_refused() {
        let with = |number: &str| parsed(&format!(r#"{{"rule":"a","values":{{"id":{number}}}}}"#));
        for number in ["1", "-1.5", "18446744073709551615", "-9223372036854775808", "1e2"] {
            assert!(with(number).is_ok(), "{number}");
        }
        for number in ["12345678901234567890123", "18446744073709551616", "1e300", "-9223372036854775809"] {
            assert!(with(number).is_err(), "{number}");
        }
    }

    #[test]
    fn a_body_without_escapes_is_not_copied() {
        let text = br#"{"rule":"search","values":{"user_id":"42","n":7}}"#;
        let mut body: CheckBody<'_> = parse(text).expect("a body");
        let Ok((Target::Rule { name: Cow::Borrowed("search"), values: Values::Named(values) }, _)) = body.take_call()
        else {
            panic!("borrowed: {body:?}");
        };
        assert!(matches!(
            &values[..],
            [(Cow::Borrowed("user_id"), Value::Text(Cow::Borrowed("42"))), (_, Value::Unsigned(7))]
        ));
        let mut escaped: CheckBody<'_> = parse(br#"{"rule":"s\u0065arch"}"#).expect("a body");
        assert!(
            matches!(escaped.take_call(), Ok((Target::Rule { name: Cow::Owned(name), .. }, _)) if name == "search")
        );
    }

    #[test]
    fn a_mistake_in_a_body_has_its_place() {
        let cases = [
            ("{\"rule\":\"a\",\n \"cots\":1}", 2, "unknown field `cots`"),
            ("{\"rule\":\"a\",\"cost\":-1}", 1, "invalid value: integer `-1`, expected u32"),
            ("{\"rule\":\"a\",\"cost\":4294967296}", 1, "invalid value: integer `4294967296`, expected u32"),
            ("{\"rule\":\"a\",\n\"values\":{\"b\":[]}}", 2, "expected a text, a number or a boolean"),
            ("{\"rule\":\"a\"", 1, "EOF while parsing"),
            ("[]", 1, "invalid"),
            ("{\"key\":[\"a\"],\"limit\":\"5/10x\"}", 1, "`limit`"),
            ("{\"rule\":\"a\",\"rule\":\"b\"}", 1, "duplicate field `rule`"),
        ];
        for (text, line, detail) in cases {
            let problem = parsed(text).expect_err(text);
            let shown = serde_json::to_string(&problem.into_body()).expect("a body");
            assert!(
                shown.contains(detail) && shown.contains(&format!("\"line\":{line},\"column\":")),
                "{text}: {shown}"
            );
        }
    }

    #[test]
    fn a_call_has_one_target() {
        for text in [
            "{}",
            r#"{"rule":"a","key":["b"]}"#,
            r#"{"rule":"a","limit":"5/10s"}"#,
            r#"{"key":["b"]}"#,
            r#"{"key":["b"],"limit":"5/10s","limits":["6/1h"]}"#,
            r#"{"key":["b"],"limit":"5/10s","values":{}}"#,
            r#"{"limit":"5/10s"}"#,
        ] {
            let problem = parsed(text).expect_err(text);
            assert_eq!(problem.status, StatusCode::BAD_REQUEST, "{text}");
        }
        for text in [
            r#"{"rule":"a"}"#,
            r#"{"key":["b","c"],"limit":"5/10s"}"#,
            r#"{"key":["b"],"limits":["5/10s",{"limit":"6/1h","algorithm":"token_bucket","burst":9}]}"#,
        ] {
            parsed(text).expect(text);
        }
    }
}

//! Header fields about quotas on the answers of a layer.

use std::fmt::{self, Write};
use std::sync::OnceLock;

use http::{HeaderMap, HeaderName, HeaderValue};
use limiter_core::http::Fields;
use limiter_core::service::write_fields;
use limiter_core::{Decision, Limit};

/// The name of the field whose value stays the same from answer to answer.
const POLICY: &str = "ratelimit-policy";

/// The writer of the fields of one layer.
#[derive(Debug)]
pub(crate) struct FieldWriter {
    fields: Fields,
    limit: Limit,
    /// The value of the policy's field for this limit, from the first answer on.
    policy: OnceLock<HeaderValue>,
}

/// The fields of one answer.
#[derive(Debug, Default)]
pub(crate) struct QuotaFields([Option<(&'static str, HeaderValue)>; 4]);

impl FieldWriter {
    /// Creates the writer of a layer with this limit.
    pub(crate) fn new(fields: Fields, limit: Limit) -> Self {
        Self { fields, limit, policy: OnceLock::new() }
    }

    /// Returns whether the fields describe each of several limits.
    pub(crate) fn describe_each(&self) -> bool {
        self.fields == Fields::Draft11
    }

    /// Returns the fields of the answer to a decision.
    pub(crate) fn fields_of(&self, decision: &Decision) -> QuotaFields {
        let mut all = QuotaFields::default();
        let (mut places, is_lone) = (all.0.iter_mut(), decision.limits().nth(1).is_none());
        write_fields(decision, self.fields, |name, text| {
            let new = || FieldText::of(text).to_value();
            let is_cached = name == POLICY && is_lone && decision.limit() == self.limit;
            let value = match self.policy.get().filter(|_| is_cached) {
                Some(value) => Some(value.clone()),
                None if is_cached => new().map(|value| self.policy.get_or_init(|| value).clone()),
                None => new(),
            };
            if let (Some(place), Some(value)) = (places.next(), value) {
                *place = Some((name, value));
            }
        });
        all
    }
}

impl QuotaFields {
    /// Adds the fields to those of an answer.
    ///
    /// The lists of the draft get one more member: several layers may limit a request. Of other fields the first value
    /// stays, that of the innermost layer or of the service.
    pub(crate) fn add_to(self, headers: &mut HeaderMap) {
        for (name, value) in self.0.into_iter().flatten() {
            let is_list = name.starts_with("ratelimit");
            let name = HeaderName::from_static(name);
            if is_list {
                headers.append(name, value);
            } else {
                headers.entry(name).or_insert(value);
            }
        }
    }
}

/// The text of a field, on the stack unless it is long: a value is then one allocation.
pub(crate) struct FieldText {
    short: [u8; 96],
    len: usize,
    long: String,
}

impl FieldText {
    pub(crate) fn of(text: fmt::Arguments<'_>) -> Self {
        let mut field = Self { short: [0; 96], len: 0, long: String::new() };
        let _ = field.write_fmt(text);
        field
    }

    pub(crate) fn to_value(&self) -> Option<HeaderValue> {
        let text = if self.long.is_empty() { self.short.get(..self.len)? } else { self.long.as_bytes() };
        HeaderValue::from_bytes(text).ok()
    }
}

impl Write for FieldText {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let end = self.len + piece.len();
        match self.short.get_mut(self.len..end) {
            Some(place) if self.long.is_empty() => {
                place.copy_from_slice(piece.as_bytes());
                self.len = end;
            }
            _ => {
                if self.long.is_empty() {
                    self.long.push_str(&String::from_utf8_lossy(self.short.get(..self.len).unwrap_or_default()));
                }
                self.long.push_str(piece);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_any_length_is_a_value() {
        for len in [0, 1, 95, 96, 97, 1_000] {
            let (head, tail) = ("a".repeat(len / 2), "b".repeat(len - len / 2));
            let value = FieldText::of(format_args!("{head}{tail}")).to_value().expect("ASCII");
            assert_eq!(value, format!("{head}{tail}"), "{len}");
        }
        assert!(FieldText::of(format_args!("a\nb")).to_value().is_none());
    }
}

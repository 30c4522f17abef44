//! The bodies of a purchase: the order and its answer, as the service and its clients know them.

use serde::{Deserialize, Serialize};

use crate::medals::Grade;

/// The most characters of an id.
pub(crate) const MAX_ID_CHARS: usize = 64;

/// The most characters of a club's name.
const MAX_CLUB_CHARS: usize = 32;

/// The body of a request to buy.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Order {
    pub(crate) buyer: String,
    pub(crate) club: String,
    /// An id that the client gives the request. A client without an answer sends the request again with the same id,
    /// and learns whether it has bought the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<String>,
}

/// The body of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(crate) enum Answer {
    Bought {
        grade: Grade,
        number: u32,
    },
    /// The buyer has this item: by the same request, or by another one.
    BoughtAlready {
        grade: Grade,
        number: u32,
        same_request: bool,
    },
    SoldOut,
    NotOpen {
        opens_in_ms: u64,
    },
    UnknownSale,
    /// A limit denied the call.
    Degraded {
        retry_after_ms: u64,
    },
    /// Redis is away. The call is not admitted, or its outcome is unknown.
    Unavailable {
        is_outcome_known: bool,
    },
    BadRequest {
        message: String,
    },
}

impl Order {
    /// Parses and checks a body.
    ///
    /// # Errors
    /// The mistake in one line, without the body's own text.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, String> {
        let order: Self = serde_json::from_slice(body).map_err(|error| {
            let column = error.column();
            format!("the body must be JSON such as {{\"buyer\":\"b17\",\"club\":\"Lisbon\"}}: see column {column}")
        })?;
        check_id("buyer", &order.buyer)?;
        if let Some(request) = &order.request {
            check_id("request", request)?;
        }
        let is_of_name = |letter: char| letter.is_alphanumeric() || " -.'".contains(letter);
        if !is_short(&order.club, MAX_CLUB_CHARS) || !order.club.chars().all(is_of_name) {
            return Err(format!("`club` must be 1 to {MAX_CLUB_CHARS} letters, digits, spaces, `-`, `.` or `'`"));
        }
        Ok(order)
    }
}

/// Checks an id. It becomes a part of keys and values in Redis, so it is short and plain.
///
/// # Errors
/// The mistake in one line, without the id.
pub(crate) fn check_id(name: &str, id: &str) -> Result<(), String> {
    let is_of_id = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    if is_short(id, MAX_ID_CHARS) && id.chars().all(is_of_id) {
        return Ok(());
    }
    Err(format!("`{name}` must be 1 to {MAX_ID_CHARS} letters, digits, `-` or `_`"))
}

fn is_short(text: &str, max_chars: usize) -> bool {
    !text.is_empty() && text.chars().count() <= max_chars
}

#[cfg(test)]
mod tests {
    use super::Order;

    #[test]
    fn orders_with_bad_values_are_refused() {
        let order = |buyer: &str, club: &str| {
            Order::parse(serde_json::json!({ "buyer": buyer, "club": club }).to_string().as_bytes())
        };
        let (id, club) = ("b".repeat(64), "ö".repeat(32));
        assert!(order(&id, &club).is_ok());
        let bad = [("", "Lisbon"), ("b 1", "Lisbon"), ("b\n", "Lisbon"), ("é", "Lisbon"), ("b1", ""), ("b1", "<b>")];
        let long = [(id + "b", "Lisbon".to_owned()), ("b1".to_owned(), club + "ö")];
        let bad = bad.map(|(buyer, club)| (buyer.to_owned(), club.to_owned()));
        for (buyer, club) in bad.into_iter().chain(long) {
            let message = order(&buyer, &club).expect_err(&format!("{buyer:?} {club:?}"));
            assert!(message.contains("must be 1 to "), "{message}");
        }
    }

    #[test]
    fn bodies_that_are_no_orders_are_refused() {
        for body in ["", "{", "[]", "null", r#"{"buyer":"b1"}"#, r#"{"buyer":1,"club":"Lisbon"}"#, "\u{0}"] {
            let message = Order::parse(body.as_bytes()).expect_err(body);
            assert!(message.starts_with("the body must be JSON such as ") && !message.contains('\n'), "{message}");
        }
        assert!(Order::parse(b"\xff").is_err());
    }
}

//! The token of a request, and the rights that a route needs.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use subtle::ConstantTimeEq;

use super::problem::HttpProblem;
use crate::error::Error;

/// The fewest bytes of a token.
const MIN_TOKEN_BYTES: usize = 16;

/// The token of a server.
#[derive(Clone, Default)]
pub(crate) struct Access {
    token: Option<Vec<u8>>,
}

/// The rights that a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// None.
    Anyone,
    /// The token, if the server has one.
    Caller,
    /// The token.
    Operator,
}

impl Access {
    /// Creates the access by a token.
    ///
    /// # Errors
    /// It is short enough to be guessed, or no text that a header can carry.
    pub(crate) fn with_token(token: &[u8]) -> Result<Self, Error> {
        if token.len() < MIN_TOKEN_BYTES {
            let given = token.len();
            return Err(Error::new(format!(
                "`token` must have at least {MIN_TOKEN_BYTES} bytes, got {given}: write a longer one"
            )));
        }
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err(Error::new(
                "`token` must have visible ASCII letters alone, got another byte: write one such as `openssl rand -hex 32` has",
            ));
        }
        Ok(Self { token: Some(token.to_vec()) })
    }

    /// Returns whether a token is set.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Compares a text with the token, in a time that depends on the lengths alone. `false` without a token.
    pub(crate) fn is_token(&self, sent: &[u8]) -> bool {
        self.token.as_ref().is_some_and(|token| bool::from(sent.ct_eq(token)))
    }

    /// Checks the rights of a request.
    ///
    /// # Errors
    /// It has not those that its route needs.
    pub(crate) fn check(&self, needed: Right, headers: &HeaderMap) -> Result<(), HttpProblem> {
        match (needed, self.has_token()) {
            (Right::Anyone, _) | (Right::Caller, false) => return Ok(()),
            (Right::Operator, false) => {
                let problem = HttpProblem::new(
                    axum::http::StatusCode::FORBIDDEN,
                    "no-token-set",
                    "The server has no token",
                    "this route is for callers with the token of the server, which has none",
                );
                return Err(problem.suggest("start the server with `--token-file`"));
            }
            (Right::Caller | Right::Operator, true) => {}
        }
        let mut sent = headers.get_all(AUTHORIZATION).iter();
        let Some(first) = sent.next() else {
            return Err(
                HttpProblem::of_token("the request has no token").suggest("send `authorization: Bearer <token>`")
            );
        };
        let is_right = sent.next().is_none() && bearer(first.as_bytes()).is_some_and(|token| self.is_token(token));
        if is_right { Ok(()) } else { Err(HttpProblem::of_token("the token of the request is wrong")) }
    }
}

/// Does not contain the token.
impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("has_token", &self.has_token()).finish()
    }
}

/// Returns the token of a value of the scheme `Bearer`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, value.parse().expect("a value"))).collect()
    }

    #[test]
    fn the_token_is_the_whole_value_of_one_header() {
        let access = Access::with_token(b"0123456789abcdef").expect("long enough");
        let is_permitted = |right, values: &[&str]| access.check(right, &headers(values)).is_ok();
        for right in [Right::Caller, Right::Operator] {
            assert!(is_permitted(right, &["Bearer 0123456789abcdef"]));
            assert!(is_permitted(right, &["bearer 0123456789abcdef"]));
            for wrong in [
                "",
                "Bearer",
                "Bearer ",
                "Bearer 0123456789abcde",
                "Bearer 0123456789abcdef0",
                "Basic 0123456789abcdef",
            ] {
                assert!(!is_permitted(right, &[wrong]), "{wrong}");
            }
            assert!(!is_permitted(right, &[]));
            assert!(!is_permitted(right, &["Bearer 0123456789abcdef"; 2]));
        }
        assert!(is_permitted(Right::Anyone, &[]));
        assert!(!format!("{access:?}").contains("0123"));
    }

    #[test]
    fn without_a_token_callers_need_none_and_operators_have_no_rights() {
        let access = Access::default();
        assert!(access.check(Right::Caller, &headers(&[])).is_ok());
        let problem = access.check(Right::Operator, &headers(&["Bearer "])).expect_err("no token");
        assert_eq!(problem.status.as_u16(), 403);
        for wrong in [&b"0123456789abcde"[..], b"0123456789 abcdef", b"0123456789abcdef\n"] {
            assert!(Access::with_token(wrong).is_err());
        }
    }
}

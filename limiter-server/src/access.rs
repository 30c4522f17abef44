//! The token of a server, and the field in which clients of HTTP and gRPC send it.

use std::fmt;

use hyper::header::{AUTHORIZATION, HeaderMap};
use subtle::ConstantTimeEq;

use crate::error::Error;

/// The fewest bytes of a token.
const MIN_TOKEN_BYTES: usize = 16;

/// The token of a server.
#[derive(Clone, Default)]
pub(crate) struct Access {
    token: Option<Vec<u8>>,
}

/// The reason why a request has not the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenFault {
    Missing,
    Wrong,
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

    /// Checks the `authorization` of a request. Without a token of the server each is right.
    ///
    /// # Errors
    /// It is not the token, or there is not one field of it.
    pub(crate) fn check_bearer(&self, headers: &HeaderMap) -> Result<(), TokenFault> {
        if !self.has_token() {
            return Ok(());
        }
        let mut sent = headers.get_all(AUTHORIZATION).iter();
        let first = sent.next().ok_or(TokenFault::Missing)?;
        let is_right = sent.next().is_none() && bearer(first.as_bytes()).is_some_and(|token| self.is_token(token));
        if is_right { Ok(()) } else { Err(TokenFault::Wrong) }
    }
}

/// Does not contain the token.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        let checked = |values: &[&str]| access.check_bearer(&headers(values));
        assert_eq!(checked(&["Bearer 0123456789abcdef"]), Ok(()));
        assert_eq!(checked(&["bearer 0123456789abcdef"]), Ok(()));
        for wrong in
            ["", "Bearer", "Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "Basic 0123456789abcdef"]
        {
            assert_eq!(checked(&[wrong]), Err(TokenFault::Wrong), "{wrong}");
        }
        assert_eq!(checked(&[]), Err(TokenFault::Missing));
        assert_eq!(checked(&["Bearer 0123456789abcdef"; 2]), Err(TokenFault::Wrong));
        assert!(!format!("{access:?}").contains("0123"));
    }

    #[test]
    fn without_a_token_each_request_is_right_and_a_short_token_is_refused() {
        assert_eq!(Access::default().check_bearer(&headers(&[])), Ok(()));
        assert!(!Access::default().is_token(b""));
        for wrong in [&b"0123456789abcde"[..], b"0123456789 abcdef", b"0123456789abcdef\n"] {
            assert!(Access::with_token(wrong).is_err());
        }
    }
}

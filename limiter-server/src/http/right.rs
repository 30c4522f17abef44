//! The rights that a route needs.

use axum::http::{HeaderMap, StatusCode};

use super::problem::HttpProblem;
use crate::access::{Access, TokenFault};

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

impl Right {
    /// Checks that a request has the right.
    ///
    /// # Errors
    /// It has not the token, or the server has none and the route needs one.
    pub(super) fn check(self, access: &Access, headers: &HeaderMap) -> Result<(), HttpProblem> {
        match self {
            Self::Anyone => return Ok(()),
            Self::Operator if !access.has_token() => {
                let problem = HttpProblem::new(
                    StatusCode::FORBIDDEN,
                    "no-token-set",
                    "The server has no token",
                    "this route is for callers with the token of the server, which has none",
                );
                return Err(problem.suggest("start the server with `--token-file`"));
            }
            Self::Caller | Self::Operator => {}
        }
        access.check_bearer(headers).map_err(|fault| match fault {
            TokenFault::Missing => {
                HttpProblem::of_token("the request has no token").suggest("send `authorization: Bearer <token>`")
            }
            TokenFault::Wrong => HttpProblem::of_token("the token of the request is wrong"),
        })
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header::AUTHORIZATION;

    use super::*;

    #[test]
    fn each_right_has_its_callers() {
        let (with_token, without) = (Access::with_token(b"0123456789abcdef").expect("long enough"), Access::default());
        let sent = |value: &str| HeaderMap::from_iter([(AUTHORIZATION, value.parse().expect("a value"))]);
        let (right, wrong) = (sent("Bearer 0123456789abcdef"), sent("Bearer 0"));
        let status = |needed: Right, access: &Access, headers: &HeaderMap| {
            needed.check(access, headers).map_or_else(|problem| problem.status.as_u16(), |()| 200)
        };
        for (needed, statuses) in
            [(Right::Anyone, [200, 200, 200]), (Right::Caller, [200, 401, 200]), (Right::Operator, [200, 401, 403])]
        {
            let found = [(&with_token, &right), (&with_token, &wrong), (&without, &wrong)];
            assert_eq!(found.map(|(access, headers)| status(needed, access, headers)), statuses, "{needed:?}");
        }
    }
}

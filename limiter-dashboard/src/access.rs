//! The token of a request, and the wrong ones of each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use subtle::ConstantTimeEq;

/// The fewest bytes of a token.
pub(crate) const MIN_TOKEN_BYTES: usize = 16;
/// The most wrong tokens of an address in a window. Further ones are not compared.
const MAX_WRONG: usize = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// The most addresses with wrong tokens. Above it all others count as one.
const MAX_ADDRESSES: usize = 4096;

/// The token, and the times of wrong ones.
pub(crate) struct Access {
    token: Option<String>,
    wrong: Mutex<HashMap<Option<IpAddr>, Vec<Instant>>>,
}

/// The rights of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// It has no token: rates and counts.
    Anyone,
    /// It has the token.
    Trusted,
}

/// The reason why a request with a token is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    WrongToken,
    TooManyWrong { retry_after: Duration },
}

impl Access {
    pub(crate) fn new(token: Option<String>) -> Self {
        Self { token, wrong: Mutex::default() }
    }

    /// Returns whether there is a token that can be entered.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Returns the rights of a request from an address. `None` is an address that is not known.
    pub(crate) fn caller(&self, headers: &HeaderMap, address: Option<IpAddr>, now: Instant) -> Result<Caller, Refusal> {
        // Another scheme is that of a proxy in front of the page.
        let mut sent = headers.get_all(AUTHORIZATION).iter().filter_map(|value| bearer(value.as_bytes()));
        let Some(first) = sent.next() else { return Ok(Caller::Anyone) };
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        let address = address.map(client).filter(|address| {
            make_room(&mut wrong, now);
            wrong.len() < MAX_ADDRESSES || wrong.contains_key(&Some(*address))
        });
        let times = wrong.entry(address).or_default();
        times.retain(|time| now.duration_since(*time) < WINDOW);
        if times.len() >= MAX_WRONG {
            return Err(Refusal::TooManyWrong { retry_after: WINDOW.saturating_sub(now.duration_since(times[0])) });
        }
        if sent.next().is_none() && self.is_token(first) {
            if times.is_empty() {
                wrong.remove(&address);
            }
            return Ok(Caller::Trusted);
        }
        times.push(now);
        Err(Refusal::WrongToken)
    }

    /// Compares in a time that depends on the lengths alone.
    fn is_token(&self, sent: &[u8]) -> bool {
        self.token.as_ref().is_some_and(|token| bool::from(sent.ct_eq(token.as_bytes())))
    }
}

/// Returns the token of a value of the scheme `Bearer`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

/// Returns the address that counts: of IPv6 the network of a client, which has all of it.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & (u128::MAX << 64)).into()),
        address => address,
    }
}

fn make_room(wrong: &mut HashMap<Option<IpAddr>, Vec<Instant>>, now: Instant) {
    if wrong.len() >= MAX_ADDRESSES {
        wrong.retain(|_, times| times.last().is_some_and(|time| now.duration_since(*time) < WINDOW));
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, value.parse().expect("a value"))).collect()
    }

    #[test]
    fn the_token_is_the_whole_value_of_one_header() {
        let access = Access::new(Some(TOKEN.to_owned()));
        let caller = |values: &[&str]| access.caller(&headers(values), None, Instant::now());
        assert_eq!(caller(&[]), Ok(Caller::Anyone));
        for right in ["Bearer 0123456789abcdef", "bearer 0123456789abcdef"] {
            assert_eq!(caller(&[right]), Ok(Caller::Trusted));
        }
        for other in ["", "Bearer", "Basic 0123456789abcdef"] {
            assert_eq!(caller(&[other]), Ok(Caller::Anyone), "{other}");
        }
        for wrong in ["Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "Bearer  0123456789abcdef"] {
            assert_eq!(caller(&[wrong]), Err(Refusal::WrongToken), "{wrong}");
        }
        assert_eq!(caller(&["Bearer 0123456789abcdef"; 2]), Err(Refusal::WrongToken));
        let none = Access::new(None);
        assert_eq!(none.caller(&headers(&["Bearer "]), None, Instant::now()), Err(Refusal::WrongToken));
    }

    #[test]
    fn ten_wrong_tokens_of_an_address_refuse_all_of_it_for_a_minute() {
        let access = Access::new(Some(TOKEN.to_owned()));
        let (right, wrong) = (headers(&["Bearer 0123456789abcdef"]), headers(&["Bearer 0123456789abcdeg"]));
        let address = |last: u16| Some(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)));
        let start = Instant::now();
        for number in 0..10 {
            assert_eq!(access.caller(&wrong, address(number), start), Err(Refusal::WrongToken));
        }
        let retry_after = Duration::from_secs(50);
        let later = start + Duration::from_secs(10);
        assert_eq!(access.caller(&right, address(99), later), Err(Refusal::TooManyWrong { retry_after }));
        assert_eq!(access.caller(&HeaderMap::new(), address(99), later), Ok(Caller::Anyone));
        let other = Some("192.0.2.1".parse().expect("an address"));
        assert_eq!(access.caller(&right, other, later), Ok(Caller::Trusted));
        assert_eq!(access.caller(&right, address(99), start + WINDOW), Ok(Caller::Trusted));
    }

    #[test]
    fn the_memory_for_addresses_has_a_bound() {
        let access = Access::new(Some(TOKEN.to_owned()));
        let (wrong, start) = (headers(&["Bearer x"]), Instant::now());
        for number in 0..2 * u32::try_from(MAX_ADDRESSES).expect("few") {
            let _ = access.caller(&wrong, Some(IpAddr::V4(number.into())), start);
        }
        assert!(access.wrong.lock().expect("no panic").len() <= MAX_ADDRESSES + 1);
        let later = start + WINDOW;
        assert_eq!(access.caller(&wrong, Some(IpAddr::V4(1.into())), later), Err(Refusal::WrongToken));
        assert_eq!(access.wrong.lock().expect("no panic").len(), 1);
    }
}

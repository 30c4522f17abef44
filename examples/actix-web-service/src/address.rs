//! The middleware that limits the requests of each address.

use std::net::{IpAddr, Ipv6Addr};

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, web};
use rate_limited::http::{self, Fields};
use rate_limited::{Key, Limit, Limiter, OnError};

use crate::rejection::Rejection;

/// Rejects requests beyond the limit of their peer's address, and adds the fields of the limit to all other answers.
///
/// Behind a proxy the peer is the proxy. A service there counts the entry of `X-Forwarded-For` that its proxy wrote, and
/// not one that a client can choose: see "Addresses of clients" in docs/http.md.
pub(crate) async fn limit_address(
    limit: web::Data<Limit>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    // A peer without an address, as of a Unix socket, is one key.
    let peer = request.peer_addr().map_or_else(|| "none".to_owned(), |peer| network(peer.ip()).to_string());
    let (limiter, key) = (Limiter::current(), Key::new("address:").part(peer));
    let decision = match limiter.named("address").on_error(OnError::Open).check(&key, &limit).await {
        Ok(decision) => decision,
        Err(error) => return Ok(request.error_response(Rejection::from(error))),
    };
    let fields = http::fields(&decision, Fields::Draft11);
    if let Err(denied) = decision.into_result() {
        return Ok(request.error_response(Rejection::from(denied)));
    }
    let mut response = next.call(request).await?.map_into_boxed_body();
    // The handler may have fields of its own limit: each is a list.
    for (name, value) in fields {
        response.headers_mut().append(HeaderName::from_static(name), HeaderValue::try_from(value)?);
    }
    Ok(response)
}

/// Returns the address that a client counts by. A client of IPv6 has a network of 2^64 addresses: it counts by the
/// first one of its /64. A server of both protocols sees IPv4 clients as `::ffff:192.0.2.1`: these count as IPv4.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::network;

    #[test]
    fn addresses_of_ipv6_count_by_their_64_and_those_of_ipv4_by_themselves() {
        for (address, expected) in [
            ("2001:db8:1:2::7", "2001:db8:1:2::"),
            ("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::"),
            ("2001:db8:1:3::7", "2001:db8:1:3::"),
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.2", "192.0.2.2"),
        ] {
            assert_eq!(network(address.parse().expect("an address")).to_string(), expected, "{address}");
        }
    }
}

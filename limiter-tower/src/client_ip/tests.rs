//! Tables of requests with their addresses, and properties of all requests.

mod trust;
mod lists;
mod forwarded_elements;
mod networks;
mod large;
mod oracle;
mod random_lines;
mod properties;

use std::net::SocketAddr;

use http::request::Parts;
use http::{HeaderName, HeaderValue, Request};

use super::ClientIp;
use crate::Peer;
use crate::missing::Lack;

/// A peer in the default networks.
const PROXY: &str = "10.0.0.7:443";
/// A peer outside of them.
const STRANGER: &str = "198.51.100.23:50000";

fn peer(address: &str) -> Peer {
    Peer::new(address.parse::<SocketAddr>().expect("an address and a port"))
}

/// Returns a request from this peer with these lines of a header.
fn request(peer: Option<Peer>, header: &'static str, lines: &[impl AsRef<[u8]>]) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    if let Some(peer) = peer {
        parts.extensions.insert(peer);
    }
    for line in lines {
        let value = HeaderValue::from_bytes(line.as_ref()).expect("bytes of a header");
        parts.headers.append(header, value);
    }
    parts
}

/// Returns the address or network as text, or `missing`.
fn found(by: &ClientIp, parts: &Parts) -> String {
    by.find(parts).map_or_else(|_| "missing".to_owned(), |address| address.to_string())
}

/// Returns the result for a request from the proxy.
fn found_in(by: &ClientIp, header: &'static str, lines: &[impl AsRef<[u8]>]) -> String {
    found(by, &request(Some(peer(PROXY)), header, lines))
}

#[test]
fn a_missing_address_has_its_reason() {
    let (list, forwarded) = (ClientIp::x_forwarded_for(2), ClientIp::forwarded(2));
    let one = ClientIp::header("x-real-ip");
    let reason = |by: &ClientIp, header, lines: &[&str]| by.find(&request(Some(peer(PROXY)), header, lines)).err();
    let name = HeaderName::from_static;
    let too_few = |header, found| Lack::TooFewEntries { header: name(header), found, needed: 2 };
    for (by, header, lines, lack) in [
        (&list, "x-forwarded-for", &[][..], too_few("x-forwarded-for", 0)),
        (&list, "x-forwarded-for", &["192.0.2.1"], too_few("x-forwarded-for", 1)),
        (&list, "x-forwarded-for", &["unknown", "192.0.2.1"], Lack::NoAddress(name("x-forwarded-for"))),
        (&forwarded, "forwarded", &[], too_few("forwarded", 0)),
        (&forwarded, "forwarded", &["for=192.0.2.1"], too_few("forwarded", 1)),
        (&forwarded, "forwarded", &["for=192.0.2.1, for=\"192.0.2.2"], Lack::NoAddress(name("forwarded"))),
        (&one, "x-real-ip", &[], Lack::NoHeader(name("x-real-ip"))),
        (&one, "x-real-ip", &["192.0.2.1", "192.0.2.1"], Lack::SeveralLines(name("x-real-ip"))),
        (&one, "x-real-ip", &["a"], Lack::NoAddress(name("x-real-ip"))),
    ] {
        assert!(lack.to_string().contains(&format!("`{header}`")), "{lack}");
        assert_eq!(reason(by, header, lines), Some(lack), "{by:?} {lines:?}");
    }
    let unknown = request(None, "x-forwarded-for", &["192.0.2.1, 192.0.2.2"]);
    assert_eq!(list.find(&unknown).err(), Some(Lack::NoPeer));
}

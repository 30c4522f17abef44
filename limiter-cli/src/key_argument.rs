//! Keys on the command line.

use std::iter;
use std::net::IpAddr;

use limiter_inspect::{texts_and_parts, without_escapes};
use rate_limited::Key;

use crate::arguments::KeyArguments;
use crate::client_network::{IPV6_CLIENT_PREFIX, network};
use crate::failure::Failure;
use crate::output::visible;

impl KeyArguments {
    /// Returns the key: the encoded text, then the values.
    pub(crate) fn read(&self) -> Result<Key, Failure> {
        let Self { key, part } = self;
        let encoded = Key::from_encoded(key).map_err(|_| self.wrong_key())?;
        Ok(part.iter().fold(encoded, Key::part))
    }

    fn wrong_key(&self) -> Failure {
        let remedy = match (&*self.key, address_advice(&self.key)) {
            ("", _) => "write `+` for the key of an empty text".to_owned(),
            (_, Some(advice)) => advice,
            (key, None) => format!("write `{}` for this text, and values with `--part`", Key::new(key).encoded()),
        };
        Failure::usage(format!("`KEY` must be encoded as in Redis, such as `user:@42`, got another text: {remedy}"))
    }
}

/// Returns the texts and parts of a key as they were read, such as ``the text `user:` and the part `42` ``. `None` for a
/// key with a digest.
pub(crate) fn pieces(key: &Key) -> Option<String> {
    let piece = |(index, piece): (usize, &String)| match (index % 2, &**piece) {
        (0, "") => None,
        (0, text) => Some(format!("the text `{}`", visible(text))),
        (_, part) => Some(format!("the part `{}`", visible(part))),
    };
    let pieces: Vec<_> = texts_and_parts(key)?.iter().enumerate().filter_map(piece).collect();
    let (last, others) = pieces.split_last()?;
    Some(if others.is_empty() { last.clone() } else { format!("{} and {last}", others.join(", ")) })
}

/// The longest key that is searched for an address, in bytes.
const MAX_ADVISED_LEN: usize = 1024;

/// Returns the ways to write a key that ends with an IP address or a network. `None` for another end, and for an address
/// that is a part already, as a layer for services writes it.
///
/// `key` may be a wrong encoding, such as `api:ip:@2001:db8::1`: a part has its colons as escapes.
pub(crate) fn address_advice(key: &str) -> Option<String> {
    if key.len() > MAX_ADVISED_LEN {
        return None;
    }
    let starts = iter::once(0).chain(key.match_indices([':', '@']).map(|(at, _)| at + 1));
    let (start, values) =
        starts.filter_map(|start| Some((start, client_values(&without_escapes(&key[start..]))?))).next()?;
    let before = &key[..start];
    let is_part = before.matches('@').count() % 2 == 1 && Key::from_encoded(key).is_ok();
    let read = is_part.then(|| without_escapes(&key[start..]));
    let text = match before.strip_suffix('@').unwrap_or(before) {
        "" => "+",
        text => Key::from_encoded(text).is_ok().then_some(text)?,
    };
    let way = |value: &String| format!("`{text} --part {value}`");
    let ways: Vec<_> = values.iter().filter(|value| Some(*value) != read.as_ref()).map(way).collect();
    match &ways[..] {
        [] => None,
        [way] if values.len() == 1 => Some(format!("write {way}")),
        [of_layer, others @ ..] => {
            let others: String = others.iter().map(|way| format!(", or {way} for this address alone")).collect();
            Some(format!("write {of_layer}, by which a layer counts IPv6 clients{others}"))
        }
    }
}

/// Returns the values by which a service may count a client with this address, that of a layer first. `None` for a text
/// that is no address and no network.
fn client_values(text: &str) -> Option<Vec<String>> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix.parse().ok()?)),
        None => (text, None),
    };
    let address = address.parse::<IpAddr>().ok()?.to_canonical();
    match (address, prefix) {
        (address, None) if address.is_ipv4() => Some(vec![address.to_string()]),
        (IpAddr::V6(_), None) => Some(vec![network(address, IPV6_CLIENT_PREFIX), address.to_string()]),
        (IpAddr::V6(_), Some(prefix @ 0..=127)) => Some(vec![network(address, prefix)]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_shown_as_its_texts_and_parts() {
        let shown = |key: &str| pieces(&Key::from_encoded(key).expect("an encoding"));
        assert_eq!(shown("getId").as_deref(), Some("the text `getId`"));
        assert_eq!(shown("user:ann@acme.com").as_deref(), Some("the text `user:ann` and the part `acme.com`"));
        let shown_parts = "the part `acme`, the text `/` and the part `a b@ü\\u{1b}`";
        assert_eq!(pieces(&Key::new("").part("acme").text("/").part("a b@ü\u{1b}")).as_deref(), Some(shown_parts));
        assert_eq!(shown("a@").as_deref(), Some("the text `a` and the part ``"));
        assert_eq!((shown("+"), pieces(&Key::new("a".repeat(300)))), (None, None));
    }

    #[test]
    fn an_address_is_advised_as_the_part_that_a_service_writes() {
        let both = |text: &str| {
            format!(
                "write `{text} --part 2001:db8::/64`, by which a layer counts IPv6 clients, or `{text} --part \
                 2001:db8::1` for this address alone"
            )
        };
        let network = "write `api:ip: --part 2001:db8::/64`";
        for (key, advice) in [
            ("ip:2001:db8::1", Some(both("ip:"))),
            ("api:ip:@2001:db8::1", Some(both("api:ip:"))),
            ("api:ip@2001:DB8::1", Some(both("api:ip"))),
            ("@acme@:ip:2001:db8::1", Some(both("@acme@:ip:"))),
            ("2001:db8::1", Some(both("+"))),
            ("api:ip:@2001%3Adb8%3A%3A1", Some(format!("{network}, by which a layer counts IPv6 clients"))),
            ("api:ip:2001:db8::/64", Some(network.to_owned())),
            ("api:ip:@2001:db8::7/64", Some(network.to_owned())),
            ("api:ip:@2001%3Adb8%3A%3A7%2F64", Some(network.to_owned())),
            ("api:ip:@2001%3Adb8%3A%3A%2F64", None),
            ("api:ip:192.0.2.1", Some("write `api:ip: --part 192.0.2.1`".to_owned())),
            ("api:ip:@::ffff:192.0.2.1", Some("write `api:ip: --part 192.0.2.1`".to_owned())),
            ("api:ip:@192.0.2.1", None),
            ("api:ip:@2001:db8::/129", None),
            ("api ip:2001:db8::1", None),
            ("user:@42", None),
            ("", None),
        ] {
            assert_eq!(address_advice(key), advice, "{key}");
        }
        assert_eq!(client_values("2001:db8::7/0"), Some(vec!["::/0".to_owned()]));
    }
}

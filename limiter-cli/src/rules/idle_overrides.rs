//! Warnings about overrides that change nothing: no key has their value, or they have no settings.
//!
//! A limiter accepts them, since a key may have any text as a part, and a rule may get another override.

use std::net::IpAddr;

use toml_edit::{Document, Item, TableLike};

use crate::client_network::{self, IPV6_CLIENT_PREFIX, first_address};
use crate::output::visible;
use limiter_inspect::place_in_text;
use limiter_inspect::{OverrideKeys, overrides};

/// The most warnings about one text.
const MAX_WARNINGS: usize = 20;

/// Returns warnings about the overrides of a text, with their places.
pub(super) fn warnings(text: &str) -> Vec<String> {
    let Ok(document) = Document::parse(text) else { return Vec::new() };
    let rules = document.as_table().get("rules").and_then(Item::as_table_like);
    let of_rule = |(name, rule): (&str, &Item)| {
        let rule = rule.as_table_like()?;
        Some(of_overrides(name, rule, text))
    };
    rules.into_iter().flat_map(TableLike::iter).filter_map(of_rule).flatten().take(MAX_WARNINGS).collect()
}

/// Returns the warnings about a rule's overrides, at most as many as are shown.
fn of_overrides(name: &str, rule: &dyn TableLike, text: &str) -> Vec<String> {
    let stated = rule.get("key").and_then(Item::as_str);
    let all: Vec<_> = overrides(rule).into_iter().filter_map(|table| Some((table, OverrideKeys::of(table)?))).collect();
    let with_settings: Vec<_> = all.iter().filter(|(table, _)| has_settings(*table)).map(|(_, keys)| keys).collect();
    let warning = |(table, keys): &(&dyn TableLike, OverrideKeys)| {
        let of_value = match keys {
            OverrideKeys::Parts(parts) => {
                let values = parts.iter().flat_map(|(part, values)| values.iter().map(move |value| (part, value)));
                values.into_iter().find_map(|(part, value)| value_warning(name, stated, part, value))
            }
            OverrideKeys::Key(_) => None,
        };
        // It may except keys from an override of more keys.
        let is_idle = || !has_settings(*table) && !with_settings.iter().any(|other| is_before(keys, other));
        let warning = of_value.or_else(|| is_idle().then(|| empty_warning(name)))?;
        let at = table.get("match").or_else(|| table.get("key")).and_then(Item::span).map_or(0, |span| span.start);
        Some(format!("{}{warning}", place_in_text(text, at)))
    };
    all.iter().filter_map(warning).take(MAX_WARNINGS).collect()
}

fn has_settings(table: &dyn TableLike) -> bool {
    table.iter().any(|(name, _)| !["match", "key"].contains(&name))
}

/// Returns whether an override may come before another one of the same rule, for some key.
fn is_before(keys: &OverrideKeys, other: &OverrideKeys) -> bool {
    match (keys, other) {
        (_, OverrideKeys::Key(_)) => false,
        (OverrideKeys::Key(_), OverrideKeys::Parts(_)) => true,
        (OverrideKeys::Parts(parts), OverrideKeys::Parts(others)) => parts.iter().all(|(name, values)| {
            let is_of_many = |value: &String| value.contains(['/', '*']);
            let share = |others: &[String]| {
                values.iter().chain(others).any(is_of_many) || values.iter().any(|value| others.contains(value))
            };
            others.iter().find(|(other, _)| other == name).is_none_or(|(_, others)| share(others))
        }),
    }
}

fn empty_warning(name: &str) -> String {
    format!(
        "an override of `{}` has no settings, so it changes nothing: write one such as `mode = \"deny\"`, or remove it",
        visible(name)
    )
}

/// Returns the warning about a value of an override that probably no key of its rule has. `stated` is the rule's `key`.
pub(super) fn value_warning(name: &str, stated: Option<&str>, part: &str, value: &str) -> Option<String> {
    let (address, digits) = value.split_once('/').map_or((value, None), |(address, digits)| (address, Some(digits)));
    let address: IpAddr = address.parse().ok()?;
    let longest: u8 = if address.is_ipv4() { 32 } else { 128 };
    let prefix = digits.map_or(Some(longest), |digits| digits.parse().ok());
    let (name, shown, part) = (visible(name), visible(value), visible(part));
    let warning = |reason: &str, fix: &str| {
        Some(format!("`{name}` has an override by `{part}` with `{shown}`, {reason}: write {fix}"))
    };
    let Some(prefix) = prefix.filter(|prefix| *prefix <= longest) else {
        let fix = format!("a prefix of at most {longest} bits");
        return warning("which is no network and matches as a text alone", &fix);
    };
    let network = client_network::network(address, prefix);
    let is_whole =
        first_address(address, prefix) == address && digits.is_none_or(|digits| digits == prefix.to_string());
    if !is_whole {
        return warning("which is no network and matches as a text alone", &format!("`{network}`"));
    }
    let is_ipv6 = matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_none());
    if is_ipv6 && prefix > IPV6_CLIENT_PREFIX && is_of_layer(&name, stated, &part) {
        let network = format!("`{}`", client_network::network(address, IPV6_CLIENT_PREFIX));
        let reason = format!(
            "which matches no request of a layer: it counts IPv6 clients by networks of {IPV6_CLIENT_PREFIX} bits, \
             unless it sets others"
        );
        return warning(&reason, &network);
    }
    None
}

/// Returns whether a part is probably an address in the keys of a layer, such as `api:ip:{ip}`.
fn is_of_layer(name: &str, stated: Option<&str>, part: &str) -> bool {
    let is_address = part.strip_prefix("ip").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    let has_part = |key: &str| key.contains(&format!(":{part}:{{{part}}}"));
    is_address && stated.map_or(!name.contains('{'), has_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_no_key_has_draw_a_warning_with_what_to_write() {
        let layer = Some("api:ip:{ip}");
        let cases = [
            (None, "ip", "10.0.0.1/8", Some("`10.0.0.0/8`")),
            (layer, "ip", "203.0.113.9/24", Some("`203.0.113.0/24`")),
            (Some("{net}"), "net", "2001:db8::1/48", Some("`2001:db8::/48`")),
            (None, "ip", "10.0.0.0/33", Some("a prefix of at most 32 bits")),
            (None, "ip", "10.0.0.0/x", Some("a prefix of at most 32 bits")),
            (None, "ip", "10.0.0.0/08", Some("`10.0.0.0/8`")),
            (None, "ip", "2001:db8::9", Some("`2001:db8::/64`")),
            (layer, "ip", "2001:db8::/80", Some("`2001:db8::/64`")),
            // A function may have the whole address.
            (Some("login:{ip}"), "ip", "2001:db8::9", None),
            (None, "peer", "2001:db8::9", None),
            (layer, "ip", "2001:db8::/64", None),
            (layer, "ip", "::/0", None),
            (layer, "ip", "::ffff:203.0.113.9", None),
            (layer, "ip", "203.0.113.9", None),
            (layer, "ip", "203.0.113.0/24", None),
            (None, "path", "a/b", None),
            (None, "user", "42", None),
        ];
        for (stated, part, value, fix) in cases {
            let warning = value_warning("api", stated, part, value);
            let expected = fix.map(|fix| format!(": write {fix}"));
            assert_eq!(warning.is_some(), expected.is_some(), "{value}: {warning:?}");
            assert!(
                expected.is_none_or(|end| warning.as_ref().is_some_and(|text| text.ends_with(&end))),
                "{warning:?}"
            );
        }
    }

    #[test]
    fn an_override_without_settings_draws_a_warning_unless_it_excepts_keys_from_another_one() {
        let found = |overrides: &[&str]| {
            let tables = overrides.iter().map(|fields| format!("[[rules.a.override]]\n{fields}\n"));
            warnings(&tables.collect::<String>())
        };
        let expected = "line 2, column 9: an override of `a` has no settings, so it changes nothing: write one such as \
                        `mode = \"deny\"`, or remove it";
        let empty = "match = { ip = '10.0.0.5' }";
        assert_eq!(found(&[empty]), [expected]);
        assert_eq!(found(&[empty, "match = { ip = '10.0.0.6' }\nmode = 'deny'"]), [expected]);
        assert_eq!(found(&[empty, "key = 'a@10.0.0.5'\nmode = 'deny'"]), [expected]);
        assert_eq!(found(&[empty, "match = { ip = '10.0.0.0/8' }\nmode = 'deny'"]), [""; 0]);
        assert_eq!(found(&[empty, "match = { user = 7 }\nmode = 'deny'"]), [""; 0]);
        assert_eq!(found(&[empty, "match = { ip = ['10.0.0.4', '10.0.0.5'] }\nmode = 'deny'"]), [""; 0]);
        assert_eq!(found(&[empty, "match = { ip = '10.*' }\nmode = 'deny'"]), [""; 0]);
        assert_eq!(found(&[empty, "match = { ip = ['10.0.0.4', '10.0.0.6'] }\nmode = 'deny'"]), [expected]);
        let warned = found(&["match = { ip = ['10.0.0.0/8', '10.0.0.0/33'] }\nmode = 'deny'"]);
        assert!(warned.len() == 1 && warned[0].contains("with `10.0.0.0/33`, which is no network"), "{warned:?}");
        assert_eq!(found(&["key = 'a@10.0.0.5'", "match = { ip = '10.0.0.5' }\nmode = 'deny'"]), [""; 0]);
        let many: Vec<_> = (0..50).map(|ip| format!("match = {{ ip = '10.0.0.{ip}' }}")).collect();
        assert_eq!(found(&many.iter().map(String::as_str).collect::<Vec<_>>()).len(), MAX_WARNINGS);
    }
}

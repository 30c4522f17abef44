//! The override of each key is that of a naive search through all overrides.

use std::net::IpAddr;

use limiter_testkit::{Random, full_or};

use super::*;
use crate::key::KeyTemplate;
use crate::rule::KeyPattern;

fn index(template: Option<&str>, overrides: &[KeyMatch]) -> OverrideIndex {
    OverrideIndex::new(template, overrides).unwrap_or_else(|invalid| panic!("{invalid:?}"))
}

fn key(template: &str, values: &[&str]) -> Key {
    KeyTemplate::parse(template).expect("a template").key(values)
}

#[test]
fn the_override_with_the_most_parts_applies() {
    let template = "{a}/{b}{c}";
    let overrides = [
        KeyMatch::parts([("b", "2")]),
        KeyMatch::parts([("a", "1")]),
        KeyMatch::parts([("c", "3"), ("b", "2")]),
        KeyMatch::parts([("a", "1"), ("b", "2")]),
        KeyMatch::parts([("a", "1"), ("b", "2"), ("c", "3")]),
        KeyMatch::key(&Key::new("").part(7).text("/").part(2).part(3)),
        KeyMatch::key(&Key::new("other")),
        KeyMatch::parts([("a", "")]),
    ];
    let index = index(Some(template), &overrides);
    let cases = [
        (["1", "2", "3"], Some(4)),
        (["1", "2", "4"], Some(3)),
        (["7", "2", "3"], Some(5)),
        (["8", "2", "3"], Some(2)),
        (["8", "2", "4"], Some(0)),
        (["1", "9", "3"], Some(1)),
        (["", "9", "3"], Some(7)),
        (["", "", "3"], Some(7)),
        (["9", "", "2"], None),
        (["@1", "9", "3"], None),
    ];
    for (values, expected) in cases {
        assert_eq!(index.find(&key(template, &values)), expected, "{values:?}");
    }
    assert_eq!(index.find(&Key::new("other")), Some(6));
    let of_other_shapes = [
        Key::new(""),
        Key::new("1"),
        Key::new("").part(1),
        Key::new("").part(1).text("/").part(2),
        Key::new("").part(1).text(":").part(2).part(3),
        Key::new("").part(1).text("/").part(2).part(3).part(4),
        Key::new("").part(1).text("/").part(2).part(3).text("/"),
        Key::new("x").part(1).text("/").part(2).part(3),
    ];
    for key in of_other_shapes {
        assert_eq!(index.find(&key), None, "{}", key.encoded());
    }
}

/// Whatever the length of the other parts, and of the texts.
#[test]
fn a_longer_part_escapes_no_override_of_another_one() {
    for text in [":", &"text".repeat(100)] {
        let template = format!("user{text}{{user}}{text}{{tenant}}{{path}}");
        let long_user = "é".repeat(500);
        let overrides = [
            KeyMatch::parts([("user", "mallory")]),
            KeyMatch::parts([("user", &long_user)]),
            KeyMatch::parts([("tenant", "acme"), ("path", "/")]),
            KeyMatch::parts([("user", "eve"), ("tenant", &"x".repeat(201)), ("path", "")]),
        ];
        let index = index(Some(&template), &overrides);
        for len in [0, 1, 40, 100, 150, 190, 199, 200, 201, 500, 10_000] {
            let filler = "x".repeat(len);
            let found = |user: &str, tenant: &str, path: &str| index.find(&key(&template, &[user, tenant, path]));
            assert_eq!(found("mallory", &filler, ""), Some(0), "{len}");
            assert_eq!(found("mallory", "", &filler), Some(0), "{len}");
            assert_eq!(found("mallory", &filler, &filler), Some(0), "{len}");
            assert_eq!(found(&long_user, "", &filler), Some(1), "{len}");
            assert_eq!(found(&(long_user.clone() + "x"), "", &filler), None, "{len}");
            assert_eq!(found(&filler, "acme", "/"), Some(2), "{len}");
            assert_eq!(found("eve", &filler, ""), (len == 201).then_some(3), "{len}");
            assert_eq!(found("alice", &filler, &filler), None, "{len}");
        }
    }
}

/// Exact values come before networks, long networks before shorter ones, and more parts before all.
#[test]
fn the_longest_network_applies_after_an_exact_value() {
    let template = "{ip}:{method}";
    let by = |ip: &str| KeyMatch::parts([("ip", ip)]);
    let overrides = [
        by("10.0.0.0/8"),
        by("10.1.0.0/16"),
        by("10.1.2.3"),
        by("2001:db8::/32"),
        by("2001:DB8:0::9"),
        KeyMatch::parts([("method", "PUT")]),
        KeyMatch::parts([("ip", "10.1.0.0/16"), ("method", "POST")]),
        KeyMatch::parts([("ip", "::ffff:10.0.0.0/104"), ("method", "POST")]),
        KeyMatch::parts([("ip", "10.1.2.3"), ("method", "POST")]),
        by("10.0.0.0/33"),
        by("10.9.9.9/8"),
        by("192.0.2.0/24"),
        by("::/0"),
    ];
    let index = index(Some(template), &overrides);
    let cases = [
        ("10.200.0.1", "GET", Some(0)),
        ("10.1.9.9", "GET", Some(1)),
        ("10.1.2.3", "GET", Some(2)),
        ("::ffff:10.1.9.9", "GET", Some(1)),
        ("10.1.9.9", "PUT", Some(5)),
        ("10.1.9.9", "POST", Some(6)),
        ("10.9.9.9", "POST", Some(7)),
        ("10.1.2.3", "POST", Some(8)),
        ("11.0.0.1", "POST", None),
        // A part that is a network itself is in a shorter one, and equal to the text of its own.
        ("10.0.0.0/8", "GET", Some(0)),
        ("10.1.2.0/24", "GET", Some(1)),
        ("10.0.0.0/7", "GET", None),
        ("2001:db8:1:2::/64", "GET", Some(3)),
        ("2001:db8::9", "GET", Some(4)),
        ("2001:db8::9", "PUT", Some(5)),
        ("2002::/16", "GET", Some(12)),
        // These are no addresses, and match as texts alone.
        ("10.0.0.0/33", "GET", Some(9)),
        ("10.9.9.9/8", "GET", Some(10)),
        ("10.1.2.003", "GET", None),
        ("192.0.2.1:80", "GET", None),
        ("ann", "GET", None),
        ("", "GET", None),
    ];
    for (ip, method, expected) in cases {
        assert_eq!(index.find(&key(template, &[ip, method])), expected, "{ip} {method}");
    }
    for len in [201, 5_000] {
        assert_eq!(index.find(&key(template, &["10.1.9.9", &"x".repeat(len)])), Some(1), "{len}");
        assert_eq!(index.find(&key(template, &[&"1".repeat(len), "GET"])), None, "{len}");
    }
}

#[test]
fn a_key_of_one_address_matches_networks() {
    let overrides = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3"].map(|ip| KeyMatch::parts([("ip", ip)]));
    let index = index(Some("api:ip:{ip:/32/64}"), &overrides);
    for (ip, expected) in [("10.1.2.3", Some(2)), ("10.1.2.4", Some(1)), ("10.2.2.4", Some(0)), ("9.9.9.9", None)] {
        assert_eq!(index.find(&key("api:ip:{ip}", &[ip])), expected, "{ip}");
    }
    assert_eq!(index.find(&Key::new("api")), None);
}

#[test]
fn values_that_no_key_of_a_layer_has_are_rejected() {
    let template = "api:ip:{ip:/32/64}";
    for ip in ["10.0.0.0/8", "203.0.113.9", "2001:db8::/48", "2001:db8:1:2::/64", "::ffff:10.0.0.1"] {
        assert!(OverrideIndex::new(Some(template), &[KeyMatch::parts([("ip", ip)])]).is_ok(), "{ip}");
    }
    let cases = [
        (
            "2001:db8::9",
            "`ip` must have a prefix of at most 64 bits, by which its layer counts such clients, got 128 bits",
        ),
        (
            "2001:db8::/80",
            "`ip` must have a prefix of at most 64 bits, by which its layer counts such clients, got 80 bits",
        ),
        ("10.0.0.0/33", "`ip` must be an address or a network, as in the keys of its layer, got another text"),
        ("10.0.0.1/8", "`ip` must be an address or a network, as in the keys of its layer, got another text"),
        ("203.0.113.009", "`ip` must be an address or a network, as in the keys of its layer, got another text"),
    ];
    for (ip, message) in cases {
        let overrides = [KeyMatch::parts([("ip", ip)])];
        let invalid = OverrideIndex::new(Some(template), &overrides).expect_err(ip);
        assert!(invalid.is_by_value && invalid.message.starts_with(message), "{ip}: {}", invalid.message);
        assert!(!invalid.message.contains(&format!("`{ip}`")), "{}", invalid.message);
        let (index, left_out) = OverrideIndex::of_valid(Some(template), &overrides);
        assert_eq!((left_out, index.find(&Key::new("api:ip:").part(ip))), (vec![invalid], None), "{ip}");
    }
    let unknown = OverrideIndex::new(Some(template), &[KeyMatch::parts([("user", "1")])]).expect_err("no such part");
    assert!(unknown.message.contains("the key `api:ip:{ip}`, got `user`") && !unknown.is_by_value, "{unknown:?}");
    let equal = ["10.0.0.0/8", "::ffff:10.0.0.0/104"].map(|ip| KeyMatch::parts([("ip", ip)]));
    let equal = OverrideIndex::new(Some(template), &equal).expect_err("the same network");
    assert!(equal.message.contains("number 2 that matches the same keys as number 1"), "{equal:?}");
}

/// A part of an attribute's template, or of a header with this name, is any text.
#[test]
fn methods_by_which_no_request_counts_are_rejected() {
    let layer = "api:method:{method:/method}:ip:{ip:/32/64}";
    let of = |template, method| OverrideIndex::new(Some(template), &[KeyMatch::parts([("method", method)])]);
    let index = of(layer, "GET").expect("it counts");
    assert_eq!(index.find(&key(layer, &["GET", "10.0.0.1"])), Some(0));
    for method in ["HEAD", "get", "PROPFIND"] {
        let invalid = of(layer, method).expect_err(method);
        assert!(invalid.is_by_value && invalid.message.starts_with("`method` must be "), "{invalid:?}");
        assert!(of("api:method:{method}", method).is_ok(), "{method}");
    }
    let unknown = OverrideIndex::new(Some(layer), &[KeyMatch::parts([("user", "1")])]).expect_err("no such part");
    assert!(unknown.message.contains("the key `api:method:{method}:ip:{ip}`, got `user`"), "{unknown:?}");
}

/// A key that was read from its digest matches overrides of the whole key.
#[test]
fn a_key_of_a_digest_matches_by_the_whole_key() {
    let (template, long) = ("{user}/{path}", "x".repeat(300));
    let overrides = [
        KeyMatch::parts([("user", "1"), ("path", &long)]),
        KeyMatch::parts([("user", "2")]),
        KeyMatch::key(&Key::from_encoded(&key(template, &["3", &long]).encoded()).expect("an encoding")),
    ];
    let index = index(Some(template), &overrides);
    for (user, expected) in [("1", Some(0)), ("2", Some(1)), ("3", Some(2)), ("4", None)] {
        assert_eq!(index.find(&key(template, &[user, &long])), expected, "{user}");
        let read = Key::from_encoded(&key(template, &[user, &long]).encoded()).expect("an encoding");
        assert_eq!(index.find(&read), expected.filter(|index| *index != 1), "{user}");
    }
}

#[test]
fn a_rule_with_an_expression_has_overrides_of_keys() {
    let index = index(None, &[KeyMatch::key(&Key::new("a").part(1)), KeyMatch::key(&Key::new("b"))]);
    assert_eq!(index.find(&Key::new("b")), Some(1));
    assert_eq!(index.find(&Key::new("a").part(1)), Some(0));
    assert_eq!(index.find(&Key::new("a").part(2)), None);
    assert_eq!(OverrideIndex::new(None, []).expect("an index").find(&Key::new("a")), None);
}

#[test]
fn a_part_is_named_by_the_text_between_its_braces() {
    let template = "{id:08}{id:x}{user.id}{user.id}{path:?}";
    let overrides = [
        KeyMatch::parts([("id:x", "2")]),
        KeyMatch::parts([("id:08", "00000001"), ("id:x", "1")]),
        KeyMatch::parts([("user.id", "5"), ("path", "\"/\"")]),
    ];
    let index = index(Some(template), &overrides);
    let cases = [
        (["0", "2", "4", "5", "\"/\""], Some(0)),
        (["00000001", "1", "4", "5", "\"/\""], Some(1)),
        (["0", "2", "5", "5", "\"/\""], Some(2)),
        (["0", "3", "5", "5", "/"], None),
        (["0", "3", "5", "6", "\"/\""], None),
    ];
    for (values, expected) in cases {
        assert_eq!(index.find(&key(template, &values)), expected, "{values:?}");
    }
}

#[test]
fn overrides_that_cannot_apply_are_rejected() {
    let hashed = Key::from_encoded(&("+".to_owned() + &"0f".repeat(16))).expect("an encoding");
    let many = "{a}".repeat(33);
    let secret = Key::new("user:").part("secret");
    let cases: [(Option<&str>, Vec<KeyMatch>, usize, &str); 15] = [
        (None, vec![KeyMatch::parts([("a", "1")])], 0, "`match` must be used with a key that is a template"),
        (Some("user:{"), vec![KeyMatch::parts([("a", "1")])], 0, "`match` must be used with a key that is a template"),
        (Some("user:{id}"), vec![KeyMatch::parts([("", ""); 0])], 0, "got none"),
        (Some("user:{user_id}"), vec![KeyMatch::parts([("userid", "secret")])], 0, "got `userid`: write `user_id`"),
        (Some("{tenant}{id}"), vec![KeyMatch::parts([("x", "secret")])], 0, "got `x`: write one of `tenant`, `id`"),
        (
            Some("getId"),
            vec![KeyMatch::parts([("x", "secret")])],
            0,
            "`getId`, a key without parts: use `key` in its place",
        ),
        (Some("{id:x}{id:o}"), vec![KeyMatch::parts([("id", "1")])], 0, "got `id`: write"),
        (Some("{a}{b}"), vec![KeyMatch::parts([("a", "1"), ("a", "2")])], 0, "got `a` twice"),
        (Some("{a:x}{b}"), vec![KeyMatch::parts([("a", "1"), ("a:x", "2")])], 0, "got `a:x` twice"),
        (Some(&many), vec![KeyMatch::parts([("a", "1")])], 0, "at most 32 parts"),
        (None, vec![KeyMatch::key(&hashed)], 0, "got a digest of `hash_keys`"),
        (
            None,
            vec![KeyMatch::key(&secret), KeyMatch::key(&secret)],
            1,
            "number 2 that matches the same keys as number 1",
        ),
        (
            Some("user:{id}"),
            vec![KeyMatch::key(&Key::new("x")), KeyMatch::parts([("id", "secret")]), KeyMatch::key(&secret)],
            2,
            "number 3 that matches the same keys as number 2",
        ),
        (
            Some("{a}{b}{c}"),
            vec![KeyMatch::parts([("a", "1"), ("c", "2")]), KeyMatch::parts([("c", "2"), ("a", "1")])],
            1,
            "number 2 that matches the same keys as number 1",
        ),
        (
            Some("{a}{b}"),
            vec![KeyMatch::parts([("a", "1")]), KeyMatch::parts([("b", "1")]), KeyMatch::parts([("b", "1")])],
            2,
            "number 3 that matches the same keys as number 2",
        ),
    ];
    for (template, overrides, at, expected) in cases {
        let invalid = OverrideIndex::new(template, &overrides).expect_err(expected);
        assert_eq!(invalid.index, at, "{invalid:?}");
        assert!(invalid.message.contains(expected), "{invalid:?}");
        assert!(!invalid.message.contains("secret"), "{invalid:?}");
    }
}

const VALUES: [&str; 18] = [
    "",
    "a",
    "ab",
    "@",
    "%",
    "a@b",
    "é",
    "/",
    "+",
    "*",
    r"a\*",
    "10.1.2.3",
    "10.1.2.0/24",
    "10.0.0.0/8",
    "::ffff:10.1.2.3",
    "2001:db8::9",
    "2001:DB8::/32",
    "10.1.2.3/8",
];

fn value(random: &mut Random) -> String {
    let value = VALUES[small(random.below(18))];
    match random.below(8) {
        0 => value.repeat(small(random.between(30, 110))),
        1 => format!("{value}{}", "x".repeat(200)),
        _ => value.to_owned(),
    }
}

fn small(number: u64) -> usize {
    usize::try_from(number).expect("small")
}

/// A value of an override: a text alone, its beginning, or a network.
fn pattern(random: &mut Random) -> String {
    let escaped = |text: &str| text.replace('\\', r"\\").replace('*', r"\*");
    let value = value(random);
    match random.below(4) {
        0 => {
            let len = random.below(1 + u64::try_from(value.chars().count().min(4)).expect("small"));
            escaped(&value.chars().take(small(len)).collect::<String>()) + "*"
        }
        1 => ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "::/0", "2001:db8::/32"][small(random.below(5))].to_owned(),
        _ => escaped(&value),
    }
}

/// The bits of an address or a network, with its family; `None` for another text.
fn bits(text: &str) -> Option<(bool, String)> {
    let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
    let (address, prefix): (IpAddr, Option<usize>) = (address.parse().ok()?, prefix.map(str::parse).transpose().ok()?);
    let bits = match address {
        IpAddr::V4(address) => format!("{:032b}", address.to_bits()),
        IpAddr::V6(address) => format!("{:0128b}", address.to_bits()),
    };
    let (start, rest) = bits.split_at(prefix.unwrap_or(bits.len()));
    let of_mapped = matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    let start = if of_mapped { start.get(96..)? } else { start };
    (!rest.contains('1')).then(|| (address.is_ipv4() || of_mapped, start.to_owned()))
}

/// The kind of the match of an override's value with a text, and its length.
fn rank_of(value: &str, text: &str) -> Option<(u8, usize)> {
    let mut literal = value.replace(r"\\", "\u{1}").replace(r"\*", "\u{2}");
    let is_beginning = literal.ends_with('*');
    literal = literal.replace('*', "").replace('\u{1}', r"\").replace('\u{2}', "*");
    if is_beginning {
        return text.starts_with(&literal).then_some((0, literal.len()));
    }
    let is_usual = literal.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().to_string() == literal);
    match (bits(&literal), bits(text)) {
        (Some(_), None) if !is_usual => None,
        (Some((family, outer)), Some((of_text, inner))) if !is_usual => {
            (family == of_text && inner.starts_with(&outer)).then_some((1, outer.len()))
        }
        _ => (literal == text).then_some((2, 0)),
    }
}

/// The list is searched as the documentation describes it.
fn naive(names: &[&str], overrides: &[KeyMatch], values: &[String], key: &Key) -> Option<usize> {
    let ranks = |key_match: &KeyMatch| match &key_match.pattern {
        KeyPattern::Key(other) => (other == key).then(|| vec![(2, 0); names.len()]),
        KeyPattern::Parts(parts) => {
            let in_order = names.iter().zip(values).filter_map(|(name, text)| {
                let (_, of_part) = parts.iter().find(|(other, _)| other == name)?;
                Some(of_part.iter().filter_map(|value| rank_of(value, text)).max())
            });
            in_order.collect::<Option<Vec<_>>>()
        }
    };
    let all = overrides.iter().map(ranks).enumerate();
    let matching = all.filter_map(|(index, ranks)| Some((index, ranks?)));
    matching.max_by_key(|(index, ranks)| (ranks.len(), ranks.clone(), Reverse(*index))).map(|(index, _)| index)
}

#[test]
fn look_ups_agree_with_a_naive_search() {
    let templates = ["{a}", "user:{a}", "{a}{b}", "{a}/{b}:", "x{a}y{b}{c}", "{a}{b}{c}{d}{{é}}"];
    let mut random = Random::new(15);
    let (mut hits, mut long, mut by_pattern) = (0, 0, 0);
    let rounds = full_or(20_000, 2_000);
    for _ in 0..rounds {
        let template = templates[small(random.below(6))];
        let names: Vec<_> =
            ["a", "b", "c", "d"].into_iter().filter(|name| template.contains(&format!("{{{name}}}"))).collect();
        let random_key = |random: &mut Random| {
            let values: Vec<_> = names.iter().map(|_| value(random)).collect();
            let key = key(template, &values.iter().map(String::as_str).collect::<Vec<_>>());
            (values, key)
        };
        let mut overrides: Vec<KeyMatch> = Vec::new();
        for _ in 0..random.below(12) {
            let next = if random.below(6) == 0 {
                KeyMatch::key(&random_key(&mut random).1)
            } else {
                let named: Vec<_> = names.iter().filter(|_| random.below(2) == 0).copied().collect();
                if named.is_empty() {
                    continue;
                }
                KeyMatch::any_of(named.iter().map(|name| {
                    let count = if random.below(3) == 0 { random.between(1, 4) } else { 1 };
                    (*name, (0..count).map(|_| pattern(&mut random)).collect::<Vec<_>>())
                }))
            };
            overrides.push(next);
            if OverrideIndex::new(Some(template), &overrides).is_err() {
                overrides.pop();
            }
        }
        let index = index(Some(template), &overrides);
        for _ in 0..20 {
            let (values, key) = random_key(&mut random);
            let expected = naive(&names, &overrides, &values, &key);
            assert_eq!(index.find(&key), expected, "{template} {values:?} {:?}", patterns(&overrides));
            hits += usize::from(expected.is_some());
            long += usize::from(expected.is_some() && key.encoded().contains('+'));
            by_pattern += usize::from(index.patterns.len() > 1 && expected.is_some());
        }
    }
    let counts = (hits, long, by_pattern);
    assert!(hits > rounds && long > rounds / 10 && by_pattern > rounds, "{counts:?} of {rounds}");
}

/// The values of overrides, for the message of a failed test.
fn patterns(overrides: &[KeyMatch]) -> Vec<String> {
    let pattern = |keys: &KeyMatch| match &keys.pattern {
        KeyPattern::Parts(parts) => format!("{parts:?}"),
        KeyPattern::Key(key) => key.encoded(),
    };
    overrides.iter().map(pattern).collect()
}

/// The parts decide in the key's order. Among equals the first in the list applies.
#[test]
fn parts_decide_in_the_keys_order() {
    let template = "{path}:{ip}:{user}";
    let overrides = [
        KeyMatch::parts([("path", "/api/*"), ("ip", "10.1.2.3")]),
        KeyMatch::parts([("path", "/api/v1"), ("ip", "10.0.0.0/8")]),
        KeyMatch::parts([("path", "/api/v1/*"), ("ip", "10.0.0.0/8")]),
        KeyMatch::parts([("path", "*"), ("user", "ann")]),
        KeyMatch::parts([("ip", "10.*"), ("user", "a*")]),
        KeyMatch::parts([("ip", "10.9.0.0/16"), ("user", "bob")]),
        KeyMatch::any_of([("ip", ["10.5.0.0/16", "10.6.0.0/16"]), ("user", ["bob", "eve"])]),
        KeyMatch::any_of([("ip", ["10.6.0.0/16", "10.7.0.0/16"]), ("user", ["bob", "zoe"])]),
        KeyMatch::parts([("user", r"\*")]),
        KeyMatch::parts([("user", "*")]),
        KeyMatch::parts([("path", "")]),
    ];
    let index = index(Some(template), &overrides);
    let cases = [
        (["/api/v1", "10.1.2.3", "eve"], Some(1)),
        (["/api/v1/x", "10.1.2.3", "eve"], Some(2)),
        (["/api/", "10.1.2.3", "eve"], Some(0)),
        // The path's beginning has less bytes than that of the address.
        (["/x", "10.1.2.3", "ann"], Some(4)),
        (["/x", "11.1.2.3", "ann"], Some(3)),
        (["/api", "10.9.9.9", "bob"], Some(5)),
        (["/x", "10.5.9.9", "eve"], Some(6)),
        (["/x", "10.6.9.9", "bob"], Some(6)),
        (["/x", "10.6.9.9", "zoe"], Some(7)),
        (["/x", "10.7.9.9", "eve"], Some(9)),
        (["/x", "::1", "*"], Some(8)),
        (["/x", "::1", "ann*"], Some(9)),
        (["", "::1", "*"], Some(8)),
        (["", "::1", "x"], Some(10)),
    ];
    for (values, expected) in cases {
        assert_eq!(index.find(&key(template, &values)), expected, "{values:?}");
    }
}

/// A long part is a digest in the stores, and in a comparison with an exact text.
#[test]
fn a_long_part_escapes_no_beginning() {
    let template = "{path}:{user}";
    let longest = "y".repeat(200) + "*";
    let overrides = ["/api/*", "é*", &longest].map(|path| KeyMatch::parts([("path", path)]));
    let index = index(Some(template), &overrides);
    for len in [0, 1, 100, 187, 188, 189, 199, 200, 201, 1_000, 100_000] {
        for user in ["ann".to_owned(), "x".repeat(len)] {
            let found = |start: &str| index.find(&key(template, &[&(start.to_owned() + &"x".repeat(len)), &user]));
            assert_eq!(found("/api/"), Some(0), "{len}");
            assert_eq!(found("é"), Some(1), "{len}");
            assert_eq!(found(&"y".repeat(200)), Some(2), "{len}");
            assert_eq!(found(&"y".repeat(199)), None, "{len}");
            assert_eq!(found("/apj/"), None, "{len}");
        }
    }
}

#[test]
fn an_override_of_combinations_that_all_are_in_earlier_ones_is_rejected() {
    let list = |values: &[&str]| KeyMatch::any_of([("a", values)]);
    let apart = [list(&["1", "2"]), list(&["2", "3"]), list(&["3*", "10.0.0.0/8"]), list(&["10.0.0.0/8", "4"])];
    let index = index(Some("{a}{b}"), &apart);
    for (a, expected) in [("1", 0), ("2", 0), ("3", 1), ("33", 2), ("10.0.0.1", 2), ("4", 3)] {
        assert_eq!(index.find(&key("{a}{b}", &[a, "x"])), Some(expected), "{a}");
    }
    for hidden in [list(&["3", "1"]), list(&["3*", "2"]), list(&["3*"])] {
        let overrides: Vec<_> = apart.iter().cloned().chain([hidden]).collect();
        let invalid = OverrideIndex::new(Some("{a}{b}"), &overrides).expect_err("never applies");
        assert!(invalid.index == 4 && invalid.message.contains("number 5 that matches"), "{invalid:?}");
    }
    assert!(OverrideIndex::new(Some("{a}"), &[list(&["1", "1"])]).is_ok());
}

#[test]
fn the_combinations_of_lists_are_bounded() {
    let numbers = |count: usize| (0..count).collect::<Vec<_>>();
    let lists = |a, b| KeyMatch::any_of([("a", numbers(a)), ("b", numbers(b))]);
    assert!(OverrideIndex::new(Some("{a}{b}{c}"), &[lists(60_000, 3)]).is_ok());
    let invalid = OverrideIndex::new(Some("{a}{b}"), &[lists(10, 1), lists(100_000, 2)]).expect_err("too many");
    assert!(invalid.index == 1 && invalid.message.contains("at most 200000 combinations"), "{invalid:?}");
    // Both parts of one name have one value.
    let twice = [KeyMatch::any_of([("a", numbers(10_000))])];
    let index = index(Some("{a}{a}{b}"), &twice);
    assert_eq!(index.find(&key("{a}{a}{b}", &["7", "7", "x"])), Some(0));
    assert_eq!(index.find(&key("{a}{a}{b}", &["7", "8", "x"])), None);
}

#[test]
fn debug_shows_no_contents() {
    let index = index(Some("{a}{b}"), &[KeyMatch::parts([("a", "secret")]), KeyMatch::key(&Key::new("secret"))]);
    assert_eq!(format!("{index:?}"), "OverrideIndex { keys: 1, groups: [([0], 1)], .. }");
}

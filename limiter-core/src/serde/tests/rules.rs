//! Serialised rules, in JSON and TOML.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{assert_round_trip, limit};
use crate::{Algorithm, Key, KeyMatch, Layout, Limiter, Mode, OnError, Origin, Rule, RuleSet};

fn plain(text: &str) -> crate::Limit {
    limit(text, Algorithm::SlidingWindow)
}

fn error_of(json: &str) -> String {
    let error = serde_json::from_str::<Rule>(json).expect_err(json).to_string();
    error.split_once(" at line ").map_or(error.clone(), |(message, _)| message.to_owned())
}

#[test]
fn a_rule_is_the_map_of_its_settings_as_in_a_file() {
    assert_round_trip(Rule::new(), "{}", "[value]");
    assert_round_trip(
        Rule::new().limit(plain("50/10s")).mode(Mode::Shadow),
        r#"{"limit":"50/10s","mode":"shadow"}"#,
        "[value]\nlimit = \"50/10s\"\nmode = \"shadow\"",
    );
    let all = Rule::new()
        .limit(plain("5/s"))
        .limit(limit("100/min", Algorithm::LeakyBucket).with_burst(7).expect("a bucket"))
        .algorithm(Algorithm::TokenBucket)
        .burst(20)
        .layout(Layout::Compact)
        .on_error(OnError::Open)
        .deadline(Duration::from_millis(1500))
        .leases(false)
        .overriding(KeyMatch::parts([("user_id", "42"), ("a.b", "")]), Rule::new().limit(plain("1000/min")))
        .overriding(KeyMatch::key(&Key::new("user:").part(13)), Rule::new().mode(Mode::Deny));
    assert_round_trip(
        all,
        concat!(
            r#"{"limits":["5/s",{"limit":"100/min","algorithm":"leaky_bucket","burst":7}],"algorithm":"token_bucket","#,
            r#""burst":20,"layout":"compact","on_error":"open","deadline":"1500ms","leases":false,"#,
            r#""override":[{"match":{"a.b":"","user_id":"42"},"limit":"1000/min"},{"key":"user:@13","mode":"deny"}]}"#
        ),
        "[value]\nlimits = [\"5/s\", { limit = \"100/min\", algorithm = \"leaky_bucket\", burst = 7 }]\n\
         algorithm = \"token_bucket\"\nburst = 20\nlayout = \"compact\"\non_error = \"open\"\ndeadline = \"1500ms\"\n\
         leases = false\n\n\
         [[value.override]]\nlimit = \"1000/min\"\n\n[value.override.match]\n\"a.b\" = \"\"\nuser_id = \"42\"\n\n\
         [[value.override]]\nkey = \"user:@13\"\nmode = \"deny\"",
    );
}

#[test]
fn a_rule_is_read_in_any_order_and_with_numbers_as_parts() {
    let json =
        r#"{"override":[{"mode":"off","match":{"id":42}},{"match":{"id":-7}}],"deadline":"2s","limits":["5/s"]}"#;
    let rule = Rule::new()
        .limit(plain("5/s"))
        .deadline(Duration::from_secs(2))
        .overriding(KeyMatch::parts([("id", 42)]), Rule::new().mode(Mode::Off))
        .overriding(KeyMatch::parts([("id", -7)]), Rule::new());
    let list = r#"{"override":[{"match":{"id":[42,"a*",42]}}]}"#;
    let of_list = Rule::new().overriding(KeyMatch::any_of([("id", ["a*", "42"])]), Rule::new());
    assert_round_trip(
        of_list.clone(),
        r#"{"override":[{"match":{"id":["42","a*"]}}]}"#,
        "[[value.override]]\n\n[value.override.match]\nid = [\"42\", \"a*\"]",
    );
    assert_eq!(serde_json::from_str::<Rule>(list).expect(list), of_list);
    let nested = r#"{"override":[{"match":{"id":[["a"]]}}]}"#;
    assert!(
        error_of(nested).contains("expected for a part of `match` a text or a whole number"),
        "{}",
        error_of(nested)
    );
    assert_eq!(serde_json::from_str::<Rule>(json).expect(json), rule);
}

/// The mistakes of a map in JSON, with the same one as the fields of a rule in a text of rules.
const MISTAKES: [(&str, &str); 18] = [
    (r#"{"limt":"5/s"}"#, "limt = \"5/s\""),
    (r#"{"rate":"5/s"}"#, "rate = \"5/s\""),
    (r#"{"limit":"5/s","limits":["5/s"]}"#, "limit = \"5/s\"\nlimits = [\"5/s\"]"),
    (r#"{"limits":["5/s"],"limit":"5/s"}"#, "limits = [\"5/s\"]\nlimit = \"5/s\""),
    (r#"{"limits":[]}"#, "limits = []"),
    (r#"{"limit":"5/10x"}"#, "limit = \"5/10x\""),
    (r#"{"limit":"5/10s\n"}"#, "limit = \"5/10s\\n\""),
    (r#"{"limit":{"burst":7}}"#, "limit = { burst = 7 }"),
    (r#"{"limit":{"limit":"5/s","layuot":"zset"}}"#, "limit = { limit = \"5/s\", layuot = \"zset\" }"),
    (r#"{"mode":"shadwo"}"#, "mode = \"shadwo\""),
    (r#"{"burst":0}"#, "burst = 0"),
    (r#"{"deadline":"61s"}"#, "deadline = \"61s\""),
    (r#"{"override":[{"limit":"5/s"}]}"#, "override = [{ limit = \"5/s\" }]"),
    (r#"{"override":[{"key":"a","match":{"id":"1"}}]}"#, "override = [{ key = \"a\", match = { id = \"1\" } }]"),
    (r#"{"override":[{"match":{}}]}"#, "override = [{ match = {} }]"),
    (r#"{"override":[{"match":{"id":[]}}]}"#, "override = [{ match = { id = [] } }]"),
    (r#"{"override":[{"match":{"id":["a","a*b"]}}]}"#, "override = [{ match = { id = [\"a\", \"a*b\"] } }]"),
    (r#"{"override":[{"key":"a","mdoe":"off"}]}"#, "override = [{ key = \"a\", mdoe = \"off\" }]"),
];

#[cfg(feature = "rules")]
#[test]
fn mistakes_have_the_messages_of_the_file() {
    for (json, toml) in MISTAKES {
        let in_file = format!("[rules.a]\n{toml}").parse::<RuleSet>().map(drop).expect_err(toml).to_string();
        let (place, message) = in_file.split_once(": ").expect("a place");
        assert!(place.starts_with("line "), "{in_file}");
        assert_eq!(error_of(json), message);
    }
}

#[test]
fn mistakes_are_rejected_in_both_formats() {
    for (json, toml) in MISTAKES {
        assert!(toml::from_str::<Rule>(toml).expect_err(toml).to_string().contains(&error_of(json)));
    }
    let misspelt = "`limt` must be a setting of a rule, got an unknown name: write `limit`";
    assert_eq!(error_of(r#"{"limt":"5/s"}"#), misspelt);
    let cases = [
        (r#"{"mode":"off","mode":"off"}"#, "`mode` must be set once, got two: remove one"),
        (r#"{"override":[{"match":{"id":1,"id":2}}]}"#, "`id` must be set once in `match`, got two: remove one"),
        (
            r#"{"override":[{"match":{"a":"1","b":"2"}},{"key":"a"},{"match":{"b":2,"a":1}}]}"#,
            "`match` must differ from that of other overrides, got the one of override 1: remove one of them",
        ),
        (
            r#"{"override":[{"key":"a","override":[]}]}"#,
            "`override` must be a setting of an override, got an unknown name: write `match`, `key`, `limit`, `limits`, \
             `algorithm`, `burst`, `layout`, `packed`, `mode`, `on_error`, `deadline`, `leases`, `postpaid` or `block`, or remove it; a newer version may have \
             more",
        ),
        ("5", "invalid type: integer `5`, expected a rule: a map of settings such as `limit` and `mode`"),
        (
            r#"{"limits":"5/s"}"#,
            "invalid type: string \"5/s\", expected for `limits` a list of limits such as `[\"5/s\", \"100/min\"]`",
        ),
        (
            r#"{"deadline":50}"#,
            "invalid type: integer `50`, expected for `deadline` a duration from 1 ms to 60 s, in quotes",
        ),
        (r#"{"leases":"yes"}"#, "invalid type: string \"yes\", expected for `leases` `true` or `false`"),
        (
            r#"{"override":[{"match":{"id":1.5}}]}"#,
            "invalid type: floating point `1.5`, expected for a part of `match` a text or a whole number, or a list of them",
        ),
    ];
    for (json, message) in cases {
        assert_eq!(error_of(json), message);
    }
    let long = "9".repeat(1 << 20);
    for json in [format!(r#"{{"limit":"{long}"}}"#), format!(r#"{{"mode":"{long}"}}"#), format!(r#"{{"{long}":1}}"#)] {
        assert!(error_of(&json).len() < 400, "{} bytes", error_of(&json).len());
    }
}

/// Settings that contradict each other have the message of `build`.
#[test]
fn contradictions_are_rejected_in_both_directions() {
    let zset = Rule::new().layout(Layout::Zset);
    let fixed = Rule::new().algorithm(Algorithm::FixedWindow);
    let cases = [
        (fixed.clone().burst(7), r#"{"algorithm":"fixed_window","burst":7}"#),
        (zset.clone().algorithm(Algorithm::LeakyBucket), r#"{"layout":"zset","algorithm":"leaky_bucket"}"#),
        (zset.limit(plain("5/s")).limit(plain("9/min")), r#"{"layout":"zset","limits":["5/s","9/min"]}"#),
        (
            Rule::new().overriding(KeyMatch::key(&Key::new("a")), fixed.burst(7)),
            r#"{"override":[{"key":"a","algorithm":"fixed_window","burst":7}]}"#,
        ),
    ];
    for (rule, json) in cases {
        let message = rule.check("the rule").expect_err(json).to_string();
        assert_eq!(error_of(json), message);
        assert_eq!(serde_json::to_string(&rule).expect_err(json).to_string(), message);
    }
}

#[test]
fn a_rule_that_cannot_be_read_back_is_not_written() {
    let of = |keys, rule| Rule::new().overriding(keys, rule);
    let no_parts = KeyMatch::parts::<&str, &str>([]);
    let two_values = KeyMatch::parts([("id", 1), ("id", 2)]);
    let one = || KeyMatch::parts([("id", 1)]);
    let fraction = Rule::new().deadline(Duration::from_micros(1500));
    let cases = [
        (Rule::new().burst(0), "`burst` "),
        (Rule::new().deadline(Duration::from_secs(61)), "`deadline` "),
        (fraction.clone(), "`deadline` must be whole milliseconds to be written, got 1.5ms: "),
        (of(one(), fraction), "`deadline` must be whole milliseconds to be written, got 1.5ms: "),
        (of(no_parts, Rule::new()), "`match` must name at least one part of the key, got none: "),
        (
            of(KeyMatch::any_of([("id", [""; 0])]), Rule::new()),
            "override 1 of the rule: `id` must have at least one value, ",
        ),
        (of(KeyMatch::parts([("id", "*a")]), Rule::new()), "override 1 of the rule: `id` must have a `*` only "),
        (of(two_values, Rule::new()), "`id` must be set once in `match`, got two: "),
        (of(one(), Rule::new()).overriding(one(), Rule::new()), "`match` must differ from that of other overrides, "),
        (of(one(), of(one(), Rule::new())), "`overriding` "),
    ];
    for (rule, message) in cases {
        let error = serde_json::to_string(&rule).expect_err(message).to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn a_rule_has_at_most_100_000_overrides() {
    let overrides = |count: usize| {
        let maps: Vec<_> = (0..count).map(|id| format!(r#"{{"match":{{"id":{id}}}}}"#)).collect();
        format!(r#"{{"override":[{}]}}"#, maps.join(","))
    };
    let rule: Rule = serde_json::from_str(&overrides(100_000)).expect("not too many");
    assert_eq!(rule.overrides.len(), 100_000);
    let message = "`override` must be used at most 100000 times, got more: use parts of keys, or remove some";
    assert_eq!(error_of(&overrides(100_001)), message);
    let rule = rule.overriding(KeyMatch::key(&Key::new("a")), Rule::new());
    assert_eq!(serde_json::to_string(&rule).expect_err("too many").to_string(), message);
}

/// Every rule that is written is read back as an equal one, in both formats and by the reader of the file.
#[cfg(feature = "rules")]
#[test]
fn a_written_rule_is_read_back_by_serde_and_by_the_reader_of_the_file() {
    use limiter_testkit::{Random, full_or};

    use crate::rule::text::tests::random_rule_with_overrides;

    let (mut random, mut written) = (Random::new(13), 0);
    let rules = full_or(100_000, 10_000);
    for _ in 0..rules {
        let rule = random_rule_with_overrides(&mut random);
        let set = RuleSet::new().rule("a", rule.clone());
        let Ok(json) = serde_json::to_string(&rule) else {
            assert!(set.to_string().parse::<RuleSet>().is_err(), "{rule:?}");
            continue;
        };
        written += 1;
        assert_eq!(serde_json::from_str::<Rule>(&json).expect(&json), rule);
        // By the formats of each other.
        let in_file = toml::to_string(&BTreeMap::from([("rules", BTreeMap::from([("a", &rule)]))])).expect(&json);
        let of_file: RuleSet = in_file.parse().unwrap_or_else(|error| panic!("{error}:\n{in_file}"));
        assert_eq!(of_file.rules, set.rules);
        let text = set.to_string();
        let by_serde: BTreeMap<String, BTreeMap<String, Rule>> = toml::from_str(&text).expect(&text);
        assert_eq!(by_serde["rules"], set.rules);
    }
    assert!(written > rules / 20, "{written}");
}

#[test]
fn rules_in_force_are_maps_of_their_settings() {
    let limiter = Limiter::memory();
    let rule = Rule::new()
        .limit(plain("50/10s"))
        .mode(Mode::Shadow)
        .on_error(OnError::Open)
        .deadline(Duration::from_millis(50))
        .leases(false)
        .overriding(KeyMatch::key(&Key::new("a")), Rule::new().mode(Mode::Deny));
    let set = RuleSet::new().rule("a", rule).rule("b", Rule::new().plans(["p"]));
    limiter.set_rules(set.plan("p", Rule::new().leases(false))).expect("valid");
    let json = serde_json::to_string(&limiter.rules()).expect("maps");
    let expected = concat!(
        r#"[{"name":"a","limits":["50/10s"],"attribute_limits":[],"mode":"shadow","on_error":"open","deadline":"50ms","#,
        r#""leases":false,"origin":"runtime","overrides":1,"plans":[]},"#,
        r#"{"name":"b","limits":[],"attribute_limits":[],"mode":"enforce","origin":"attribute","overrides":0,"plans":["p"]}]"#
    );
    assert_eq!(json, expected);
    for origin in [Origin::Attribute, Origin::Builder, Origin::File, Origin::Runtime] {
        assert_eq!(serde_json::to_string(&origin).expect("a text"), format!("\"{origin}\""));
    }
}

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde_core::Serialize;
use serde_core::de::DeserializeOwned;

use crate::{Algorithm, Key, Layout, Limit, Limiter, Mode, OnError, Receipt};

mod rules;

fn assert_round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T, json: &str, toml: &str) {
    assert_eq!(serde_json::to_string(&value).expect("a text"), json);
    assert_eq!(serde_json::from_str::<T>(json).expect(json), value);
    let table = BTreeMap::from([("value", &value)]);
    assert_eq!(toml::to_string(&table).expect("a text").trim_end(), toml);
    let mut read: BTreeMap<String, T> = toml::from_str(toml).expect(toml);
    assert_eq!(read.remove("value"), Some(value));
}

fn limit(text: &str, algorithm: Algorithm) -> Limit {
    text.parse::<Limit>().expect("valid").with_algorithm(algorithm)
}

#[test]
fn names_are_those_of_the_attribute_in_both_directions() {
    for (value, name) in [
        (Algorithm::SlidingWindow, "sliding_window"),
        (Algorithm::FixedWindow, "fixed_window"),
        (Algorithm::SlidingCounter, "sliding_counter"),
        (Algorithm::TokenBucket, "token_bucket"),
        (Algorithm::LeakyBucket, "leaky_bucket"),
    ] {
        assert_round_trip(value, &format!("\"{name}\""), &format!("value = \"{name}\""));
    }
    for (value, name) in [(Layout::Compact, "compact"), (Layout::Zset, "zset")] {
        assert_round_trip(value, &format!("\"{name}\""), &format!("value = \"{name}\""));
    }
    for (value, name) in
        [(Mode::Enforce, "enforce"), (Mode::Shadow, "shadow"), (Mode::Off, "off"), (Mode::Deny, "deny")]
    {
        assert_round_trip(value, &format!("\"{name}\""), &format!("value = \"{name}\""));
    }
    for (value, name) in
        [(OnError::Open, "open"), (OnError::Closed, "closed"), (OnError::Standby, "standby"), (OnError::Raise, "raise")]
    {
        assert_round_trip(value, &format!("\"{name}\""), &format!("value = \"{name}\""));
    }
}

#[test]
fn a_limit_is_its_text_or_a_map_of_what_the_text_would_lose() {
    assert_round_trip(limit("100/min", Algorithm::SlidingWindow), r#""100/min""#, r#"value = "100/min""#);
    assert_round_trip(
        limit("5/10s", Algorithm::FixedWindow),
        r#"{"limit":"5/10s","algorithm":"fixed_window"}"#,
        "[value]\nlimit = \"5/10s\"\nalgorithm = \"fixed_window\"",
    );
    assert_round_trip(
        limit("5/10s", Algorithm::TokenBucket).with_burst(5).expect("valid"),
        r#"{"limit":"5/10s","algorithm":"token_bucket","burst":5}"#,
        "[value]\nlimit = \"5/10s\"\nalgorithm = \"token_bucket\"\nburst = 5",
    );
    assert_round_trip(
        limit("5/10s", Algorithm::SlidingWindow).with_layout(Layout::Zset).expect("valid"),
        r#"{"limit":"5/10s","layout":"zset"}"#,
        "[value]\nlimit = \"5/10s\"\nlayout = \"zset\"",
    );
    let concurrent = Limit::concurrent(50).expect("valid");
    assert_round_trip(concurrent, r#""50 concurrent""#, r#"value = "50 concurrent""#);
    let map = serde_json::from_str::<Limit>(r#"{"limit":"50 concurrent","layout":"compact"}"#);
    assert_eq!(map.expect("valid"), concurrent);
}

#[test]
fn a_limit_of_all_defaults_may_be_a_map() {
    let map = r#"{"layout":"compact","algorithm":"sliding_window","limit":"5/10s"}"#;
    let limit: Limit = serde_json::from_str(map).expect("valid");
    assert_eq!(limit, "5/10s".parse().expect("valid"));
}

#[test]
fn errors_state_the_remedy() {
    const EXPECTED_LIMIT: &str = "a limit such as `5/10s`, or a map of `limit` with `algorithm`, `burst` and `layout`";
    let number = "`burst` must be a whole number from 1 to 4294967295, got";
    let cases = [
        (r#""5""#, "`limit` must be `permits/window`, got `5` without a `/`: write one such as `5/10s` or `100/min`"),
        ("5", &format!("invalid type: integer `5`, expected {EXPECTED_LIMIT}")),
        (r#"["5/s"]"#, &format!("invalid type: sequence, expected {EXPECTED_LIMIT}")),
        ("{}", "`limit` must be in the table of a limit, got none: write one such as `{ limit = \"5/10s\" }`"),
        (
            r#"{"limit":"0/s"}"#,
            "`limit` must be `permits/window`, got `0/s` without a permit: write `mode = \"deny\"` in its rule to deny \
             every call",
        ),
        (r#"{"limit":5}"#, "invalid type: integer `5`, expected for `limit` a text such as `5/10s`"),
        (r#"{"limit":"5/s","limit":"5/s"}"#, "`limit` must be set once, got two: remove one"),
        (r#"{"limit":"5/s","bursts":7}"#, "`bursts` must be a part of a limit, got an unknown name: write `burst`"),
        (
            r#"{"limit":"5/s","algorithm":"gcra"}"#,
            "`algorithm` must be one of `sliding_window`, `fixed_window`, `sliding_counter`, `token_bucket` \
             and `leaky_bucket`, got `\"gcra\"`: write one of them, in quotes",
        ),
        (
            r#"{"limit":"5/s","layout":1}"#,
            "invalid type: integer `1`, expected for `layout` one of `compact` and `zset`",
        ),
        (
            r#"{"limit":"5/s","burst":7}"#,
            "`burst` must be left out for `sliding_window`, got 7: write `algorithm = \"token_bucket\"` or \
             `\"leaky_bucket\"`, or remove it",
        ),
        (
            r#"{"limit":"5/s","burst":0,"algorithm":"token_bucket"}"#,
            &format!("{number} `0`: write one such as `10`, without quotes"),
        ),
        (r#"{"limit":"5/s","burst":-1}"#, &format!("{number} `-1`: write one such as `10`, without quotes")),
        (
            r#"{"limit":"5/s","burst":4294967296}"#,
            &format!("{number} `4294967296`: write one such as `10`, without quotes"),
        ),
        (
            r#"{"limit":"5/s","layout":"zset","algorithm":"leaky_bucket"}"#,
            "`layout` must be `compact` for `leaky_bucket`, got `zset`: write `algorithm = \"sliding_window\"`, or \
             remove it",
        ),
        (
            r#""65536 concurrent""#,
            "`limit` must be `calls concurrent`, got `65536 concurrent` with more than 65535 calls: write one such as \
             `50 concurrent`",
        ),
        (
            r#"{"limit":"5 concurrent","algorithm":"sliding_window"}"#,
            "`algorithm` must be left out for `5 concurrent`, got one: remove it",
        ),
        (
            r#"{"limit":"5/s","algorithm":"concurrent"}"#,
            "`algorithm` must be one of `sliding_window`, `fixed_window`, `sliding_counter`, `token_bucket` \
             and `leaky_bucket`, got `\"concurrent\"`: write the limit as `\"50 concurrent\"`, without an algorithm",
        ),
    ];
    for (json, message) in cases {
        let error = serde_json::from_str::<Limit>(json).expect_err(json).to_string();
        assert!(error.starts_with(&format!("{message} at line 1 column ")), "{json}: {error}");
    }
    let error = toml::from_str::<BTreeMap<String, OnError>>("a = \"close\"").expect_err("no policy").to_string();
    let message =
        "`on_error` must be one of `open`, `closed`, `standby` and `raise`, got `\"close\"`: write `\"closed\"`";
    assert!(error.contains("line 1, column 5") && error.contains(message), "{error}");
}

#[test]
fn a_receipt_is_its_text() {
    let limiter = Limiter::builder().url("memory:").receipt_secret([7; 16]).build().expect("valid");
    let (key, limit) = (Key::new("a"), limit("5/10s", Algorithm::TokenBucket));
    let allowed = limiter.check_blocking(&key, &limit).expect("a decision").into_result().expect("allowed");
    let receipt = limiter.receipt(&key, &allowed).expect("a receipt");
    let text = format!("\"{receipt}\"");
    assert_round_trip(receipt, &text, &format!("value = {text}"));
    let error = serde_json::from_str::<Receipt>(&text.replace("rl1-", "rl2-")).expect_err("another version");
    assert!(error.to_string().starts_with("`receipt` must be the text of a receipt"), "{error}");
}

use std::time::Duration;

use limiter_testkit::{Random, full_or};

use super::MAX_BYTES;
use crate::request::CallSettings;
use crate::rule::format::FIELDS;
use crate::{Algorithm, ErrorKind, Key, KeyMatch, Layout, Limit, Mode, OnError, Rule, RuleSet};

pub(in crate::rule) const EXAMPLE: &str = r#"
strict = true

[defaults]
mode = "shadow"
on_error = "standby"
deadline = "50ms"
leases = false

[rules.getId]
limit = "50/10s"
mode = "enforce"

[rules."user:{user_id}"]
key = "user:{user_id}"
limits = ["5/s", "100/min"]
algorithm = "token_bucket"
burst = 20
on_error = "open"
deadline = "1s"
leases = false

[rules.shared]
limit = "5/10s"
layout = "zset"

[[rules."user:{user_id}".override]]
match = { user_id = "42" }
limit = "1000/min"

[[rules."user:{user_id}".override]]
key = "user:@13"
mode = "deny"
leases = false

[rules.mixed]
limits = ["5/10s", { limit = "100/h", algorithm = "leaky_bucket", burst = 7 }]

[rules.erp]
limit = "50 concurrent"

[rules.model]
limits = ["5 concurrent", "100/min"]
algorithm = "token_bucket"
"#;

fn limit(text: &str) -> Limit {
    text.parse().expect("a limit")
}

fn parse(text: &str) -> RuleSet {
    text.parse().unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

#[track_caller]
fn assert_same(set: &RuleSet, other: &RuleSet) {
    assert_eq!(set.defaults, other.defaults);
    assert_eq!(set.rules, other.rules);
    assert_eq!((set.is_strict, set.is_shared), (other.is_strict, other.is_shared));
}

#[test]
fn every_setting_is_read() {
    let set = parse(EXAMPLE);
    let mut user = Rule::new()
        .limit(limit("5/s"))
        .limit(limit("100/1m"))
        .algorithm(Algorithm::TokenBucket)
        .burst(20)
        .on_error(OnError::Open)
        .deadline(Duration::from_secs(1))
        .leases(false);
    user.key = Some("user:{user_id}".to_owned());
    let user = user
        .overriding(KeyMatch::parts([("user_id", "42")]), Rule::new().limit(limit("1000/1m")))
        .overriding(KeyMatch::key(&Key::new("user:").part(13)), Rule::new().mode(Mode::Deny).leases(false));
    let leaky = limit("100/h").with_algorithm(Algorithm::LeakyBucket).with_burst(7).expect("a bucket");
    let defaults =
        Rule::new().mode(Mode::Shadow).on_error(OnError::Standby).deadline(Duration::from_millis(50)).leases(false);
    let expected = RuleSet::new()
        .defaults(defaults)
        .rule("getId", Rule::new().limit(limit("50/10s")).mode(Mode::Enforce))
        .rule("user:{user_id}", user)
        .rule("shared", Rule::new().limit(limit("5/10s")).layout(Layout::Zset))
        .rule("mixed", Rule::new().limit(limit("5/10s")).limit(leaky))
        .rule("erp", Rule::new().limit(Limit::concurrent(50).expect("valid")))
        .rule(
            "model",
            Rule::new().limit(limit("5 concurrent")).limit(limit("100/min")).algorithm(Algorithm::TokenBucket),
        )
        .strict();
    assert_same(&set, &expected);
    assert_same(&parse(&set.to_string()), &set);
}

/// The others have a form of their own: limits, overrides, key and place.
#[test]
fn every_setting_of_one_value_has_a_row() {
    // A new setting does not compile here.
    let Rule {
        limits: _,
        algorithm: _,
        burst: _,
        layout: _,
        packed: _,
        mode: _,
        call: CallSettings { on_error: _, deadline: _, leases: _, postpaid: _, block: _ },
        overrides: _,
        key: _,
        plans: _,
        place: _,
    } = Rule::new();
    let names: Vec<_> = FIELDS.iter().map(|field| field.name).collect();
    assert_eq!(
        names,
        ["algorithm", "burst", "layout", "packed", "mode", "on_error", "deadline", "leases", "postpaid", "block"]
    );
}

#[test]
fn leases_need_their_feature() {
    let texts =
        ["[defaults]\nleases = true", "[rules.a]\nleases = true", "[[rules.a.override]]\nkey = \"a\"\nleases = true"];
    for (text, line) in texts.into_iter().zip([2, 2, 3]) {
        match text.parse::<RuleSet>() {
            Ok(set) => {
                assert!(cfg!(feature = "leases") && set.to_string().ends_with("leases = true\n"), "{set}");
                assert_same(&parse(&set.to_string()), &set);
            }
            Err(error) => {
                let place = format!("line {line}, column 10");
                let message = "`leases` must be `false`, got `true`: turn on the feature `leases` of `rate-limited`";
                assert_eq!((cfg!(feature = "leases"), error.to_string()), (false, format!("{place}: {message}")));
            }
        }
    }
}

#[test]
fn an_empty_text_has_no_rules() {
    for text in ["", "\n# none\n", "[rules]\n", "[defaults]\n[rules]\n", "strict = false"] {
        assert!(parse(text).to_string().is_empty(), "{text}");
    }
    assert_eq!(RuleSet::new().to_string(), "");
    // A rule without settings declares a name.
    assert_eq!(parse("[rules.a]").rules["a"], Rule::new());
    // An editor's byte order mark, and the line ends of Windows.
    assert!(parse("\u{feff}strict = true\r\n[rules.a]\r\nlimit = '5/s'\r\n").is_strict);
}

/// Every mistake of a text with its line, its column and what to write.
#[test]
fn each_mistake_has_its_position_and_a_remedy() {
    let cases = [
        (
            "[rules.a]\nlimt = \"5/s\"",
            "line 2, column 1: `limt` must be a setting of a rule, got an unknown name: write `limit`",
        ),
        (
            "[rules.a]\nrate = \"5/s\"",
            "line 2, column 1: `rate` must be a setting of a rule, got an unknown name: write `limit`, `limits`, \
             `algorithm`, `burst`, `layout`, `packed`, `mode`, `on_error`, `deadline`, `leases`, `postpaid`, `block`, `key`, `plans` or `override`, or remove it; \
             a newer version may have more",
        ),
        (
            "[rules.a]\nleases = \"yes\"",
            "line 2, column 10: `leases` must be `true` or `false`, got `\"yes\"`: write it without quotes",
        ),
        (
            "[rules.user.id]\nlimit = \"5/s\"",
            "line 1, column 13: `id` must be a setting of a rule, got an unknown name: write a rule's name with dots in \
             quotes, as in `[rules.\"a.b\"]`, or remove it",
        ),
        (
            "[defaults]\nlimit = \"5/s\"",
            "line 2, column 1: `limit` must be a setting of the defaults, got an unknown name: write `mode`, `on_error`, \
             `deadline` or `leases`, or remove it; a newer version may have more",
        ),
        (
            "[rule.a]\nlimit = \"5/s\"",
            "line 1, column 2: `rule` must be one of `strict`, `shared`, `defaults`, `plans` and `rules`, got an unknown name: write `rules`",
        ),
        (
            "version = 2\n[rules.a]\nlimit = \"5/s\"",
            "line 1, column 1: `version` must be one of `strict`, `shared`, `defaults`, `plans` and `rules`, got an unknown name: write \
             `strict`, `shared`, `defaults`, `plans` or `rules`, or remove it; a newer version may have more",
        ),
        (
            "[rules.a]\nlimit = \"5/10x\"",
            "line 2, column 9: `limit` must be `permits/window`, got `5/10x` with a window that is not made of whole \
             numbers and the units `ms`, `s`, `min`, `h`, `d`, `w` and words such as `minutes`: write one such as `5/10s` or `100/min`",
        ),
        (
            "[rules.a]\nlimits = [\"5/s\", \"-5/min\"]",
            "line 2, column 18: `limit` must be `permits/window`, got `-5/min` without a whole number of permits: write \
             one such as `5/10s` or `100/min`",
        ),
        (
            "[rules.a]\nlimit = \"0/s\"",
            "line 2, column 9: `limit` must be `permits/window`, got `0/s` without a permit: write `mode = \"deny\"` in \
             its rule to deny every call",
        ),
        (
            "[rules.a]\nlimit = \"5/9999d\"",
            "line 2, column 9: `window` must be at most 366 days, got 863913600s: write a shorter duration",
        ),
        (
            "[rules.a]\nlimit = 5",
            "line 2, column 9: `limit` must be `permits/window` in quotes, got `5`: write one such as `\"5/10s\"` or \
             `\"100/min\"`",
        ),
        (
            "[rules.a]\nlimits = \"5/s\"",
            "line 2, column 10: `limits` must be a list of limits, got `\"5/s\"`: write one such as \
             `[\"5/s\", \"100/min\"]`",
        ),
        (
            "[rules.a]\nlimits = []",
            "line 2, column 10: `limits` must have at least one limit, got an empty list: write one such as \
             `[\"5/s\", \"100/min\"]`, or remove it for the attribute's",
        ),
        (
            "[rules.a]\nlimit = \"5/s\"\nlimits = [\"5/s\"]",
            "line 3, column 1: `limit` must be left out with `limits`, got both: remove one of them",
        ),
        (
            "[rules.a]\nlimits = ['1/1s','1/2s','1/3s','1/4s','1/5s','1/6s','1/7s','1/8s','1/9s','1/10s','1/11s','1/12s',\
             '1/13s','1/14s','1/15s','1/16s','1/17s']",
            "line 2, column 10: `limits` must have at most 16 limits, got 17: remove the others",
        ),
        (
            "[rules.a]\nlimit = { algorithm = \"token_bucket\" }",
            "line 2, column 9: `limit` must be in the table of a limit, got none: write one such as \
             `{ limit = \"5/10s\" }`",
        ),
        (
            "[rules.a]\nburst = -1",
            "line 2, column 9: `burst` must be a whole number from 1 to 4294967295, got `-1`: write one such as `10`, \
             without quotes",
        ),
        (
            "[rules.a]\nburst = 99999999999999999999999999",
            "line 2, column 9: `burst` must be a whole number from 1 to 4294967295, got `99999999999999999999999999`: \
             write one such as `10`, without quotes",
        ),
        (
            "[rules.a]\nburst = 1e3",
            "line 2, column 9: `burst` must be a whole number from 1 to 4294967295, got `1e3`: write one such as `10`, \
             without quotes",
        ),
        (
            "[rules.a]\nlimit = \"5/s\"\nalgorithm = \"fixed_window\"\nburst = 7",
            "line 4, column 9: `burst` must be left out for `fixed_window`, got 7: write `algorithm = \"token_bucket\"` or \
             `\"leaky_bucket\"`, or remove it",
        ),
        (
            "[rules.a]\nlayout = \"zset\"\nlimits = [\"5/s\", \"9/min\"]",
            "line 3, column 10: `limits` must have one limit with `layout = \"zset\"`, got 2: remove the others",
        ),
        (
            "[rules.a]\nlayout = \"zset\"\nalgorithm = \"leaky_bucket\"",
            "line 2, column 10: `layout` must be `compact` for `leaky_bucket`, got `zset`: write \
             `algorithm = \"sliding_window\"`, or remove it",
        ),
        (
            "[rules.a]\nmode = \"shadwo\"",
            "line 2, column 8: `mode` must be one of `enforce`, `shadow`, `off` and `deny`, got `\"shadwo\"`: write \
             `\"shadow\"`",
        ),
        (
            "[rules.a]\nmode = false",
            "line 2, column 8: `mode` must be one of `enforce`, `shadow`, `off` and `deny`, got `false`: write one of \
             them, in quotes",
        ),
        (
            "[rules.a]\nalgorithm = \"TokenBucket\"",
            "line 2, column 13: `algorithm` must be one of `sliding_window`, `fixed_window`, `sliding_counter`, \
             `token_bucket` and `leaky_bucket`, got `\"TokenBucket\"`: write `\"token_bucket\"`",
        ),
        (
            "[defaults]\ndeadline = \"61s\"",
            "line 2, column 12: `deadline` must be a duration from 1 ms to 60 s, in quotes, got `\"61s\"`: write one such \
             as `\"50ms\"` or `\"2s\"`",
        ),
        (
            "[defaults]\ndeadline = 50",
            "line 2, column 12: `deadline` must be a duration from 1 ms to 60 s, in quotes, got `50`: write one such as \
             `\"50ms\"` or `\"2s\"`",
        ),
        (
            "[rules.a.override]\nmatch = { id = \"1\" }",
            "line 1, column 1: `override` must be a list of tables, got a table: write `[[rules.name.override]]` before \
             each",
        ),
        (
            "[[rules.a.override]]\nlimit = \"5/s\"",
            "line 1, column 1: `match` must be set in an override, got none: write one such as \
             `match = { user_id = \"42\" }`, or `key = \"user:@42\"`",
        ),
        (
            "[[rules.a.override]]\nkey = \"a\"\nmatch = { id = \"1\" }",
            "line 3, column 1: `key` must be left out with `match`, got both: remove one of them",
        ),
        (
            "[[rules.a.override]]\nmatch = {}",
            "line 2, column 9: `match` must name at least one part of the key, got none: write one such as \
             `match = { user_id = \"42\" }`, or set the rule itself",
        ),
        (
            "[[rules.a.override]]\nmatch = { id = 1.5 }",
            "line 2, column 16: `id` must be a text in quotes, got a number: write one such as `id = \"42\"`",
        ),
        (
            "[[rules.a.override]]\nmatch = { id = [] }",
            "line 2, column 16: `id` must have at least one value, got an empty list: write one such as `id = [\"42\"]`, or \
             remove it",
        ),
        (
            "[[rules.a.override]]\nmatch = { id = [\"1\", [\"2\"]] }",
            "line 2, column 22: `id` must be a text in quotes, got a list: write one such as `id = \"42\"`",
        ),
        (
            "[[rules.a.override]]\nmatch = { path = \"/secret/*/x\" }",
            "line 2, column 18: `path` must have a `*` only as its last character, got one before others: remove it, or \
             write `\\*` for the character itself",
        ),
        (
            "[[rules.a.override]]\nmatch = { id = [\n  \"1\",\n  \"**\",\n] }",
            "line 4, column 3: `id` must have a `*` only as its last character, got one before others: remove it, or \
             write `\\*` for the character itself",
        ),
        (
            "[[rules.a.override]]\nmatch = { a = [\"1\", \"2\"] }\n[[rules.a.override]]\nmatch = { a = [2, 1, 1] }",
            "line 4, column 9: `match` must differ from that of other overrides, got the one of line 2: remove one of them",
        ),
        (
            "[[rules.a.override]]\nmatch = { id = \"1\" }\nmdoe = \"off\"",
            "line 3, column 1: `mdoe` must be a setting of an override, got an unknown name: write `mode`",
        ),
        (
            "[[rules.a.override]]\nkey = \"user:42 \"",
            "line 2, column 7: `encoded` must be texts and parts with escapes such as `%7B`, got ' ' at byte 7, which is \
             no text, part or needed escape: write the text that `Key::encoded` returned",
        ),
        (
            "[[rules.a.override]]\nmatch = { a = \"1\", b = \"2\" }\n[[rules.a.override]]\nmatch = { b = \"2\", a = 1 }",
            "line 4, column 9: `match` must differ from that of other overrides, got the one of line 2: remove one of them",
        ),
        (
            "[[rules.a.override]]\nkey = \"a\"\n[[rules.a.override]]\nkey = \"a\"",
            "line 4, column 7: `match` must differ from that of other overrides, got the one of line 2: remove one of them",
        ),
        (
            "[[rules.a.override]]\nkey = \"a\"\nburst = 0",
            "line 3, column 9: `burst` must be a whole number from 1 to 4294967295, got `0`: write one such as `10`, \
             without quotes",
        ),
        (
            "strict = \"yes\"",
            "line 1, column 10: `strict` must be `true` or `false`, got `\"yes\"`: write it without quotes",
        ),
        (
            "rules = 5",
            "line 1, column 9: `rules` must be a table, got `5`: write it as `[rules]`, with a setting in each line below",
        ),
        (
            "[rules]\na = \"5/s\"",
            "line 2, column 5: `a` must be a table, got `\"5/s\"`: write it as `[a]`, with a setting in each line below",
        ),
        (
            "[rules.\"\"]\nlimit = \"5/s\"",
            "line 1, column 8: `rules` must have a name for each rule, got an empty text: write the attribute's `name`, or \
             its key as written there",
        ),
        (
            "[rules.a]\nlimit = \"5/s\"\nlimit = \"6/s\"",
            "line 3, column 1: the text must be TOML, got a mistake in it, duplicate key: check this line",
        ),
        (
            "[rules.a]\nlimit = \"5/s\"\n[rules.a]",
            "line 3, column 8: the text must be TOML, got a mistake in it, duplicate key: check this line",
        ),
        (
            "[rules.user:{user_id}]\nlimit = \"5/s\"",
            "line 1, column 13: the text must be TOML, got a mistake in it, unclosed table, expected `]`: write the name in \
             quotes: `[rules.\"user:{user_id}\"]`",
        ),
        (
            "[rules.a]\n [[ rules.{tenant}.{user\\}.override ]] # [x]\nkey = \"a\"",
            "line 2, column 11: the text must be TOML, got a mistake in it, unquoted keys cannot be empty, expected \
             letters, numbers, `-`, `_`: write the name in quotes: `[[rules.\"{tenant}.{user\\\\}\".override]]`",
        ),
        (
            "[rules.\"user\":{user_id}]\nlimit = \"5/s\"",
            "line 1, column 14: the text must be TOML, got a mistake in it, unclosed table, expected `]`: check this line",
        ),
        (
            "[other.user:{user_id}]\nlimit = \"5/s\"",
            "line 1, column 13: the text must be TOML, got a mistake in it, unclosed table, expected `]`: check this line",
        ),
        (
            "[rules.a]\nlimit = \"0 concurrent\"",
            "line 2, column 9: `limit` must be `calls concurrent`, got `0 concurrent` without a call: write `mode = \
             \"deny\"` in its rule to deny every call",
        ),
        (
            "[rules.a]\nlimit = \"50 concurrent\"\nalgorithm = \"token_bucket\"",
            "line 3, column 13: `algorithm` must be left out for `50 concurrent`, got one: remove it",
        ),
        (
            "[rules.a]\nburst = 7\nlimits = [\"50 concurrent\"]",
            "line 2, column 9: `burst` must be left out for `50 concurrent`, got one: remove it",
        ),
        (
            "[rules.a]\nlimit = \"50 concurrent\"\nlayout = \"zset\"",
            "line 3, column 10: `layout` must be left out for `50 concurrent`, got one: remove it",
        ),
        (
            "[rules.a]\nlimit = \"50 concurrent\"\npostpaid = true",
            "line 3, column 12: `postpaid` must be left out for `50 concurrent`, got one: remove it",
        ),
        (
            "[rules.a]\nlimit = { limit = \"50 concurrent\", algorithm = \"fixed_window\" }",
            "line 2, column 48: `algorithm` must be left out for `50 concurrent`, got one: remove it",
        ),
        (
            "[rules.a]\nlimit = \"50 concurrent\"\nwindow = \"10s\"",
            "line 3, column 1: `window` must be a setting of a rule, got an unknown name: write `limit`, `limits`, \
             `algorithm`, `burst`, `layout`, `packed`, `mode`, `on_error`, `deadline`, `leases`, `postpaid`, `block`, `key`, `plans` or `override`, or \
             remove it; a newer version may have more",
        ),
        (
            "[rules.a]\nalgorithm = \"concurrent\"",
            "line 2, column 13: `algorithm` must be one of `sliding_window`, `fixed_window`, `sliding_counter`, \
             `token_bucket` and `leaky_bucket`, got `\"concurrent\"`: write the limit as `\"50 concurrent\"`, without an \
             algorithm",
        ),
        (
            "[rules.a.b\nlimit = \"5/s\"",
            "line 1, column 11: the text must be TOML, got a mistake in it, unclosed table, expected `]`: check this line",
        ),
    ];
    for (text, message) in cases {
        let error = text.parse::<RuleSet>().map(drop).expect_err(message);
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Config, message));
        // The end of a line and the letters before do not matter, except for the column.
        let error = RuleSet::from_bytes(text.replace('\n', "\r\n").as_bytes()).expect_err(message);
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn bytes_that_are_no_text_have_a_position() {
    let error = RuleSet::from_bytes(b"# \xC3\xA9\n# \xC3\xA9\xC3\xA9\xFF").map(drop).expect_err("not UTF-8");
    let message = "line 2, column 5: the text must be UTF-8, got the byte 0xff: use UTF-8 in the editor";
    assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Config, message));
    let text = "#".repeat(MAX_BYTES + 1);
    let error = text.parse::<RuleSet>().map(drop).expect_err("too long");
    assert!(error.to_string().starts_with("line 1, column 1: the text must have at most 16 MB, got more: "), "{error}");
    assert!(text[1..].parse::<RuleSet>().is_ok());
}

#[test]
fn a_mistake_in_a_long_value_has_a_short_message() {
    let long = "9".repeat(1 << 20);
    for field in ["limit", "mode", "deadline", "key.x", "burst.x"] {
        let text = format!("[rules.a]\n{field} = \"{long}\"");
        let error = text.parse::<RuleSet>().map(drop).expect_err(field);
        assert!(error.to_string().len() < 300, "{field}: {} bytes", error.to_string().len());
    }
    let error = format!("[rules.a]\n{long} = 1").parse::<RuleSet>().map(drop).expect_err("an unknown field");
    assert!(error.to_string().len() < 400, "{} bytes", error.to_string().len());
    let error = format!("[rules.a]\nburst = {long}").parse::<RuleSet>().map(drop).expect_err("a huge number");
    assert!(error.to_string().len() < 300, "{} bytes", error.to_string().len());
}

#[test]
fn a_text_has_at_most_100_000_overrides_with_their_places() {
    let overrides = |count: usize| {
        let tables = (0..count).map(|id| format!("[[rules.\"{{id}}\".override]]\nmatch = {{ id = \"{id}\" }}\n"));
        tables.collect::<String>()
    };
    let error = overrides(100_001).parse::<RuleSet>().map(drop).expect_err("too many");
    let message = "line 200001, column 1: `override` must be used at most 100000 times, got more: use parts of keys, or \
                   remove some";
    assert_eq!(error.to_string(), message);
    // All of them in one line take no longer.
    let tables: Vec<_> = (0..100_000).map(|id| format!("{{match={{id={id}}}}}")).collect();
    let text = format!("[rules.a]\noverride=[{}]", tables.join(","));
    let set = parse(&text);
    let overrides = &set.rules["a"].overrides;
    let last = overrides.last().map(|(_, rule)| rule.place.to_string());
    let column = text.len() - "[rules.a]\n".len() - "{id=99999}}]".len() + 1;
    assert_eq!((overrides.len(), last), (100_000, Some(format!("line 2, column {column}: "))));
}

#[test]
fn a_deep_text_is_rejected_without_a_stack_overflow() {
    const DEPTH: usize = 100_000;
    let texts = [
        format!("a = {}", "[".repeat(DEPTH)),
        format!("a = {}", "{a=".repeat(DEPTH)),
        format!("{}a = 1", "a.".repeat(DEPTH)),
        format!("[{}a]", "a.".repeat(DEPTH)),
        format!("[[{}a]]", "a.".repeat(DEPTH)),
    ];
    for text in texts {
        assert!(text.parse::<RuleSet>().is_err());
    }
}

/// Returns any of `values`, or `None`.
fn any_of<T: Clone>(random: &mut Random, values: &[T]) -> Option<T> {
    let index = usize::try_from(random.below(values.len() as u64 * 2)).expect("small");
    values.get(index).cloned()
}

fn random_rule(random: &mut Random) -> Rule {
    let algorithms = [
        Algorithm::SlidingWindow,
        Algorithm::FixedWindow,
        Algorithm::SlidingCounter,
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::Concurrent,
    ];
    let mut rule = Rule::new();
    for _ in 0..random.below(3) {
        let (max_bits, window_bits) = (random.below(32), random.below(34));
        let max = u32::try_from(random.between(1, 1 << max_bits)).expect("less than 32 bits");
        let window = Duration::from_millis(random.between(1, 1 << window_bits));
        let mut limit = Limit::new(max, window).expect("valid");
        if let Some(algorithm) = any_of(random, &algorithms) {
            limit = limit.with_algorithm(algorithm);
        }
        if random.below(3) == 0 {
            limit = limit.with_burst(max).unwrap_or(limit);
            limit = limit.with_layout(Layout::Zset).unwrap_or(limit);
        }
        if random.below(6) == 0 {
            limit = Limit::concurrent(max).unwrap_or(limit);
        }
        rule = rule.limit(limit);
    }
    rule.algorithm = any_of(random, &algorithms);
    rule.burst = any_of(random, &[0, 1, 7, u32::MAX]);
    rule.layout = any_of(random, &[Layout::Compact, Layout::Zset]);
    rule.mode = any_of(random, &[Mode::Enforce, Mode::Shadow, Mode::Off, Mode::Deny]);
    rule.call.on_error = any_of(random, &[OnError::Open, OnError::Closed, OnError::Standby, OnError::Raise]);
    rule.call.deadline = any_of(random, &[0, 1, 50, 60_000, 60_001].map(Duration::from_millis));
    rule.call.leases = any_of(random, &[false, cfg!(feature = "leases")]);
    rule.key = any_of(random, &["user:{id}", ""].map(str::to_owned));
    rule
}

pub(crate) fn random_rule_with_overrides(random: &mut Random) -> Rule {
    let mut rule = random_rule(random);
    for index in 0..random.below(3) {
        let keys = match random.below(3) {
            0 => KeyMatch::key(&Key::new("user:{").part(index).text("\u{1F600}")),
            1 => KeyMatch::any_of([("id", (0..=index).map(|id| format!("\\\\{id}*")).collect::<Vec<_>>())]),
            _ => KeyMatch::parts([("a.b", format!("\"{index}\\")), ("", "\u{7f}".to_owned())]),
        };
        let mut of_keys = Rule { key: None, ..random_rule(random) };
        if random.below(40) == 0 {
            of_keys = of_keys.overriding(KeyMatch::parts([("id", 1)]), Rule::new());
        }
        rule = rule.overriding(keys, of_keys);
    }
    rule
}

fn random_set(random: &mut Random) -> RuleSet {
    const NAMES: [&str; 8] = ["getId", "user:{id}", "a.b", "\"", "\\", "\u{7f}\n\t\u{9f}", "é\u{1F600}", ""];
    let mut set = RuleSet::new();
    for name in NAMES {
        if random.below(3) == 0 {
            set = set.rule(name, random_rule_with_overrides(random));
        }
    }
    if random.below(2) == 0 {
        let Rule { mode, call, .. } = random_rule(random);
        set = set.defaults(Rule { mode, call, ..Rule::new() });
    }
    if random.below(2) == 0 { set.strict() } else { set }
}

#[test]
fn a_written_set_parses_to_itself_exactly_if_it_is_valid() {
    let (mut random, mut valid) = (Random::new(13), 0);
    let sets = full_or(100_000, 10_000);
    for _ in 0..sets {
        let set = random_set(&mut random);
        let text = set.to_string();
        match (set.check(), text.parse::<RuleSet>()) {
            (Ok(()), Ok(parsed)) => {
                assert_same(&parsed, &set);
                valid += 1;
            }
            (Err(_), Err(error)) => assert!(error.to_string().starts_with("line "), "{error}"),
            (checked, parsed) => panic!("{checked:?}, but {parsed:?}:\n{text}"),
        }
    }
    assert!(valid > sets / 20, "{valid}");
}

#[test]
fn any_bytes_are_parsed_or_rejected() {
    let mut random = Random::new(7);
    let parts =
        ["[", "]", "[[", "]]", "=", "\"", "'", "\n", ".", "rules", "a", "limit", "{", "}", ",", "5/s", "#", "\\"];
    for round in 0..full_or(100_000, 10_000) {
        let bytes = match round % 3 {
            0 => (0..random.below(200)).map(|_| random.any().to_le_bytes()[0]).collect(),
            1 => (0..random.below(40))
                .flat_map(|_| any_of(&mut random, &parts).unwrap_or("limit = '5/s'\n").bytes())
                .collect(),
            _ => mutated(EXAMPLE, &mut random),
        };
        if let Ok(set) = RuleSet::from_bytes(&bytes) {
            set.check().expect("checked");
            assert_same(&parse(&set.to_string()), &set);
        }
    }
}

/// Returns a text with some of its bytes changed, removed, repeated or cut off.
pub(in crate::rule) fn mutated(text: &str, random: &mut Random) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    let position =
        |random: &mut Random, length: usize| usize::try_from(random.below(length as u64)).expect("below the length");
    for _ in 0..random.between(1, 4) {
        let (at, other) = (position(random, bytes.len()), position(random, bytes.len()));
        let (low, high) = (at.min(other), at.max(other));
        match random.below(6) {
            0 => bytes[at] = random.any().to_le_bytes()[0],
            1 => bytes[at] = bytes[other],
            2 => drop(bytes.drain(low..high.min(low + 20))),
            3 => bytes.extend_from_within(low..high),
            4 => bytes.truncate(at.max(1)),
            _ => bytes.insert(at, b"\"'[]{}=.,#\n-0"[position(random, 13)]),
        }
    }
    bytes
}

//! The names of different keys differ, and no value changes the hash tag.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::slice;

use limiter_testkit::{Random, full_or, slot_of};

use super::*;
use crate::store::redis::naming::RedisKeys;
use crate::{ErrorKind, Limit};

const KEY_COUNT: usize = 200_000;

/// The text fragments that encodings are tested with: marks, escapes, braces, digests, characters of every length.
const PIECES: [&str; 24] = [
    "",
    "a",
    "b",
    "@",
    "@@",
    "%",
    "%4",
    "40",
    "%40",
    "%7B",
    "{",
    "}",
    "{}",
    "{a}",
    "}{",
    ":",
    "/",
    "+",
    " ",
    "\0",
    "é",
    "€",
    "🦀",
    "\u{10ffff}",
];

/// A piece of a key as a program may build it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Piece {
    Text(String),
    Part(String),
}

fn sequence(random: &mut Random) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for _ in 0..=random.below(4) {
        let mut content = String::new();
        for _ in 0..random.below(4) {
            // Some pieces are long: a digest then replaces the key's end from inside a piece, or at its edge.
            let times = if random.below(12) == 0 { random.between(20, 80) } else { 1 };
            let piece = PIECES[usize::try_from(random.below(24)).expect("small")];
            content.push_str(&piece.repeat(usize::try_from(times).expect("small")));
        }
        pieces.push(if random.below(2) == 0 { Piece::Text(content) } else { Piece::Part(content) });
    }
    pieces
}

/// Returns the canonical form of a sequence: adjacent texts are merged, and empty texts removed.
fn joined(sequence: &[Piece]) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in sequence {
        match (joined.last_mut(), piece) {
            (_, Piece::Text(text)) if text.is_empty() => {}
            (Some(Piece::Text(before)), Piece::Text(text)) => before.push_str(text),
            _ => joined.push(piece.clone()),
        }
    }
    joined
}

fn key(sequence: &[Piece]) -> Key {
    sequence.iter().fold(Key::new(""), |key, piece| match piece {
        Piece::Text(text) => key.text(text),
        Piece::Part(value) => key.part(value),
    })
}

fn naming(secret: Option<&[u8]>) -> Naming {
    Naming::new("a:b", secret.map(|secret| Secret::new(secret).expect("long enough")), true)
}

fn slot(naming: &Naming, request: &Request<'_>) -> u16 {
    RedisKeys::new(slice::from_ref(request), naming).expect("a layout that hides keys").first_slot()
}

fn limits() -> [Limit; 2] {
    ["5/10s", "7/1m"].map(|limit| limit.parse().expect("a limit"))
}

fn name(naming: &Naming, request: &Request<'_>) -> String {
    String::from_utf8(naming.key_name(request).to_vec()).expect("a text")
}

const SECRET: &[u8] = b"0123456789abcdef";

/// Two sequences have the same name only if they are equal. The hash tag is the whole subject, whatever braces the
/// values contain. No character of a name needs quoting.
#[test]
fn distinct_sequences_have_distinct_names_and_the_tag_is_the_subject() {
    let sequences = full_or(KEY_COUNT, KEY_COUNT / 20);
    for (naming, sequences) in [(naming(None), sequences), (naming(Some(SECRET)), sequences / 10)] {
        let mut random = Random::new(81);
        let mut seen: HashMap<String, u64> = HashMap::new();
        let mut long = 0_usize;
        for _ in 0..sequences {
            let sequence = sequence(&mut random);
            let key = key(&sequence);
            let limit = limits()[usize::try_from(random.below(2)).expect("small")];
            let request = Request::new(&key, limit, 1);
            let name = name(&naming, &request);
            let mut hasher = DefaultHasher::new();
            (joined(&sequence), limit.window_millis()).hash(&mut hasher);
            let first = *seen.entry(name.clone()).or_insert(hasher.finish());
            assert_eq!(first, hasher.finish(), "{name} is also {sequence:?}");

            let subject = naming.subject(&key).to_string();
            assert!((1..=200).contains(&subject.len()), "{name}");
            long += usize::from(subject.len() == 200);
            let window = if limit == limits()[0] { "10s" } else { "1m" };
            assert_eq!(name, format!("a:b:{{{subject}}}{window}"));
            assert!(!subject.contains(['{', '}']), "{name}");
            assert!(
                name.bytes().all(|byte| byte.is_ascii_graphic() && !b"*?[]$'\"`\\&|;<>()!#~".contains(&byte)),
                "{name}"
            );
            assert_eq!(slot(&naming, &request), slot_of(name.as_bytes()), "{name}");
        }
        assert!(seen.len() > sequences / 3, "{} are different", seen.len());
        assert!(naming.secret.is_some() || long > sequences / 200, "{long} are long");
    }
}

#[test]
fn the_name_and_slot_of_a_set_are_those_of_the_plain_key() {
    let mut random = Random::new(82);
    let (naming, limit) = (naming(None), limits()[0].with_layout(Layout::Zset).expect("a sliding window"));
    for _ in 0..20_000 {
        let key = key(&sequence(&mut random));
        let request = Request::new(&key, limit, 1);
        let name = name(&naming, &request);
        assert_eq!(name, key.spring_set_name());
        assert_eq!(slot(&naming, &request), slot_of(name.as_bytes()), "{name}");
    }
}

#[test]
fn keys_have_the_whole_name_whether_it_is_inline_or_not() {
    for key in [Key::new("a"), Key::new("é".repeat(40)).part("a".repeat(300))] {
        let request = Request::new(&key, limits()[0], 1);
        for prefix in (0..300).map(|len| "é".repeat(len)) {
            let naming = Naming::new(&prefix, None, true);
            let keys = RedisKeys::new(slice::from_ref(&request), &naming).expect("no secret");
            let expected = format!("{prefix}:{{{}}}10s", key.encoded());
            assert_eq!(*keys.as_slice()[0].name, *expected.as_bytes());
        }
    }
}

#[test]
fn the_name_of_calls_at_once_has_no_window() {
    let key = Key::new("a");
    let name = |limit: &str| name(&naming(None), &Request::new(&key, limit.parse().expect("a limit"), 1));
    assert_eq!(name("5 concurrent"), "a:b:{a}slots");
    assert_eq!(name("6 concurrent"), name("5 concurrent"));
}

#[test]
fn each_algorithm_and_window_has_one_short_text() {
    let key = Key::new("a");
    let span = |limit: &str, algorithm| {
        let limit = limit.parse::<Limit>().expect("a limit").with_algorithm(algorithm);
        name(&naming(None), &Request::new(&key, limit, 1)).split_off("a:b:{a}".len())
    };
    let algorithms = [
        (Algorithm::SlidingWindow, "10s"),
        (Algorithm::FixedWindow, "f10s"),
        (Algorithm::SlidingCounter, "c10s"),
        (Algorithm::TokenBucket, "t10s"),
        (Algorithm::LeakyBucket, "l10s"),
    ];
    for (algorithm, expected) in algorithms {
        assert_eq!(span("5/10s", algorithm), expected);
    }
    let windows =
        [("1ms", "1ms"), ("1500ms", "1500ms"), ("60s", "1m"), ("90m", "90m"), ("24h", "1d"), ("366d", "366d")];
    for (window, expected) in windows {
        assert_eq!(span(&format!("5/{window}"), Algorithm::SlidingWindow), expected);
    }
    let mut random = Random::new(83);
    for _ in 0..20_000 {
        let unit = [1, 1000, 60_000, 3_600_000, 86_400_000][usize::try_from(random.below(5)).expect("small")];
        let window = unit * random.between(1, limiter_syntax::MAX_WINDOW_MILLIS / unit);
        let limit = Limit::new(1, std::time::Duration::from_millis(window)).expect("a window");
        let text = name(&naming(None), &Request::new(&key, limit, 1)).split_off("a:b:{a}".len());
        let parsed = format!("1/{text}").parse::<Limit>().expect("a window");
        assert_eq!(parsed.window_millis(), window, "{text}");
    }
}

/// The expected digests were computed by another program.
#[test]
fn a_secret_replaces_the_key_by_its_hmac() {
    let naming = naming(Some(b"0123456789abcdef0123456789abcdef"));
    let cases = [
        (Key::new("user:").part(42), "7733525feda7b31e1c870f189b455066"),
        (Key::new(""), "cde8b6c256d94d362107f3a62e1e39f2"),
        (Key::new("a".repeat(300)), "f48ba3452e2d34167dc96db0029ec97c"),
    ];
    for (key, digest) in cases {
        let name = name(&naming, &Request::new(&key, limits()[0], 1));
        assert_eq!(name, format!("a:b:{{+{digest}}}10s"));
    }
}

#[test]
fn the_slots_of_a_key_are_beside_its_counters_and_have_no_window() {
    let key = Key::new("user:").part(42);
    let request = Request::new(&key, limits()[0], 1);
    for (naming, subject) in [(naming(None), "user:@42"), (naming(Some(SECRET)), "+")] {
        let RedisKey { slot: slots_slot, name } = naming.slots_key(&key);
        assert_eq!(slots_slot, slot(&naming, &request));
        let name = str::from_utf8(&name).expect("text");
        assert!(name.starts_with(&format!("a:b:{{{subject}")) && name.ends_with("}slots"), "{name}");
        assert_ne!(naming.slots_key(&Key::new("user:").part(43)), naming.slots_key(&key));
    }
    let naming = naming(None);
    assert_eq!(naming.notice_channel([0, 1, 2, 3, 4, 5, 0xAB, 255]), "a:b:notices:000102030405abff");
    assert!(naming.notice_channel([0; 8]).starts_with(&naming.notice_channel_prefix()));
}

#[test]
fn names_depend_on_the_secret_alone() {
    let key = Key::new("user:").part("alice");
    let name = |secret: Option<&[u8]>| name(&naming(secret), &Request::new(&key, limits()[0], 1));
    assert_eq!(name(Some(SECRET)), name(Some(SECRET)));
    let names = [name(None), name(Some(SECRET)), name(Some(b"0123456789abcdeg")), name(Some(b"0123456789abcdef0"))];
    let distinct: std::collections::HashSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
}

#[test]
fn a_short_secret_is_rejected() {
    for short in [&b""[..], b"0123456789abcde"] {
        let error = Secret::new(short).expect_err("too short");
        assert_eq!(error.kind(), ErrorKind::Config);
        let expected =
            format!("`hash_keys` must have a secret of at least 16 bytes, got {}: write a longer one", short.len());
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(format!("{:?}", Secret::new(SECRET).expect("long enough")), "..");
}

/// Keys chosen for one slot without the secret are spread over the cluster with it.
#[test]
fn a_secret_spreads_keys_that_were_chosen_for_one_slot() {
    let (open, hidden) = (naming(None), naming(Some(SECRET)));
    let mut slots = std::collections::HashSet::new();
    let mut chosen = 0;
    for number in 0..200_000 {
        let key = Key::new("user:").part(number);
        let request = Request::new(&key, limits()[0], 1);
        if slot(&open, &request) < 64 {
            chosen += 1;
            slots.insert(slot(&hidden, &request));
        }
    }
    assert!(chosen > 500, "{chosen}");
    assert!(slots.len() * 10 > chosen * 9, "{chosen} keys in {} slots", slots.len());
}

/// `!` is in no subject, and a user of the prefix may write both keys that the documented rules allow.
#[test]
fn probe_keys_are_in_one_of_the_slots_and_belong_to_no_counter() {
    let names = |slots: &[_], is_cluster| Naming::new("app", None, is_cluster).probe_keys(slots);
    let single = names(&[0..=0], false).expect("one slot");
    assert_eq!(single, ["app:{!probe}", "CurrentLimiter:{!probe}"]);
    for slots in [vec![7..=7], vec![16_383..=16_383], vec![1..=1, 100..=8_000], vec![0..=16_383]] {
        for name in names(&slots, true).expect("a name for each slot") {
            assert!(slots.iter().any(|range| range.contains(&slot_of_name(name.as_bytes()))), "{name} in {slots:?}");
            assert!(name.contains(":{!"), "{name}");
        }
    }
    assert_eq!(names(&[], true), None);
}

/// The mark is written by the script that reads the counter, so both must be in one slot.
#[test]
fn the_mark_of_a_receipt_is_in_the_slot_of_its_counter() {
    let naming = Naming::new("rl", None, true);
    let compact: Limit = "5/10s".parse().expect("a limit");
    let zset = compact.with_layout(Layout::Zset).expect("a sliding window");
    let mut unmarked = 0;
    for (first, second) in PIECES.iter().flat_map(|first| PIECES.iter().map(move |second| (first, second))) {
        let key = Key::new(format!("{first}{second}")).part(first);
        for key in [key, Key::new(format!("{first}x{second}"))] {
            for limit in [compact, zset] {
                let counter = naming.redis_key(&Request::new(&key, limit, 1));
                let mark = naming.receipt_key(&counter, [9; 16]);
                assert!(mark.is_some() || limit == zset, "each key with a prefix has a hash tag: {first}, {second}");
                unmarked += u32::from(mark.is_none());
                let Some(mark) = mark else { continue };
                assert_eq!(slot_of(&mark.name), counter.slot, "{first}, {second}");
                assert_ne!(naming.receipt_key(&counter, [8; 16]), Some(mark.clone()));
                assert!(mark.name.ends_with(&format!(":receipt:{}", "09".repeat(16)).into_bytes()));
            }
        }
    }
    assert!(unmarked > 0, "a set with a brace in its name may have none");
}

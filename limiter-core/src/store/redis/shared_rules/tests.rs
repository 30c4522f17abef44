use limiter_testkit::{Random, full_or};
use redis::Value;

use super::{PublishedText, StoredText, StoredVersion};
use crate::ErrorKind;

fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

#[test]
fn a_version_is_a_number_and_a_digest() {
    assert_eq!(StoredVersion::decode(Value::Nil).expect("nothing"), None);
    let cases = [
        ("7 abc", "abc", 0, false),
        ("7 abc:12", "abc", 12, false),
        ("7 abc:12:restored", "abc", 12, true),
        ("7 abc:0:restored", "abc", 0, true),
        // Whatever else a version has, it is published.
        ("7 abc:x", "abc:x", 0, false),
        ("7 abc:12:newer", "abc:12:newer", 0, false),
        ("7 abc:", "abc:", 0, false),
    ];
    for (text, digest, published_micros, is_restored) in cases {
        let expected = StoredVersion { number: 7, digest: digest.to_owned(), published_micros, is_restored };
        assert_eq!(StoredVersion::decode(bulk(text)).expect(text), Some(expected));
    }
    for text in ["", "7", "abc def", "-1 abc", "7.5 abc", "99999999999999999999 abc"] {
        assert_eq!(StoredVersion::decode(bulk(text)).expect_err(text).kind(), ErrorKind::Protocol);
    }
    assert!(StoredVersion::decode(Value::Int(7)).is_err());
}

#[test]
fn a_text_needs_its_version() {
    let decode = |version, toml| StoredText::decode(Value::Array(vec![version, toml]));
    for toml in [Value::Nil, bulk("x")] {
        assert!(decode(Value::Nil, toml).expect("nothing").is_none());
    }
    let text = |toml| decode(bulk("7 abc"), toml).expect("a version").expect("a version").1;
    assert_eq!(text(bulk("x")).map(|text| (text.version.number, text.toml)), Some((7, b"x".to_vec())));
    assert!(text(Value::Nil).is_none());
    assert_eq!(decode(bulk("7"), bulk("x")).expect_err("no digest").kind(), ErrorKind::Protocol);
    assert!(StoredText::decode(Value::Array(vec![bulk("7 abc")])).is_err());
    assert!(StoredText::decode(Value::Nil).is_err());
}

#[test]
fn an_entry_of_the_history_has_its_details_before_the_text() {
    let decode = |text: &str| PublishedText::decode_all(Value::Array(vec![bulk(text)]));
    let (toml, who, why) = ("a = 1\n".to_owned(), "ann".to_owned(), "é\n".to_owned());
    let expected = PublishedText { version: 3, toml, who, why, micros: 1_700_000_000_000_000 };
    let entry = "3 1700000000000000 12 3 3\nanné\na = 1\n";
    assert_eq!(decode(entry).expect("an entry"), [expected]);
    assert_eq!(PublishedText::decode_all(Value::Array(Vec::new())).expect("none"), []);
    for text in
        ["", "3 1 12 3 3", "3 1 12 3\nabcabc", "3 1 12 9 9\nabc", "x 1 12 0 0\n", "3 1 12 99999999999999999999 0\n"]
    {
        assert_eq!(decode(text).expect_err(text).kind(), ErrorKind::Protocol);
    }
}

#[test]
fn changed_entries_are_entries_or_errors() {
    let mut random = Random::new(15);
    for _ in 0..full_or(1_000_000, 50_000) {
        let mut entry = b"3 1700000000000000 12 3 3\nannwhy[rules.a]\n".to_vec();
        for _ in 0..1 + random.below(3) {
            let at = usize::try_from(random.below(entry.len() as u64)).expect("small");
            entry[at] = u8::try_from(random.below(256)).expect("a byte");
        }
        if let Ok(entries) = PublishedText::decode_all(Value::Array(vec![Value::BulkString(entry)])) {
            assert_eq!(entries.len(), 1);
        }
    }
}

/// The parsers of a version in the first release with shared rules: that of its processes, and that of its script.
fn released_number(stored: &str) -> Option<u64> {
    let number: u64 = stored.split_once(' ').and_then(|(number, _)| number.parse().ok())?;
    // `string.match(present, '^(%d+) %S+$')`
    let (digits, word) = stored.split_once(' ')?;
    let is_matched = digits.bytes().all(|byte| byte.is_ascii_digit())
        && !word.is_empty()
        && !word.contains(|letter: char| letter.is_ascii_whitespace());
    is_matched.then_some(number)
}

#[test]
fn earlier_releases_read_every_form_of_a_version() {
    let digest = "da39a3ee5e6b4b0d3255bfef95601890afd80709";
    for stored in [
        format!("41 {digest}"),
        format!("41 {digest}:1700000000000000"),
        format!("41 {digest}:1700000000000000:restored"),
    ] {
        assert_eq!(released_number(&stored), Some(41), "{stored}");
        let version = StoredVersion::decode(bulk(&stored)).expect("a version").expect("a version");
        assert_eq!((version.number, &*version.digest), (41, digest), "{stored}");
    }
}

#[test]
fn only_a_text_that_was_put_back_is_replaced_and_only_by_a_later_one() {
    let version = |published_micros, is_restored| StoredVersion {
        number: 7,
        digest: "abc".to_owned(),
        published_micros,
        is_restored,
    };
    for known_is_restored in [false, true] {
        let known = |micros| version(micros, known_is_restored);
        assert!(known(2).replaces(&version(1, true)));
        assert!(known(2).replaces(&version(0, true)), "its time is unknown");
        for (micros, present) in [
            (1, version(1, true)),
            (1, version(2, true)),
            (2, version(1, false)),
            (9, version(0, false)),
            (0, version(0, true)),
        ] {
            assert!(!known(micros).replaces(&present), "{micros} over {present:?}");
        }
    }
}

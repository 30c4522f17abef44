use limiter_testkit::{Random, full_or};
use redis::Value;

use super::entry::StoredVersion;
use super::{PublishedText, StoredText};
use crate::ErrorKind;

fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

#[test]
fn a_version_is_a_number_and_a_digest() {
    assert_eq!(StoredVersion::decode(Value::Nil).expect("nothing"), None);
    let number = |text: &str| StoredVersion::decode(bulk(text)).expect("bytes").expect("a value").number();
    assert_eq!(number("7 abc").expect("a version"), 7);
    for text in ["", "7", "abc def", "-1 abc", "7.5 abc", "99999999999999999999 abc"] {
        assert_eq!(number(text).expect_err(text).kind(), ErrorKind::Protocol);
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
    assert_eq!(text(bulk("x")).map(|text| (text.version, text.toml)), Some((7, b"x".to_vec())));
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

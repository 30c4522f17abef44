//! The fields and bodies of answers, as clients read them.

use std::collections::BTreeMap;

use serde_json::Value;
use sfv::{BareItem, List, ListEntry, Parser};

use crate::client::Answer;

/// A member of a list: its string, and its parameters.
pub(crate) type Member = (String, BTreeMap<String, i64>);

/// Returns the members of a field that is a list of strings with parameters that are integers.
pub(crate) fn members(answer: &Answer, field: &str) -> Vec<Member> {
    let text = answer.field(field).unwrap_or_else(|| panic!("{answer:?} has no {field}"));
    let list: List = Parser::new(&text).parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    let member = |entry: &ListEntry| {
        let ListEntry::Item(item) = entry else { panic!("{text}: an inner list") };
        let BareItem::String(name) = &item.bare_item else { panic!("{text}: no string") };
        let integer = |value: &BareItem| match value {
            BareItem::Integer(value) => i64::from(*value),
            other => panic!("{text}: {other:?}"),
        };
        let parameters = item.params.iter().map(|(key, value)| (key.as_str().to_owned(), integer(value)));
        (name.as_str().to_owned(), parameters.collect())
    };
    list.iter().map(member).collect()
}

/// Returns the parameters of one rule.
pub(crate) fn of_rule(answer: &Answer, field: &str, rule: &str) -> BTreeMap<String, i64> {
    let member = members(answer, field).into_iter().find(|(name, _)| name == rule);
    member.unwrap_or_else(|| panic!("{answer:?}: no {rule} in {field}")).1
}

/// Checks the fields of an answer with 200 or 429: one member of each list for each of these rules.
pub(crate) fn check_fields(answer: &Answer, rules: &[&str]) {
    let has = |member: &Member, keys: [&str; 2]| {
        member.1.keys().collect::<Vec<_>>() == keys && member.1.values().all(|value| *value >= 0)
    };
    let (policies, quotas) = (members(answer, "ratelimit-policy"), members(answer, "ratelimit"));
    for (list, keys) in [(&policies, ["q", "w"]), (&quotas, ["r", "t"])] {
        let names: Vec<_> = list.iter().map(|member| &*member.0).collect();
        assert_eq!(names, rules, "{answer:?}");
        assert!(list.iter().all(|member| has(member, keys)), "{answer:?}");
    }
    for (policy, quota) in policies.iter().zip(&quotas) {
        assert!(quota.1["r"] <= policy.1["q"], "{answer:?}");
    }
}

/// Checks fields and body of a denial by the first of these rules. Returns its `Retry-After` in seconds.
pub(crate) fn check_denial(answer: &Answer, rules: &[&str]) -> u64 {
    assert_eq!(answer.status, 429, "{answer:?}");
    check_fields(answer, rules);
    let field = |name| answer.field(name);
    assert_eq!(field("content-type").as_deref(), Some("application/problem+json"), "{answer:?}");
    assert_eq!(field("cache-control").as_deref(), Some("no-store"), "{answer:?}");
    let seconds: u64 = field("retry-after").and_then(|text| text.parse().ok()).expect("one number");
    assert!(seconds >= 1, "{answer:?}");
    let quota = of_rule(answer, "ratelimit", rules[0]);
    assert_eq!(quota["r"], 0, "{answer:?}");
    assert!(u64::try_from(quota["t"]).expect("positive") <= seconds, "{answer:?}");

    let body: Value = serde_json::from_str(&answer.body).expect("JSON");
    let mut names: Vec<_> = body.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["retry_after_ms", "status", "title", "type", "violated-policies"], "{body}");
    assert_eq!(body["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(body["status"], 429);
    assert!(body["title"].is_string(), "{body}");
    assert_eq!(body["violated-policies"], Value::from(vec![rules[0]]));
    // The field drops a part of a millisecond that the body rounds up.
    let millis = body["retry_after_ms"].as_u64().expect("a number");
    let whole_seconds = [millis - 1, millis].map(|millis| millis.div_ceil(1_000).max(1));
    assert!(whole_seconds.contains(&seconds), "{seconds}, {body}");
    seconds
}

//! Tests of the number of instances: which limiters count for a key, and how the number follows a fleet.

use super::*;
use crate::Algorithm;

const INTERVAL: Duration = Duration::from_secs(5);

fn live(at_least: u32) -> Instances {
    let at_least = NonZeroU32::new(at_least).expect("some");
    Instances::new(InstancesSetting::Live { at_least }, INTERVAL)
}

fn counts(of: &[(&str, u32)]) -> LiveCounts {
    of.iter().map(|(inventory, number)| ((*inventory).to_owned(), *number)).collect()
}

fn limit(text: &str) -> Limit {
    text.parse().expect("a limit")
}

/// The counters of rules: a name, the template of its keys and its limit, which may be unknown.
fn counters(rules: &[(&str, Option<&str>, Option<&str>)]) -> CounterFamilies {
    CounterFamilies::new(rules.iter().map(|(rule, template, of)| {
        let shape = template.map(|template| KeyShape::of_template(template).expect("a template"));
        CounterFamily::new(rule, shape, of.map(limit).as_ref())
    }))
}

fn user() -> Key {
    Key::new("user:").part(42)
}

#[test]
fn a_limit_is_shared_by_the_limiters_that_can_count_its_key() {
    let own = counters(&[("search", Some("user:{user_id}"), Some("5/10s")), ("mail", None, Some("5/10s"))]);
    let instances = live(1);
    let heard = instances.heard();
    heard.set_own("own", own.clone());
    heard.hear(counts(&[("shops", 3), ("mailers", 50), ("named", 2), ("unread", 1)]), Duration::ZERO);
    assert_eq!(instances.sharing(&user(), &limit("5/10s")).get(), 56, "nothing is read");
    heard.set_counters("shops", own);
    heard.set_counters("mailers", counters(&[("mail", Some("mail:{to}"), Some("5/10s"))]));
    // It has the rule, and its keys become known at its first call.
    heard.set_counters("named", counters(&[("search", None, None)]));
    assert_eq!(heard.unread(), ["unread"]);
    heard.set_counters("unread", counters(&[]));
    for (key, of, expected) in [
        (user(), limit("5/10s"), 5),
        (user(), limit("9/10s"), 5),
        (Key::new("user:").part("a@b"), limit("5/10s"), 5),
        // No own rule makes these counters.
        (user(), limit("5/11s"), 56),
        (user(), limit("5/10s").with_algorithm(Algorithm::TokenBucket), 56),
        (Key::new("user:42"), limit("5/10s"), 56),
        (user().text("/").part(1), limit("5/10s"), 56),
        (Key::new("").part("x".repeat(300)), limit("5/10s"), 56),
        (Key::from_encoded(&format!("+{}", "0".repeat(32))).expect("a digest"), limit("5/10s"), 56),
    ] {
        for _ in 0..2 {
            assert_eq!(instances.sharing(&key, &of).get(), expected, "{of}");
        }
    }
}

#[test]
fn a_key_of_a_rule_with_limits_for_some_calls_is_of_each_window() {
    let instances = live(1);
    let own = counters(&[("search", Some("user:{user_id}"), Some("5/10s")), ("search", Some("user:{user_id}"), None)]);
    instances.heard().set_own("own", own.clone());
    instances.heard().hear(counts(&[("shops", 3), ("mailers", 50)]), Duration::ZERO);
    instances.heard().set_counters("shops", own);
    instances.heard().set_counters("mailers", counters(&[("mail", Some("mail:{to}"), None)]));
    assert_eq!(instances.sharing(&user(), &limit("7/1m")).get(), 3);
    assert_eq!(instances.sharing(&Key::new("mail:").part(1), &limit("7/1m")).get(), 53);
}

/// The others follow a change of the rule with their next heartbeat.
#[test]
fn limiters_with_another_window_of_the_same_rule_count() {
    let instances = live(1);
    instances.heard().set_own("own", counters(&[("search", Some("user:{user_id}"), Some("5/1m"))]));
    instances.heard().hear(counts(&[("before", 9), ("after", 1)]), Duration::ZERO);
    instances.heard().set_counters("before", counters(&[("search", Some("user:{user_id}"), Some("5/10s"))]));
    instances.heard().set_counters("after", counters(&[("search", Some("user:{user_id}"), Some("5/1m"))]));
    assert_eq!(instances.sharing(&user(), &limit("5/1m")).get(), 10);
}

#[test]
fn counters_are_read_as_they_were_written() {
    let some = counters(&[("a", Some("a:{b}"), Some("5/10s")), ("b", None, None)]);
    let many = CounterFamilies::new((0..3_000).map(|number| CounterFamily::new(&number.to_string(), None, None)));
    for written in [some.clone(), counters(&[]), many.clone()] {
        let text = format!("{{\"rule\":\"a\"}}\n{}\n{{\"left_out\":3}}\n", written.line());
        assert_eq!(CounterFamilies::of_inventory(&text), written);
    }
    let any = many;
    let line = some.line();
    for foreign in
        ["", "{\"counters\":\"\u{1b}\"}", "{\"counters\":\"00\"}", &line[..line.len() - 3], &line.replace('0', "x")]
    {
        assert_eq!(CounterFamilies::of_inventory(foreign), any, "{foreign}");
    }
    assert_eq!(CounterFamilies::of_inventory(&"{\"counters\":\"".repeat(10_000)), any);
}

/// The numbers that a limiter has while a fleet changes. Each step is the seconds until a heartbeat, and what it hears: `None`
/// while it is cut off.
fn over_time(steps: &[(u32, Option<u32>)]) -> Vec<(u64, u32)> {
    let (instances, mut numbers) = (live(1), Vec::new());
    let (mut now, mut heard_at) = (0, None);
    for (number_of_steps, heard) in steps {
        for _ in 0..*number_of_steps {
            if let Some(number) = heard {
                let passed = Duration::from_secs(heard_at.map_or(0, |at| now - at));
                instances.heard().hear(counts(&[("shops", *number)]), passed);
                heard_at = Some(now);
            }
            let number = instances.sharing(&user(), &limit("5/10s")).get();
            if numbers.last().is_none_or(|(_, last)| *last != number) {
                numbers.push((now, number));
            }
            now += INTERVAL.as_secs();
        }
    }
    numbers
}

/// docs/live.md has these.
#[test]
fn the_number_rises_at_once_and_falls_after_a_minute_of_connected_time() {
    let heartbeats = |number: u32| (number, Some(5));
    for (name, steps, expected) in [
        ("a deploy: 5, 10, 5", vec![heartbeats(2), (6, Some(10)), (20, Some(5))], vec![(0, 5), (10, 10), (100, 5)]),
        ("a scale-down: 10, 2", vec![(4, Some(10)), (20, Some(2))], vec![(0, 10), (80, 2)]),
        (
            "a scale-down in two steps",
            vec![(2, Some(10)), (6, Some(6)), (20, Some(2))],
            vec![(0, 10), (70, 6), (100, 2)],
        ),
        ("an outage of an hour", vec![(2, Some(6)), (720, None), (20, Some(6))], vec![(0, 6)]),
        ("none but this one after an outage", vec![(2, Some(6)), (720, None), (20, Some(1))], vec![(0, 6), (3670, 1)]),
        ("a failover to an empty replica", vec![(2, Some(6)), (1, Some(1)), (1, Some(4)), (30, Some(6))], vec![(0, 6)]),
        ("one that stood still for an hour", vec![(2, Some(6)), (719, None), (12, Some(2))], vec![(0, 6)]),
    ] {
        assert_eq!(over_time(&steps), expected, "{name}");
    }
}

#[test]
fn the_least_number_holds_before_a_greater_one_is_heard() {
    let instances = live(4);
    let number = || instances.sharing(&user(), &limit("5/10s")).get();
    assert_eq!((number(), instances.is_one()), (4, false));
    instances.heard().hear(counts(&[("shops", 3)]), Duration::ZERO);
    assert_eq!(number(), 4);
    instances.heard().hear(counts(&[("shops", 9)]), INTERVAL);
    assert_eq!(number(), 9);
}

#[test]
fn the_log_has_the_number_and_its_origin() {
    let set = |number| Instances::new(InstancesSetting::Number(NonZeroU32::new(number).expect("some")), INTERVAL);
    for (instances, heard, expected) in [
        (set(1), 0, "`instances(1)`"),
        (set(1), 1, "1 live limiter, `instances(1)`"),
        (set(1), 7, "7 live limiters, `instances(1)`: up to 7 times each limit"),
        (set(3), 7, "7 live limiters, `instances(3)`: up to 3 times each limit"),
        (set(7), 7, "7 live limiters, `instances(7)`"),
        (live(2), 0, "no number of live limiters yet, 2 assumed"),
        (live(8), 7, "7 live limiters, at least 8"),
        (live(1), 7, "7 live limiters of the prefix, by heartbeats"),
    ] {
        if heard > 0 {
            instances.heard().hear(counts(&[("shops", heard)]), Duration::ZERO);
        }
        assert_eq!(instances.described(), expected);
    }
}

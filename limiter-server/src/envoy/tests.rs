//! The YAML of Envoy's service as rules.

use std::fs;
use std::path::PathBuf;

use rate_limited::Mode;
use tempfile::TempDir;

use super::*;

/// Files of a directory of their own.
fn files(files: &[(&str, &str)]) -> (TempDir, Vec<PathBuf>) {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        fs::write(directory.path().join(name), text).expect("a file");
    }
    let paths = vec![directory.path().to_path_buf()];
    (directory, paths)
}

fn domains(text: &str) -> EnvoyDomains {
    let (_directory, paths) = files(&[("a.yaml", text)]);
    EnvoyDomains::read(&paths).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

/// Returns the rule and the values of a descriptor such as `key=value key=value`.
fn found(domains: &EnvoyDomains, domain: &str, descriptor: &str) -> Option<String> {
    let entries: Vec<_> = descriptor.split(' ').map(|entry| entry.split_once('=').expect("an entry")).collect();
    let found = domains.find(domain, entries.into_iter())?;
    Some(format!("{} {:?}", found.rule.name(), found.values))
}

#[test]
fn the_most_specific_descriptor_of_each_level_decides() {
    let domains = domains(
        "domain: d
descriptors:
  - key: path
    rate_limit: {unit: second, requests_per_unit: 1}
  - key: path
    value: /api
    rate_limit: {unit: second, requests_per_unit: 2}
    descriptors:
      - key: user
        rate_limit: {unit: second, requests_per_unit: 3}
      - key: user
        value: \"42\"
        rate_limit: {unit: second, requests_per_unit: 4}
  - key: path
    value: /api*
    rate_limit: {unit: second, requests_per_unit: 5}
  - key: path
    value: /api/v2/*
    rate_limit: {unit: second, requests_per_unit: 6}
  - key: outer
    descriptors:
      - key: path
        value: '*'
        rate_limit: {unit: second, requests_per_unit: 7}
",
    );
    for (descriptor, expected) in [
        ("path=/", Some("d.path [\"/\"]")),
        ("path=/api", Some("d.path_/api []")),
        ("path=/apis", Some("d.path_/api* [\"/apis\"]")),
        ("path=/api/v2/a", Some("d.path_/api/v2/* [\"/api/v2/a\"]")),
        ("path=/api user=42", Some("d.path_/api.user_42 []")),
        ("path=/api user=7", Some("d.path_/api.user [\"7\"]")),
        // The exact value is taken, also where another one would have a limit below.
        ("path=/apis user=7", None),
        ("outer=a path=/b", Some("d.outer.path_* [\"a\", \"/b\"]")),
        ("outer=a", None),
        ("user=42", None),
        ("path=/api user=42 more=1", None),
    ] {
        assert_eq!(found(&domains, "d", descriptor).as_deref(), expected, "{descriptor}");
    }
    assert_eq!(found(&domains, "other", "path=/"), None);
}

#[test]
fn a_descriptor_is_a_rule_below_the_shared_rules() {
    let domains = domains(
        "domain: d
descriptors:
  - key: x-user
    descriptors:
      - key: path
        value: /a{b}*
        rate_limit: {name: n, unit: MINUTE, requests_per_unit: 5, unit_multiplier: 2}
        shadow_mode: true
  - key: tokens
    rate_limit: {limit: 1000/30s, algorithm: token_bucket, burst: 10, postpaid: true}
    detailed_metric: true
  - key: open
    rate_limit: {unlimited: true}
  - key: closed
    rate_limit: {unit: day, requests_per_unit: 0}
  - key: model
    rate_limit: {unit: year, requests_per_unit: 7}
    quota_mode: true
",
    );
    let limiter = Limiter::memory();
    domains.set_rules(&limiter, None).expect("rules");
    let rules: Vec<_> = limiter
        .rules()
        .iter()
        .map(|rule| {
            let limits: Vec<_> = rule.limits().iter().map(ToString::to_string).collect();
            format!("{} {} {:?} {}", rule.name(), limits.join(","), rule.mode(), rule.key().unwrap_or_default())
        })
        .collect();
    assert_eq!(
        rules,
        [
            "d.closed 1/d Deny d.closed:{closed}",
            "d.model 7/365d Shadow d.model:{model}",
            "d.open  Off d.open:{open}",
            "d.tokens 1000/30s Enforce d.tokens:{tokens}",
            "d.x-user.path_/a{b}* 5/2m Shadow d.x-user:{x_user}.path_/a{{b}}*:{path}",
        ]
    );
    // A higher level changes one rule, and one key of it.
    let shared = "[rules.\"d.closed\"]\nlimit = \"3/s\"\nmode = \"enforce\"\n[[rules.\"d.closed\".override]]\n\
        match = { closed = \"42\" }\nlimit = \"4/s\"";
    limiter.set_rules(shared.parse().expect("rules")).expect("rules");
    let rule = limiter.rules().into_iter().find(|rule| rule.name() == "d.closed").expect("the rule");
    assert_eq!((rule.limits()[0].to_string(), rule.mode(), rule.overrides()), ("3/s".to_owned(), Mode::Enforce, 1));
}

#[test]
fn every_mistake_of_all_files_has_its_place() {
    let (directory, mut paths) = files(&[
        (
            "a.yaml",
            "domain: a
descriptor: []
descriptors:
  - key: k
    valeu: v
    rate_limit:
      unit: fortnight
      requests_per_unit: -1
    shadow_mode: maybe
  - value: v
  - key: k
    rate_limit: {requests_per_unit: 1}
  - key: k2
    rate_limit: {unlimited: true, unit: second}
  - key: k3
    rate_limit: {limit: 5/x}
  - key: k4
    share_threshold: true
    value_to_metric: true
    rate_limit: {limit: 5/s, unit: second}
  - key: k5
    rate_limit: {limit: 5/s, hold: 1h}
  - key: k6
    rate_limit: {name: n, unit: second, requests_per_unit: 1, replaces: [{name: n}, {}]}
  - key: k7
    rate_limit: {limit: 5/s, algorithm: tokenbucket}
  - key: k7
  - [k8]
",
        ),
        ("b.yaml", "domain: b\ndescriptors: [{key: k, rate_limit: {limit: 5/s, burst: 3, algorithm: fixed_window}}]\n"),
        ("c.yml", "domain: b\n"),
        ("g.yaml", "descriptors: [{key: k}]\ndomain: g\n"),
        ("d.yaml", "descriptors: []\n"),
        ("e.yaml", "domain: [\n"),
        ("f.yaml", ""),
        (".hidden.yaml", "not: read"),
        ("notes.txt", "not read"),
    ]);
    paths.push(directory.path().join("missing.yaml"));
    let mistakes = EnvoyDomains::read(&paths).expect_err("mistakes");
    let start = format!("{}/", directory.path().display());
    let mut lines: Vec<_> = mistakes.iter().map(|mistake| mistake.to_string().replace(&start, "")).collect();
    lines.sort();
    let expected = include_str!("tests/mistakes.txt");
    assert_eq!(lines.join("\n") + "\n", expected);
}

#[test]
fn a_rule_that_contradicts_itself_or_a_higher_level_has_its_place() {
    let text = "domain: b
descriptors:
  - {key: ok, rate_limit: {limit: 5/s}}
  - {key: k, rate_limit: {limit: 5/s, burst: 3, algorithm: fixed_window}}
  - {key: c, rate_limit: {limit: 5 concurrent, postpaid: true}}
";
    let (directory, paths) = files(&[("b.yaml", text)]);
    let limiter = Limiter::memory();
    let mistakes = EnvoyConfig::load(paths.clone(), &limiter).expect_err("contradictions");
    let mut places: Vec<_> = mistakes.iter().map(|mistake| mistake.to_string()).collect();
    places.sort();
    let file = directory.path().join("b.yaml").display().to_string();
    assert!(places[0].starts_with(&format!("{file}:4:5: `burst`")), "{places:#?}");
    assert!(places[1].starts_with(&format!("{file}:5:5: `postpaid`")), "{places:#?}");
    limiter.set_rules("[rules.\"b.ok\"]\nkey = \"other:{id}\"".parse().expect("rules")).expect("rules");
    fs::write(directory.path().join("b.yaml"), "domain: b\ndescriptors: [{key: ok, rate_limit: {limit: 5/s}}]")
        .expect("a file");
    let mistakes = EnvoyConfig::load(paths, &limiter).expect_err("another key");
    assert!(mistakes[0].to_string().starts_with(&format!("{file}:2:15: `key` of the rule `b.ok`")), "{mistakes:#?}");
}

#[test]
fn a_changed_file_is_in_force_and_a_broken_one_keeps_the_last_good_one() {
    let text = |key: &str| format!("domain: d\ndescriptors: [{{key: {key}, rate_limit: {{limit: 5/s}}}}]\n");
    let (directory, paths) = files(&[("a.yaml", &text("one"))]);
    let limiter = Limiter::memory();
    let config = EnvoyConfig::load(paths, &limiter).expect("rules");
    let names = || limiter.rules().iter().map(|rule| rule.name().to_owned()).collect::<Vec<_>>();
    let write = |text: &str| {
        // Another file under the name, as editors and Kubernetes have it.
        let next = directory.path().join("next");
        fs::write(&next, text).expect("a file");
        fs::rename(&next, directory.path().join("a.yaml")).expect("the same directory");
    };
    assert_eq!(names(), ["d.one"]);
    write("domain: d\ndescriptors: [{keys: one}]\n");
    config.refresh(&limiter, || ());
    assert_eq!((names(), config.mistakes().len()), (vec!["d.one".to_owned()], 2));
    assert!(found(&config.domains(), "d", "one=1").is_some());
    write(&text("two"));
    config.refresh(&limiter, || ());
    // Calls that had begun before still have their rule.
    assert_eq!((names(), config.mistakes().len()), (vec!["d.one".to_owned(), "d.two".to_owned()], 0));
    assert!(found(&config.domains(), "d", "one=1").is_none());
    assert!(found(&config.domains(), "d", "two=1").is_some());
    config.refresh(&limiter, || ());
    assert_eq!(names(), ["d.two"]);
    fs::remove_file(directory.path().join("a.yaml")).expect("a file");
    config.refresh(&limiter, || ());
    assert_eq!((names(), config.mistakes().len()), (vec!["d.two".to_owned()], 1));
}

#[test]
fn a_file_without_limits_keeps_the_last_good_ones() {
    let text = "domain: d\ndescriptors:\n- {key: one, rate_limit: {limit: 5/s}}\n";
    let (directory, paths) = files(&[("a.yaml", text)]);
    let limiter = Limiter::memory();
    let config = EnvoyConfig::load(paths.clone(), &limiter).expect("rules");
    // As it is in the middle of a write.
    for begun in ["domain: d\n", "domain: d\ndescriptors:\n- {key: one}\n"] {
        fs::write(directory.path().join("a.yaml"), begun).expect("a file");
        config.refresh(&limiter, || ());
        let mistakes = config.mistakes();
        assert_eq!(mistakes.len(), 1, "{mistakes:#?}");
        assert!(
            mistakes[0].to_string().contains("a.yaml:1:9: a domain must have limits, got none in `d`"),
            "{mistakes:#?}"
        );
        assert!(found(&config.domains(), "d", "one=1").is_some());
        assert_eq!(limiter.rules().len(), 1);
        EnvoyConfig::load(paths.clone(), &Limiter::memory()).expect_err("a start");
    }
    fs::write(directory.path().join("a.yaml"), text).expect("a file");
    config.refresh(&limiter, || ());
    assert_eq!(config.mistakes(), []);
}

#[test]
fn a_mistake_ends_without_a_change_of_a_file() {
    let text = |key: &str| format!("domain: d\ndescriptors: [{{key: {key}, rate_limit: {{limit: 5/s}}}}]\n");
    let (directory, paths) = files(&[("a.yaml", &text("one"))]);
    let limiter = Limiter::memory();
    let config = EnvoyConfig::load(paths, &limiter).expect("rules");
    // A rule of a higher level has another key.
    limiter
        .set_rules("[rules.\"d.two\"]\nkey = \"other:{id}\"\nlimit = \"1/s\"".parse().expect("rules"))
        .expect("rules");
    fs::write(directory.path().join("a.yaml"), text("two") + "# longer\n").expect("a file");
    config.refresh(&limiter, || ());
    assert_eq!(config.mistakes().len(), 1);
    limiter.set_rules(RuleSet::new()).expect("rules");
    config.refresh(&limiter, || ());
    assert_eq!(config.mistakes(), []);
    assert!(found(&config.domains(), "d", "two=1").is_some());
}

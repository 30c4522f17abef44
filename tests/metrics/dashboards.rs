//! The dashboards and the document name only series and labels that the limiter records.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use limiter_testkit::{RedisServer, unique};
use rate_limited::{ErrorKind, Limit, Limiter, ManualClock, Mode, OnError, Rule, RuleSet, rate_limited};
use serde_json::Value;

use crate::recorder::Collector;
use crate::{child_process, key, limit};

/// The labels of each series with their recorded values.
type Recorded = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn file(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn dashboards_alerts_and_document_name_the_recorded_series() {
    child_process::run("dashboards::compare_with_a_recording", &[("X", "")]);
}

#[tokio::test]
#[ignore = "needs a process of its own"]
async fn compare_with_a_recording() {
    if !child_process::is_child() {
        return;
    }
    Collector::installed();
    record_everything().await;
    let recorded = recorded();
    assert_eq!(documented(), labels_of(&recorded), "docs/metrics.md and the recording");
    let queries = grafana_queries().into_iter().chain(alert_queries());
    let problems: Vec<_> = queries.flat_map(|query| problems_of(&query, &recorded)).collect();
    assert_eq!(problems, [""; 0]);
}

#[rate_limited(key = "unconfigured", limit = configured, fallback = ())]
async fn unconfigured() {}

/// Makes the limiter record each of its series.
async fn record_everything() {
    let limit = limit("2/1m");
    let shadow = RuleSet::new().rule("shadow", Rule::new().mode(Mode::Shadow));
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.toml");
    fs::write(&file, "").expect("writes");
    let builder = Limiter::builder().rules(shadow).rules_file(&file).max_keys(2).clock(ManualClock::new());
    let memory = builder.build().expect("builds");
    for _ in 0..3 {
        let _ = memory.named("enforced").check(&key("a"), &limit).await.expect("decides");
        let _ = memory.named("shadow").check(&key("b"), &limit).await.expect("decides");
    }
    let _ = memory.named("full").check(&key("c"), &limit).await.expect("decides");
    let waited = memory.named("waited").wait(&key("d"), &limit, Duration::from_secs(1)).await.expect("decides");
    memory.refund(&waited.into_result().expect("allowed")).await.expect("refunds");
    memory.named("charged").charge(&key("e"), &limit, 5).await.expect("charges");
    memory.scope(unconfigured()).await;
    let invalid = RuleSet::new().rule("enforced", Rule::new().deadline(Duration::ZERO));
    assert!(memory.set_rules(invalid).is_err());
    for on_error in [OnError::Standby, OnError::Open] {
        let failing = Limiter::builder().failing(ErrorKind::Timeout).on_error(on_error).build().expect("builds");
        let _ = failing.named("failing").check(&key("a"), &limit).await.expect("decides");
    }
    let mut server = RedisServer::start();
    let redis = Limiter::builder().url(server.url()).prefix(unique("test")).deadline(Duration::from_secs(30));
    let (lost, mut is_lost) = tokio::sync::mpsc::unbounded_channel();
    let redis = redis.slot_time(Duration::from_secs(1)).on_lost(move |_| {
        let _ = lost.send(());
    });
    let redis = redis.connect().await.expect("connects");
    let _ = redis.named("redis").check(&key("a"), &limit).await.expect("decides");
    let _ = redis.named("redis").peek(&key("a"), &limit).await.expect("decides");
    redis.named("redis").reset(&key("a"), &limit).await.expect("resets");
    let at_once = Limit::concurrent(2).expect("valid");
    let _held = redis.named("slots").enter(&key("a"), &at_once).await.expect("decides").entered().expect("free");
    server.kill();
    is_lost.recv().await.expect("its slot is lost");
}

/// Returns the recorded series, read from texts such as `name{label="value",other="value"}`.
fn recorded() -> Recorded {
    let mut recorded = Recorded::new();
    for text in Collector::installed().names() {
        let (name, labels) = text.split_once('{').unwrap_or((&text, "}"));
        let series = recorded.entry(name.to_owned()).or_default();
        for label in labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty()) {
            let (label, value) = label.split_once('=').expect("a value");
            series.entry(label.to_owned()).or_default().insert(value.trim_matches('"').to_owned());
        }
    }
    recorded
}

fn labels_of(recorded: &Recorded) -> BTreeMap<String, BTreeSet<String>> {
    recorded.iter().map(|(name, labels)| (name.clone(), labels.keys().cloned().collect())).collect()
}

/// Returns the series of the document's table, with their labels: lines such as `| `name` | kind | `label`, `other` |`.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = file("docs/metrics.md");
    let (_, text) = text.split_once("## Series").expect("the table");
    let (text, _) = text.split_once("## What counts").expect("the next section");
    let rows = text.lines().filter(|line| line.starts_with("| `rate_limited_"));
    let ticked = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let series = |row: &str| {
        let cells: Vec<_> = row.split('|').map(ticked).collect();
        (cells[1][0].clone(), cells[3].iter().cloned().collect())
    };
    rows.map(series).collect()
}

/// Returns the queries of the dashboard, and that of its variable.
fn grafana_queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&file("dashboards/grafana.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut queries = Vec::new();
    for panel in panels {
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            let (query, legend) = (target["expr"].as_str().expect("a query"), &target["legendFormat"]);
            queries.push(query.replace("[$__rate_interval]", "[5m]"));
            let legend = legend.as_str().expect("a legend");
            for label in legend.split("{{").skip(1).filter_map(|rest| rest.split_once("}}")) {
                assert!(query.contains(label.0), "the legend of {query} has {}", label.0);
            }
        }
    }
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let labels = variables.iter().filter_map(|variable| variable["query"]["query"].as_str());
    for query in labels {
        let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')).expect("labels");
        let (name, label) = inside.split_once(", ").expect("a series and a label");
        queries.push(format!("sum by ({label}) ({name})"));
    }
    queries
}

/// Returns the queries of the alerts, each of which is on one line or folded.
fn alert_queries() -> Vec<String> {
    let text = file("dashboards/alerts.yml");
    let mut queries: Vec<String> = Vec::new();
    let mut is_folded = false;
    for line in text.lines().map(str::trim) {
        if let Some(query) = line.strip_prefix("expr: ") {
            is_folded = query == ">-";
            queries.push(if is_folded { String::new() } else { query.to_owned() });
        } else if line.starts_with("for: ") || line.starts_with("labels:") {
            is_folded = false;
        } else if is_folded {
            queries.last_mut().expect("a query").push_str(&format!(" {line}"));
        }
        for label in line.split("$labels.").skip(1) {
            let label: String = label.chars().take_while(|letter| is_of_name(*letter)).collect();
            let query = queries.last().expect("a query");
            let is_kept = query.contains(&label) || (label == "instance" && !query.contains(" by "));
            assert!(is_kept, "{line}: {query} has no {label}");
        }
    }
    assert!(queries.len() >= 4, "{queries:?}");
    queries
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// The labels that Prometheus adds to a series.
const ADDED_LABELS: [&str; 2] = ["instance", "le"];

/// Returns the names, the labels and the values of a query that no series has.
fn problems_of(query: &str, recorded: &Recorded) -> Vec<String> {
    let mut problems = Vec::new();
    let mut known = BTreeSet::from(ADDED_LABELS);
    for (at, _) in query.match_indices("rate_limited_") {
        let name: &str = query[at..].split(|letter| !is_of_name(letter)).next().unwrap_or_default();
        let parts = ["_bucket", "_sum", "_count"];
        let base = parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
        let Some(labels) = recorded.get(base) else {
            problems.push(format!("{query}: there is no {name}"));
            continue;
        };
        known.extend(labels.keys().map(|label| &**label));
        let selector = query[at + name.len()..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
        for matcher in selector.map_or("", |(selector, _)| selector).split(',').filter(|text| !text.is_empty()) {
            let label: String = matcher.chars().take_while(|letter| is_of_name(*letter)).collect();
            match (labels.get(&label), matcher[label.len()..].strip_prefix("=\"")) {
                (None, _) => problems.push(format!("{query}: {name} has no {label}")),
                (Some(values), Some(value)) if !values.contains(value.trim_matches('"')) => {
                    problems.push(format!("{query}: {label} is never {value}"));
                }
                _ => {}
            }
        }
    }
    for grouped in query.split(" by (").skip(1).filter_map(|rest| rest.split_once(')')) {
        let unknown = grouped.0.split(", ").filter(|label| !known.contains(label));
        problems.extend(unknown.map(|label| format!("{query}: no series has {label}")));
    }
    problems
}

#[test]
fn a_query_with_an_unknown_name_label_or_value_is_found() {
    let values = BTreeSet::from(["a".to_owned()]);
    let recorded = Recorded::from([("rate_limited_x".to_owned(), BTreeMap::from([("rule".to_owned(), values)]))]);
    let cases = [
        ("sum by (rule) (rate_limited_x)", 0),
        (r#"rate(rate_limited_x{rule="a"}[5m])"#, 0),
        (r#"rate_limited_x{rule=~"b"}"#, 0),
        (r#"rate_limited_x{rule="b"}"#, 1),
        (r#"rate_limited_x{role="a"}"#, 1),
        ("rate_limited_y", 1),
        ("sum by (rule, kind) (rate_limited_x_bucket)", 1),
    ];
    for (query, problems) in cases {
        assert_eq!(problems_of(query, &recorded).len(), problems, "{query}");
    }
}

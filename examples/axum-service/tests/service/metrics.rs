//! The series of real scrapes, beside those that the document and the dashboards name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use limiter_testkit::RedisServer;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use rate_limited::metrics::STORE_BUCKETS;
use rate_limited::{Algorithm, Error, Key, Limit, Limiter, LostSlots, rate_limited};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::client::get;
use crate::instance::{Instance, eventually};

/// The labels of each series.
type Labels = BTreeMap<String, BTreeSet<String>>;

const RULES: &str = "rules = { user.limit = \"2/h\", report = { limit = \"1/h\", mode = \"shadow\" } }\n";

const FIELDS: [&str; 2] = ["authorization: Bearer 7", "x-forwarded-for: 192.0.2.1"];

/// The series that this service has no event for.
const OTHERS: [&str; 9] = [
    "rate_limited_charges_total",
    "rate_limited_overdrawn_total",
    "rate_limited_refunds_total",
    "rate_limited_slots_held",
    "rate_limited_slots_in_use",
    "rate_limited_slots_lost_total",
    "rate_limited_unconfigured_total",
    "rate_limited_uncounted_total",
    "rate_limited_wait_seconds",
];

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the scrape of a service that has allowed, denied and shadowed requests.
async fn scrape_of_a_service() -> String {
    let server = RedisServer::start();
    let service = Instance::start(&server, RULES);
    let is_ready = async || (get(service.address, "/readyz", &[]).await.status == 200).then_some(());
    eventually("readiness", is_ready).await;
    for path in ["/report", "/report", "/quote"] {
        get(service.address, path, &FIELDS).await;
    }
    let scrape = get(service.address, "/metrics", &[]).await;
    assert_eq!(scrape.status, 200);
    scrape.body
}

#[rate_limited("unconfigured", fallback = ())]
async fn unconfigured() {}

/// Returns the scrape of this process after the events that the service does not have.
async fn scrape_of_this_process() -> Result<String, Error> {
    let prometheus = PrometheusBuilder::new();
    let prometheus = prometheus.set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &STORE_BUCKETS);
    let prometheus = prometheus.and_then(PrometheusBuilder::install_recorder).expect("the only recorder");
    let (limiter, limit): (_, Limit) = (Limiter::memory(), "5/h".parse()?);
    let allowed = limiter.named("other").wait(&Key::new("a"), &limit, Duration::from_secs(1)).await?;
    limiter.refund(&allowed.into_result().expect("is allowed")).await?;
    limiter.scope(unconfigured()).await;
    // More than the debt of a bucket.
    limiter.named("other").charge(&Key::new("b"), &limit.with_algorithm(Algorithm::TokenBucket), 100).await?;
    lose_a_slot().await?;
    Ok(prometheus.render())
}

async fn lose_a_slot() -> Result<(), Error> {
    let mut server = RedisServer::start();
    let (lost, mut is_lost) = mpsc::unbounded_channel();
    let on_lost = move |_: &LostSlots| {
        let _ = lost.send(());
    };
    let builder = Limiter::builder().url(server.url()).slot_time(Duration::from_secs(1)).on_lost(on_lost);
    let limiter = builder.deadline(Duration::from_secs(30)).connect().await?;
    let _entry = limiter.named("other").enter(&Key::new("c"), &Limit::concurrent(1)?).await?;
    server.kill();
    is_lost.recv().await.expect("its slot is lost");
    Ok(())
}

/// Returns the kind of each metric of a scrape, from lines such as `# TYPE name counter`.
fn kinds(scrape: &str) -> BTreeMap<String, String> {
    let types = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE rate_limited_")?.split_once(' '));
    // A histogram without buckets.
    types.map(|(name, kind)| (format!("rate_limited_{name}"), kind.replace("summary", "histogram"))).collect()
}

/// Returns the labels of each series, from lines such as `name{label="value"} 1`.
fn labels(scrape: &str) -> Labels {
    let mut labels = Labels::new();
    for line in scrape.lines().filter(|line| line.starts_with("rate_limited_")) {
        let (name, rest) = line.split_at(line.find(|letter| !is_of_name(letter)).expect("a value"));
        labels.entry(name.to_owned()).or_default().extend(matched_labels(rest));
    }
    labels
}

/// Returns the labels of the braces at the start of a text.
fn matched_labels(text: &str) -> Vec<String> {
    let Some((matchers, _)) = text.strip_prefix('{').and_then(|text| text.split_once('}')) else { return Vec::new() };
    let is_end = |letter| !is_of_name(letter);
    let label = |matcher: &str| matcher.trim().split(is_end).next().unwrap_or_default().to_owned();
    matchers.split(',').map(label).filter(|label| !label.is_empty()).collect()
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Returns the kinds and the labels of the document's table: lines such as ``| `name` | kind | `label`, `other` |``.
fn documented() -> (BTreeMap<String, String>, Labels) {
    let text = file("docs/metrics.md");
    let mut documented = (BTreeMap::new(), Labels::new());
    for row in text.lines().filter(|line| line.starts_with("| `rate_limited_")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let kinds = ["counter", "gauge", "histogram"];
        if let [_, name, kind, labels, _, _] = cells[..]
            && kinds.contains(&kind)
        {
            let name = name.trim_matches('`').to_owned();
            let labels = labels.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            documented.0.insert(name.clone(), kind.to_owned());
            documented.1.insert(name, labels);
        }
    }
    documented
}

/// Returns the labels of metrics: without the parts of histograms and their own labels.
fn of_metrics(series: &Labels, kinds: &BTreeMap<String, String>) -> Labels {
    let mut metrics = Labels::new();
    for (name, labels) in series {
        let parts = ["_bucket", "_sum", "_count"];
        let base = parts.iter().filter_map(|part| name.strip_suffix(part)).find(|base| kinds.contains_key(*base));
        let own = labels.iter().filter(|label| !["le", "quantile"].contains(&&***label)).cloned();
        metrics.entry(base.unwrap_or(name).to_owned()).or_default().extend(own);
    }
    metrics
}

/// Adds all texts of a dashboard.
fn add_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| add_texts(value, texts)),
        Value::Object(members) => members.values().for_each(|value| add_texts(value, texts)),
        _ => {}
    }
}

/// Returns the names and labels of a query that no series has.
fn problems(query: &str, series: &Labels) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, _) in query.match_indices("rate_limited_") {
        let name: String = query[at..].chars().take_while(|letter| is_of_name(*letter)).collect();
        let Some(labels) = series.get(&name) else {
            problems.push(format!("no {name}: {query}"));
            continue;
        };
        let unknown = matched_labels(&query[at + name.len()..]).into_iter().filter(|label| !labels.contains(label));
        problems.extend(unknown.map(|label| format!("{name} has no {label}: {query}")));
    }
    for labels in query.split("by (").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)) {
        // Prometheus adds the label `instance` to each series.
        let is_known = |label: &str| label == "instance" || series.values().any(|labels| labels.contains(label));
        let unknown = labels.split(',').map(str::trim).filter(|label| !is_known(label));
        problems.extend(unknown.map(|label| format!("no series has {label}: {query}")));
    }
    problems
}

#[tokio::test]
async fn document_and_dashboards_name_the_series_of_real_scrapes() {
    let of_service = scrape_of_a_service().await;
    let of_both = of_service.clone() + &scrape_of_this_process().await.expect("decides");
    let (kinds_of_both, series) = (kinds(&of_both), labels(&of_both));
    let (documented_kinds, documented_labels) = documented();
    assert_eq!(kinds_of_both, documented_kinds);
    assert_eq!(of_metrics(&series, &kinds_of_both), documented_labels);
    let of_service = kinds(&of_service);
    let missing: Vec<_> = documented_kinds.keys().filter(|name| !of_service.contains_key(*name)).collect();
    assert_eq!(missing, OTHERS);

    let mut queries = vec![file("dashboards/alerts.yml")];
    add_texts(&serde_json::from_str(&file("dashboards/grafana.json")).expect("JSON"), &mut queries);
    let problems: Vec<_> = queries.iter().flat_map(|query| problems(query, &series)).collect();
    assert_eq!(problems, [""; 0]);
}

#[test]
fn a_query_with_an_unknown_name_or_label_is_found() {
    let series = labels("rate_limited_x{rule=\"a\",le=\"1\"} 1\nrate_limited_y 2\n");
    let cases = [
        ("sum by (rule, le) (rate_limited_x) + rate_limited_y", 0),
        ("rate(rate_limited_x{rule=~\"$rule\"}[5m]) by (instance)", 0),
        ("rate_limited_x{role=\"a\"}", 1),
        ("rate_limited_z", 1),
        ("sum by (kind, rule) (rate_limited_x)", 1),
    ];
    for (query, count) in cases {
        assert_eq!(problems(query, &series).len(), count, "{query}");
    }
}

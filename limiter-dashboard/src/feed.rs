//! The activity of all limiters, read once a second for all pages that are open, and not at all while none is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use limiter_inspect::{ActivitySums, KeySum, RATES, RuleSum};
use rate_limited::{ActivityLog, Error, Instance, Limiter, LimiterActivity, SharedRules};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use crate::access::Caller;
use crate::key_denials::KeyDenials;
use crate::series::{Series, rounded, unix_millis};

/// The time between two readings.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// The time after which the version of the shared rules is read again. A page that publishes reads it at once.
const VERSION_INTERVAL: Duration = Duration::from_secs(3);
/// The time after its last entry for which a limiter without heartbeats counts as active: that of a heartbeat.
const MAX_SILENCE: Duration = Duration::from_secs(15);
/// The most rules and keys of a snapshot.
const MAX_RULES: usize = 500;
const MAX_KEYS: usize = 100;
/// The most programs and versions of the shared rules of a snapshot.
const MAX_PROGRAMS: usize = 100;
const MAX_VERSIONS: usize = 100;
/// The rules with a small chart, and its points.
const MAX_SPARKS: usize = 100;
const SPARK_POINTS: usize = 120;

/// The source of all pages.
pub(crate) struct Feed {
    limiter: Limiter,
    state: Mutex<FeedState>,
}

#[derive(Default)]
struct FeedState {
    log: ActivityLog,
    series: Series,
    key_denials: KeyDenials,
    published: Option<(Instant, Result<u64, Error>)>,
    snapshot: Option<(Instant, Arc<Snapshot>)>,
}

/// The state at one time, as the two kinds of callers get it.
pub(crate) struct Snapshot {
    public: String,
    trusted: String,
}

impl Snapshot {
    pub(crate) fn text(&self, caller: Caller) -> &str {
        match caller {
            Caller::Anyone => &self.public,
            Caller::Trusted => &self.trusted,
        }
    }
}

impl Feed {
    pub(crate) fn new(limiter: Limiter) -> Self {
        Self { limiter, state: Mutex::default() }
    }

    /// Returns a state that is at most a second old. One caller reads it, and the others wait for it.
    pub(crate) async fn snapshot(&self) -> Arc<Snapshot> {
        let mut state = self.state.lock().await;
        if let Some((read_at, snapshot)) = &state.snapshot
            && read_at.elapsed() < INTERVAL.mul_f64(0.9)
        {
            return Arc::clone(snapshot);
        }
        let snapshot = Arc::new(self.read(&mut state).await);
        state.snapshot = Some((Instant::now(), Arc::clone(&snapshot)));
        snapshot
    }

    /// Reads the version of the shared rules again with the next state.
    pub(crate) async fn rules_changed(&self) {
        let mut state = self.state.lock().await;
        (state.published, state.snapshot) = (None, None);
    }

    /// Returns the rates of a rule over time.
    pub(crate) async fn series(&self, rule: &str) -> Value {
        self.state.lock().await.series.to_json(rule, usize::MAX)
    }

    /// Returns the last rates of each rule, for small charts.
    pub(crate) async fn sparks(&self) -> Value {
        let state = self.state.lock().await;
        let sums = ActivitySums::of(&state.log, None, false);
        let rules = sums.rules.iter().take(MAX_SPARKS);
        rules.map(|(rule, _)| (rule.clone(), state.series.to_json(rule, SPARK_POINTS))).collect::<Map<_, _>>().into()
    }

    async fn read(&self, state: &mut FeedState) -> Snapshot {
        let (activity, instances) = tokio::join!(self.limiter.activity(&mut state.log), self.limiter.instances());
        if state.published.as_ref().is_none_or(|(read_at, _)| read_at.elapsed() >= VERSION_INTERVAL) {
            let version = SharedRules::new(&self.limiter).read().await.map(|published| published.version);
            state.published = Some((Instant::now(), version));
        }
        let mut sums = ActivitySums::of(&state.log, None, false);
        if let Ok(bursts) = &activity {
            state.series.add(state.log.read_at(), &sums.rules, bursts);
            state.key_denials.add(state.log.read_at(), bursts);
        }
        let minute = state.key_denials.counts();
        // Those that are denied now come first.
        sums.denied.sort_by_key(|key| Reverse((in_minute(&minute, key), key.count)));
        // Activity is read for longer than a limiter lives. One without heartbeats is known by its entries alone.
        let live: HashSet<&str> = instances.iter().flatten().map(|instance| &*instance.id).collect();
        let now = state.log.read_at();
        let is_active = |limiter: &&LimiterActivity| {
            let is_recent = now.duration_since(limiter.last_seen).map_or(true, |age| age < MAX_SILENCE);
            is_recent || live.contains(&*limiter.id)
        };
        let published = state.published.as_ref().map(|(_, version)| version);
        let failures: Vec<(&str, &Error)> = [
            ("activity", activity.as_ref().err()),
            ("limiters", instances.as_ref().err()),
            ("rules", published.and_then(|version| version.as_ref().err())),
        ]
        .into_iter()
        .filter_map(|(part, error)| Some((part, error?)))
        .collect();
        let mut public = json!({
            "at": unix_millis(state.log.read_at()),
            "active": state.log.limiters().filter(is_active).count(),
            "rules": sums.rules.iter().take(MAX_RULES).map(rule_json).collect::<Vec<_>>(),
            "left_out": sums.rules.len().saturating_sub(MAX_RULES),
            "fleet": instances.as_deref().ok().map(fleet_json),
            "published": published.and_then(|version| version.as_ref().ok()),
            // The message of an error may name the server.
            "failures": failures.iter().map(|(part, error)| json!([part, error.kind().to_string()])).collect::<Vec<_>>(),
        });
        let public_text = public.to_string();
        public["failures"] = failures.iter().map(|(part, error)| json!([part, error.to_string()])).collect();
        public["programs"] = json!(sums.programs.iter().take(MAX_PROGRAMS).collect::<BTreeMap<_, _>>());
        public["denied"] =
            sums.denied.iter().take(MAX_KEYS).map(|key| key_json(key, in_minute(&minute, key))).collect();
        public["allowed"] = sums.allowed.iter().take(MAX_KEYS).map(|key| key_json(key, 0)).collect();
        Snapshot { public: public_text, trusted: public.to_string() }
    }
}

fn rule_json((rule, sum): &(String, RuleSum)) -> Value {
    let mut value =
        json!({ "rule": rule, "limiters": sum.limiters, "all_allowed": sum.totals[0], "all_denied": sum.totals[1] });
    for ((name, _), rate) in RATES.iter().zip(sum.rates) {
        value[*name] = json!(rounded(rate));
    }
    value
}

fn in_minute(minute: &HashMap<(&str, &str), u64>, key: &KeySum) -> u64 {
    minute.get(&(&*key.rule, &*key.key)).copied().unwrap_or_default()
}

fn key_json(key: &KeySum, minute: u64) -> Value {
    json!({
        "key": key.key,
        "rule": key.rule,
        "count": key.count,
        "minute": minute,
        "error": key.error,
        "limiters": key.limiters,
        "last_seen": unix_millis(key.last_seen),
    })
}

/// Returns how many limiters live, with the states of their stores and the versions of the shared rules that most have.
fn fleet_json(instances: &[Instance]) -> Value {
    let (mut versions, mut stores) = (BTreeMap::<_, usize>::new(), BTreeMap::<_, usize>::new());
    for instance in instances {
        *versions.entry(instance.rules_version).or_default() += 1;
        *stores.entry(if instance.state == "up" { "up" } else { "other" }).or_default() += 1;
    }
    let mut versions: Vec<_> = versions.into_iter().collect();
    versions.sort_by_key(|(_, limiters)| Reverse(*limiters));
    versions.truncate(MAX_VERSIONS);
    json!({ "limiters": instances.len(), "versions": versions, "stores": stores })
}

//! Random schedules: publications of two releases, rollbacks, flushes, restarts, failovers to an older state, cuts, and
//! processes that start again with and without a cache.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use limiter_testkit::{Proxy, Random, RedisServer, Reply, full_or, unique};
use rate_limited::{Limiter, SharedRules};
use tempfile::TempDir;
use tokio::time::sleep;

use super::restore::publish_as_before;
use super::{builder, change, in_force, text};
use crate::deadlines::WAIT_TIMEOUT;

const PROCESSES: usize = 4;
const STEPS: u64 = 16;
/// The pause after a step, in milliseconds: some polls come in between, and some do not.
const MAX_PAUSE: u64 = 700;

struct Process {
    proxy: Proxy,
    cache: Option<PathBuf>,
    /// `None` while it starts again.
    limiter: Option<Limiter>,
}

/// The version, the text and the history of a store.
type State = (String, String, Vec<String>);

struct Fleet {
    server: RedisServer,
    prefix: String,
    rules: SharedRules,
    processes: Vec<Process>,
    random: Random,
    /// The state of a replica, which a failover makes that of the store.
    replica: Option<State>,
    /// The version of the last publication, if the store has lost nothing since.
    published: Option<String>,
    next_max: u32,
    trace: Vec<String>,
    _directory: TempDir,
}

impl Fleet {
    async fn start(seed: u64) -> Self {
        let (server, prefix) = (RedisServer::start(), unique("schedule"));
        let rules = SharedRules::new(&builder(&server.url(), &prefix).connect().await.expect("connects"));
        let directory = tempfile::tempdir().expect("a directory");
        let process = |number: usize| Process {
            proxy: Proxy::start(&server),
            cache: number.is_multiple_of(2).then(|| directory.path().join(number.to_string())),
            limiter: None,
        };
        let processes = (0..PROCESSES).map(process).collect();
        let random = Random::new(seed);
        let (replica, published, trace) = (None, None, vec![format!("seed {seed}")]);
        let mut fleet = Self {
            server,
            prefix,
            rules,
            processes,
            random,
            replica,
            published,
            next_max: 0,
            trace,
            _directory: directory,
        };
        (0..PROCESSES).for_each(|number| fleet.start_process(number));
        fleet
    }

    fn start_process(&mut self, number: usize) {
        let Process { proxy, cache, limiter } = &mut self.processes[number];
        // The process before it ends first.
        limiter.take();
        let mut builder = builder(proxy.url(), &self.prefix).shared_rules();
        if let Some(cache) = cache {
            builder = builder.shared_rules_cache(cache);
        }
        *limiter = Some(builder.build().expect("valid"));
    }

    fn names(&self) -> [String; 3] {
        ["version", "toml", "history"].map(|name| format!("{}-rules:{{rules}}:{name}", self.prefix))
    }

    /// Returns the state of the store. `None` if it has no version.
    fn state(&self) -> Option<State> {
        let [version, toml, history] = self.names();
        let script =
            "return { redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), redis.call('LRANGE', KEYS[3], 0, -1) }";
        let text = |reply: &Reply| match reply {
            Reply::Bulk(bytes) => Some(String::from_utf8(bytes.clone()).expect("text")),
            _ => None,
        };
        let Reply::Array(parts) = self.server.command(&["EVAL", script, "3", &version, &toml, &history]) else {
            panic!("{:?}", self.trace);
        };
        let [version, toml, Reply::Array(history)] = &parts[..] else { panic!("{parts:?}") };
        Some((text(version)?, text(toml)?, history.iter().filter_map(text).collect()))
    }

    fn present_version(&self) -> Option<String> {
        self.state().map(|(version, ..)| version)
    }

    fn fail_over(&mut self) {
        let [version, toml, history] = self.names();
        let script = "redis.call('DEL', unpack(KEYS)) if #ARGV > 0 then redis.call('SET', KEYS[1], ARGV[1]) \
                      redis.call('SET', KEYS[2], ARGV[2]) for i = 3, #ARGV do redis.call('RPUSH', KEYS[3], ARGV[i]) end end";
        let mut command = vec!["EVAL", script, "3", &version, &toml, &history];
        if let Some((version, toml, history)) = &self.replica {
            command.extend([&**version, toml]);
            command.extend(history.iter().map(String::as_str));
        }
        assert!(!matches!(self.server.command(&command), Reply::Error(_)), "{:?}", self.trace);
        self.published = None;
    }

    /// Publishes a text, again after a conflict with a text that was put back meanwhile.
    async fn publish(&mut self) -> u32 {
        self.next_max += 1;
        let toml = text(self.next_max);
        let until = Instant::now() + WAIT_TIMEOUT;
        loop {
            let present = self.rules.read().await;
            match present {
                Ok(present) if present.toml == toml => break,
                Ok(present) => drop(self.rules.publish(&toml, change(present.version)).await),
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
            assert!(Instant::now() < until, "{:?}", self.trace);
        }
        self.published = self.present_version();
        self.next_max
    }

    async fn step(&mut self) {
        let number = usize::try_from(self.random.below(PROCESSES as u64)).expect("small");
        let step = match self.random.below(13) {
            0..=2 => {
                self.publish().await;
                "publish".to_owned()
            }
            3 => {
                self.next_max += 1;
                let present = self.present_version();
                let based_on = present.and_then(|version| version.split(' ').next()?.parse().ok()).unwrap_or(0);
                if publish_as_before(&self.server, &self.prefix, based_on, &text(self.next_max)) {
                    self.published = self.present_version();
                }
                "publish by an earlier release".to_owned()
            }
            4 => {
                let history = self.rules.history(9).await.unwrap_or_default();
                let present = self.rules.read().await.map_or(0, |present| present.version);
                if let Some(oldest) = history.last()
                    && self.rules.rollback(oldest.version, change(present)).await.is_ok()
                {
                    self.published = self.present_version();
                }
                "rollback".to_owned()
            }
            5 => {
                self.server.command(&["FLUSHALL"]);
                self.published = None;
                "flush".to_owned()
            }
            6 => {
                self.server.kill();
                self.server.restart();
                self.published = None;
                "restart of the server".to_owned()
            }
            7 => {
                self.replica = self.state();
                "replicate".to_owned()
            }
            8 => {
                self.fail_over();
                "failover".to_owned()
            }
            9 => {
                self.processes[number].proxy.cut();
                format!("cut {number}")
            }
            10 | 11 => {
                self.processes.iter().for_each(|process| process.proxy.pass());
                "heal".to_owned()
            }
            _ => {
                self.start_process(number);
                format!("restart of process {number}")
            }
        };
        let (pause, present) = (self.random.below(MAX_PAUSE), self.present_version());
        self.trace.push(format!("{step} {present:?} {pause} ms"));
        sleep(Duration::from_millis(pause)).await;
    }

    /// The permits of the limit in force in each process.
    fn in_force(&self) -> Vec<Option<u32>> {
        let limiters = self.processes.iter().filter_map(|process| process.limiter.as_ref());
        limiters.map(|limiter| in_force(limiter).map(|(max, _)| max)).collect()
    }

    /// Returns whether each process has read the rules of the store, and whether it has none if the store has none.
    fn agrees(&self) -> bool {
        let toml = self.state().map(|(_, toml, _)| toml);
        let limiters = self.processes.iter().filter_map(|process| process.limiter.as_ref());
        // One that has no connection yet may have these rules too.
        if toml.is_some() && limiters.into_iter().any(|limiter| limiter.shared_rules_error().is_some()) {
            return false;
        }
        self.in_force().into_iter().all(|max| max.map(text) == toml)
    }

    /// Waits until the processes agree. Returns the time.
    async fn agree(&self) -> Duration {
        let began = Instant::now();
        while !self.agrees() {
            let state = (self.present_version(), self.in_force());
            assert!(began.elapsed() < WAIT_TIMEOUT, "the processes stay apart: {state:?} after {:#?}", self.trace);
            sleep(Duration::from_millis(5)).await;
        }
        began.elapsed()
    }
}

/// Runs a schedule. Returns the time in which the last publication was in force in each process.
async fn run(seed: u64) -> Duration {
    let mut fleet = Fleet::start(seed).await;
    for _ in 0..STEPS {
        fleet.step().await;
    }
    fleet.processes.iter().for_each(|process| process.proxy.pass());
    fleet.agree().await;
    if let Some(published) = &fleet.published {
        assert_eq!(fleet.present_version().as_ref(), Some(published), "it was undone: {:#?}", fleet.trace);
    }
    let max = fleet.publish().await;
    let spread = fleet.agree().await;
    assert_eq!((fleet.in_force(), fleet.present_version()), (vec![Some(max); PROCESSES], fleet.published.clone()));
    spread
}

/// The longest time is printed, for a reader of the output: no test asserts how fast a change spreads.
#[tokio::test]
async fn no_publication_is_undone_and_no_process_stays_apart() {
    let (schedules, at_once) = (full_or(60, 4), 4);
    let mut longest = Duration::ZERO;
    for first in (0..schedules).step_by(at_once) {
        let spread = join_all((first..first + at_once as u64).map(|seed| Box::pin(run(seed)))).await;
        longest = spread.into_iter().fold(longest, Duration::max);
    }
    println!("{schedules} schedules: a publication was in force in {PROCESSES} processes within {longest:?}");
}

//! Presence: each limiter writes heartbeats into the store, and can list those of all limiters.
//!
//! A heartbeat is one script call of the worker. It is no call of the program: nothing waits for it, its failure is no
//! failure of the store, and it is left out while the one before has no reply. Everything that it writes expires.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::Error;
use crate::instances::{Instances, InventoryRule};
use crate::store::redis::connection::managed::random_between;
use crate::store::redis::connection::topology::Topology;
use crate::store::redis::health::HealthBoard;
use crate::store::redis::naming::Naming;

mod heard_counts;
mod heartbeat;
mod listing;
mod live_script;
mod member;
mod owner;
mod publisher;
mod stream;

use heard_counts::HeardCounts;
use heartbeat::Heartbeat;
use listing::Listing;
use live_script::LiveScript;
use member::Identity;
pub use member::Instance;
use owner::LiveServer;
use publisher::Publisher;
pub(crate) use stream::{StreamId, StreamPart};

/// The rules that the program has, as lines of a text. Its methods run on the worker, and none of the program's code.
pub(crate) trait InventorySource: fmt::Debug + Send + Sync {
    /// Returns two numbers that change when the inventory may have changed.
    fn version(&self) -> (u64, usize);

    /// Returns the rules one by one, so that the worker can serve calls between them.
    fn rules(&self) -> Box<dyn Iterator<Item = InventoryRule>>;
}

/// The activity of the limiter, as entries of a stream. Its methods run on the worker, and none of the program's code.
pub(crate) trait ActivitySource: fmt::Debug + Send + Sync {
    /// The shortest time between two entries.
    fn interval(&self) -> Duration;

    /// Returns the text of the next entry. `None` if nothing has changed since the last one that was confirmed. `place` is that
    /// of the limiter, and `shown` returns an encoded key as it appears in names.
    fn next_entry(&self, place: &str, shown: &dyn Fn(&str) -> String) -> Option<String>;

    /// Records that the store has the last entry.
    fn confirm_entry(&self);
}

/// Returns the version of the shared rules in force, 0 before the first one. `None` for a limiter that does not follow them.
pub(crate) type FollowedVersion = Arc<dyn Fn() -> Option<u64> + Send + Sync>;

/// The options of a limiter's presence.
#[derive(Clone, Debug)]
pub(crate) struct PresenceOptions {
    interval: Duration,
    built_at: SystemTime,
    /// `None` for a limiter that writes no heartbeats.
    inventory: Option<Arc<dyn InventorySource>>,
    instances: Instances,
    /// `None` for a limiter that writes no activity.
    activity: Option<Arc<dyn ActivitySource>>,
}

impl PresenceOptions {
    /// Creates those of a limiter that is built now. One without an inventory writes no heartbeats. `interval` is the time
    /// between two of them. `instances` hears how many limiters live.
    pub(crate) fn new(inventory: Option<Arc<dyn InventorySource>>, interval: Duration, instances: Instances) -> Self {
        Self { interval, built_at: SystemTime::now(), inventory, instances, activity: None }
    }

    /// The instances that share each limit.
    pub(crate) fn instances(&self) -> &Instances {
        &self.instances
    }

    /// Returns those of a limiter with this activity.
    pub(crate) fn with_activity(self, activity: Option<Arc<dyn ActivitySource>>) -> Self {
        Self { activity, ..self }
    }

    /// The time from the start of the worker to the first heartbeat.
    fn first(&self) -> Duration {
        2 * self.interval
    }

    /// The time after which an instance without a further heartbeat has ended.
    fn life(&self) -> Duration {
        3 * self.interval
    }
}

/// A question about the limiters that live, with the way of the reply.
pub(crate) enum PresenceCall {
    Instances(oneshot::Sender<Result<Vec<Instance>, Error>>),
    /// The text of the inventory with this digest.
    Inventory(String, oneshot::Sender<Result<Option<String>, Error>>),
    /// The entries of activity behind this one.
    Activity(Option<StreamId>, oneshot::Sender<Result<StreamPart, Error>>),
}

/// The longest wait for the last entry, and for the removal, of an instance whose limiter has ended.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(1);

/// What a worker needs for presence.
pub(crate) struct Presence {
    pub(crate) options: PresenceOptions,
    pub(crate) topology: Rc<Topology>,
    pub(crate) health: Arc<HealthBoard>,
    pub(crate) followed_version: FollowedVersion,
}

impl Presence {
    /// Writes heartbeats and activity, and lists those of others, until the store is dropped. Then it removes the own instance.
    pub(crate) async fn serve(self, naming: Arc<Naming>, mut calls: mpsc::UnboundedReceiver<PresenceCall>) {
        let Self { options, topology, health, followed_version } = self;
        let (server, life) = (Rc::new(LiveServer::new(topology, &naming)), options.life());
        let identity = Rc::new(Identity::new(options.built_at));
        let publisher = options.activity.clone().map(|activity| {
            let publisher =
                Rc::new(Publisher::new(Rc::clone(&server), &identity, activity, naming, options.instances.clone()));
            let entries = spawn_local(Rc::clone(&publisher).publish());
            (publisher, entries)
        });
        let own = options.inventory.clone().map(|inventory| {
            let heard = HeardCounts::new(Rc::clone(&server), options.instances.clone());
            let heartbeat = Rc::new(Heartbeat::new(
                Rc::clone(&server),
                Rc::clone(&identity),
                inventory,
                life,
                health,
                followed_version,
                heard,
            ));
            let beats = spawn_local(beat(Rc::clone(&heartbeat), options));
            (heartbeat, beats)
        });
        let stream = Rc::new(LiveScript::for_activity(Rc::clone(&server)));
        while let Some(call) = calls.recv().await {
            let (server, stream) = (Rc::clone(&server), Rc::clone(&stream));
            spawn_local(async move {
                let listing = Listing { server: &server, life };
                // A caller that was dropped needs no reply.
                match call {
                    PresenceCall::Instances(reply_to) => drop(reply_to.send(listing.read().await)),
                    PresenceCall::Inventory(digest, reply_to) => drop(reply_to.send(listing.inventory(&digest).await)),
                    PresenceCall::Activity(behind, reply_to) => {
                        drop(reply_to.send(stream.read_activity(behind).await));
                    }
                }
            });
        }
        if let Some((publisher, entries)) = publisher {
            entries.abort();
            let _ = timeout(REMOVAL_TIMEOUT, publisher.write()).await;
        }
        if let Some((heartbeat, beats)) = own {
            beats.abort();
            let _ = timeout(REMOVAL_TIMEOUT, heartbeat.remove()).await;
        }
    }
}

/// Writes heartbeats for ever. The next one is due after the reply to the last one, and sooner once the limiter follows
/// another version of the shared rules, or the server is connected again.
async fn beat(heartbeat: Rc<Heartbeat>, options: PresenceOptions) {
    let began = Instant::now();
    // The instances of a fleet may start at once.
    let (first, interval, spread) = (options.first(), options.interval, options.interval / 10);
    let first = random_between(first, first + 2 * spread);
    if options.instances.is_live() {
        look(&heartbeat, began + first, spread).await;
    }
    sleep_until(began + first).await;
    loop {
        heartbeat.write().await;
        pause(random_between(interval - spread, interval + spread), spread, || heartbeat.is_due()).await;
    }
}

/// Learns how many limiters live, as soon as the store is connected: this limiter may need its share before its first
/// heartbeat, which is due at `first`.
async fn look(heartbeat: &Heartbeat, first: Instant, pause: Duration) {
    while Instant::now() < first && !heartbeat.look().await {
        sleep(pause / 5).await;
    }
}

/// Waits until the next heartbeat. One that `is_due` sooner waits for at most twice the `spread`, in which a fleet writes that
/// it follows a new version.
async fn pause(mut left: Duration, spread: Duration, is_due: impl Fn() -> bool) {
    while !left.is_zero() && !is_due() {
        let step = random_between(spread, 2 * spread).min(left);
        sleep(step).await;
        left -= step;
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::instances::HEARTBEAT_INTERVAL;

    #[tokio::test(start_paused = true)]
    async fn a_new_version_is_written_before_the_next_heartbeat_is_due() {
        let (interval, spread) = (HEARTBEAT_INTERVAL, HEARTBEAT_INTERVAL / 10);
        for at in [0, 700, 4_000, 60_000].map(Duration::from_millis) {
            let (began, looks) = (Instant::now(), Cell::new(0));
            let is_due = || {
                looks.set(looks.get() + 1);
                began.elapsed() >= at
            };
            pause(interval, spread, is_due).await;
            let waited = began.elapsed();
            // A timer fires up to a millisecond late.
            let expected = at.min(interval)..=(at + 2 * spread).min(interval) + Duration::from_millis(20);
            assert!(expected.contains(&waited), "{waited:?} after {at:?}");
            assert!(looks.get() <= 11, "{} looks", looks.get());
        }
    }
}

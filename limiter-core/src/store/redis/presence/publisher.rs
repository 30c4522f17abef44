//! The entries of one limiter in the stream of activity.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use tokio::time::sleep;

use super::ActivitySource;
use super::live_script::LiveScript;
use super::member::Identity;
use super::owner::LiveServer;
use crate::instances::Instances;
use crate::store::redis::connection::managed::random_between;
use crate::store::redis::naming::Naming;
use crate::{Key, TARGET};

/// The script that adds an entry.
const SCRIPT: &str = include_str!("lua/publish.lua");
/// The time for which an entry is kept.
const LIFE: Duration = Duration::from_secs(15 * 60);
/// The most entries of the stream. Each has at most 4 kB, so all of them have at most 16 MB.
const MAX_ENTRIES: usize = 4096;
/// The longest time between two entries: that of 6 000 limiters. A number that no fleet has stops no limiter.
const MAX_INTERVAL: Duration = Duration::from_secs(120);
/// The most entries of all limiters in a second.
const MAX_ENTRIES_PER_SECOND: u32 = 50;

/// Writes the activity of one limiter.
pub(super) struct Publisher {
    script: LiveScript,
    place: String,
    activity: Arc<dyn ActivitySource>,
    naming: Arc<Naming>,
    instances: Instances,
}

impl Publisher {
    pub(super) fn new(
        server: Rc<LiveServer>,
        identity: &Identity,
        activity: Arc<dyn ActivitySource>,
        naming: Arc<Naming>,
        instances: Instances,
    ) -> Self {
        Self { script: LiveScript::new(server, SCRIPT), place: identity.place(), activity, naming, instances }
    }

    /// Writes entries for ever. The next one is due after the reply to the last one.
    pub(super) async fn publish(self: Rc<Self>) {
        loop {
            let pause = interval(self.activity.interval(), self.instances.heard().most());
            // The instances of a fleet may start at once.
            sleep(random_between(pause, pause + pause / 10)).await;
            self.write().await;
        }
    }

    /// Writes an entry, if something has changed, the server is connected and it has not refused one on this connection. What
    /// is not written is in the next entry.
    pub(super) async fn write(&self) {
        let Some(node) = self.script.usable_node() else { return };
        let Some(text) = self.activity.next_entry(&self.place, &|encoded| self.shown_key(encoded)) else { return };
        match self.script.run(node, |digest| self.command(digest, &text)).await {
            Ok(_) => self.activity.confirm_entry(),
            Err(error) => self.script.report(error, |error, prefix| {
                tracing::warn!(
                    target: TARGET,
                    %error,
                    "the activity of this limiter is not written: permit `~{prefix}-live:*` and the commands of \
                     docs/live.md, or leave `Builder::activity` out"
                );
            }),
        }
    }

    /// Returns an encoded key as it appears in names.
    fn shown_key(&self, encoded: &str) -> String {
        Key::from_encoded(encoded).map(|key| self.naming.subject(&key).to_string()).unwrap_or_default()
    }

    fn command(&self, digest: &str, text: &str) -> Cmd {
        let keys = &self.script.server.keys;
        let mut command = redis::cmd("EVALSHA");
        command.arg(digest).arg(1).arg(keys.activity());
        command.arg(u64::try_from(LIFE.as_millis()).unwrap_or(u64::MAX)).arg(MAX_ENTRIES).arg(text);
        command
    }
}

/// Returns the time between two entries of one of so many limiters.
fn interval(shortest: Duration, limiters: u32) -> Duration {
    shortest.max((Duration::from_secs(1) / MAX_ENTRIES_PER_SECOND).saturating_mul(limiters).min(MAX_INTERVAL))
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_writes_at_most_fifty_entries_a_second() {
        let cases = [(0, 1_000), (1, 1_000), (50, 1_000), (51, 1_020), (1_000, 20_000), (5_000, 100_000)];
        for (limiters, millis) in cases {
            let interval = interval(Duration::from_secs(1), limiters);
            assert_eq!(interval, Duration::from_millis(millis), "{limiters}");
            assert!(u128::from(limiters) * 1_000 <= 50 * interval.as_millis(), "{limiters}");
        }
        assert_eq!(interval(Duration::from_secs(1), u32::MAX), MAX_INTERVAL);
    }
}

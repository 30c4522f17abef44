//! The heartbeats of one limiter.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::str;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use sha2::{Digest, Sha256};
use tokio::task::yield_now;

use super::heard_counts::HeardCounts;
use super::live_script::LiveScript;
use super::member::{DIGEST_DIGITS, Identity, is_hex};
use super::owner::{LiveServer, SendError};
use super::{FollowedVersion, InventorySource};
use crate::TARGET;
use crate::instances::{CounterFamilies, LiveCounts};
use crate::store::redis::connection::managed::ManagedConnection;
use crate::store::redis::connection::server_connection::ServerConnection;
use crate::store::redis::health::HealthBoard;

/// The script of a heartbeat.
pub(super) const SCRIPT: &str = include_str!("lua/heartbeat.lua");
/// The longest text of an inventory. Further rules are left out, and counted in its last line.
const MAX_INVENTORY_BYTES: usize = 256 << 10;
/// The lines of an inventory that are made before the worker serves calls again.
const LINES_AT_ONCE: usize = 32;

/// Writes the heartbeats of one limiter.
pub(super) struct Heartbeat {
    script: LiveScript,
    identity: Rc<Identity>,
    inventory: Arc<dyn InventorySource>,
    life: Duration,
    health: Arc<HealthBoard>,
    followed_version: FollowedVersion,
    heard: HeardCounts,
    /// The version of the inventory, and its digest then.
    known_digest: RefCell<Option<((u64, usize), String)>>,
    /// The version of the shared rules in the last heartbeat.
    written_version: Cell<Option<u64>>,
    /// The connection of the last heartbeat.
    written_on: RefCell<Option<ServerConnection>>,
    /// What the last heartbeat has written, or may have.
    written: RefCell<Option<WrittenMember>>,
}

/// A member, and the digest of its inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WrittenMember {
    pub(super) member: String,
    pub(super) inventory: String,
}

impl Heartbeat {
    pub(super) fn new(
        server: Rc<LiveServer>,
        identity: Rc<Identity>,
        inventory: Arc<dyn InventorySource>,
        life: Duration,
        health: Arc<HealthBoard>,
        followed_version: FollowedVersion,
        heard: HeardCounts,
    ) -> Self {
        Self {
            script: LiveScript::new(server, SCRIPT),
            identity,
            inventory,
            life,
            health,
            followed_version,
            heard,
            known_digest: RefCell::default(),
            written_version: Cell::default(),
            written_on: RefCell::default(),
            written: RefCell::default(),
        }
    }

    /// Writes a heartbeat, if the server is connected and has not refused one on this connection.
    pub(super) async fn write(&self) {
        self.written_on.replace(self.script.server.connected().map(|(_, connection)| connection));
        let Some(node) = self.script.usable_node() else {
            // A heartbeat that is not written is not due sooner.
            return self.written_version.set((self.followed_version)());
        };
        // Before the inventory, so that a version which comes meanwhile is another one.
        let rules_version = (self.followed_version)();
        self.written_version.set(rules_version);
        let inventory = self.inventory_digest().await;
        let member = self.identity.member(rules_version, self.health.health().state.as_str());
        let present = WrittenMember { member, inventory };
        // Its reply may be lost.
        let before = self.written.replace(Some(present.clone()));
        let call = HeartbeatCall { present: Some(&present), before: before.as_ref(), text: "", life: self.life };
        match self.run(Rc::clone(&node), call).await {
            Ok(HeartbeatReply { lacks_text, counts }) => {
                self.heard.hear(counts).await;
                if !lacks_text {
                    return;
                }
                let (text, _) = self.inventory_text().await;
                if digest(&text) == present.inventory
                    && let Err(error) = self.run(node, HeartbeatCall { text: &text, ..call }).await
                {
                    self.report(error);
                }
            }
            Err(error) => self.report(error),
        }
    }

    /// Learns how many limiters live, and writes nothing. Returns false while the server is not connected.
    pub(super) async fn look(&self) -> bool {
        let Some(node) = self.script.usable_node() else { return false };
        let inventory = self.inventory_digest().await;
        let call = HeartbeatCall { present: None, before: None, text: "", life: self.life };
        match self.run(node, call).await {
            Ok(HeartbeatReply { mut counts, .. }) => {
                // The others will hear of this limiter.
                let own = counts.entry(inventory).or_default();
                *own = own.saturating_add(1);
                self.heard.hear(counts).await;
            }
            Err(error) => self.report(error),
        }
        true
    }

    /// Returns whether a heartbeat is due at once: the limiter follows another version of the shared rules than the last one
    /// says, or the server is connected again, which may have lost it.
    pub(super) fn is_due(&self) -> bool {
        let has_reconnected = || {
            let (now, written_on) = (self.script.server.connected(), self.written_on.borrow());
            now.is_some_and(|(_, now)| written_on.as_ref().is_none_or(|written_on| !written_on.is_same(&now)))
        };
        self.written_version.get() != (self.followed_version)() || has_reconnected()
    }

    /// Removes the instance, if a heartbeat was written.
    pub(super) async fn remove(&self) {
        let Some(before) = self.written.take() else { return };
        if let Some(node) = self.script.usable_node() {
            // Otherwise its end comes by itself.
            let _ =
                self.run(node, HeartbeatCall { present: None, before: Some(&before), text: "", life: self.life }).await;
        }
    }

    async fn run(&self, node: Rc<ManagedConnection>, call: HeartbeatCall<'_>) -> Result<HeartbeatReply, SendError> {
        let sent = self.script.run(node, |digest| call.command(&self.script.server, digest)).await?;
        Ok(HeartbeatReply::read(&sent))
    }

    fn report(&self, error: SendError) {
        self.script.report(error, |error, prefix| {
            tracing::warn!(
                target: TARGET,
                %error,
                "this limiter is not listed as an instance, and grants whole limits in an outage: permit \
                 `~{prefix}-live:*` and the commands of docs/live.md, or call `Builder::presence(false)`, with \
                 `Builder::instances` for a share"
            );
        });
    }

    /// Returns the digest of the inventory, which is made anew when it may have changed.
    async fn inventory_digest(&self) -> String {
        let version = self.inventory.version();
        if let Some((of, digest)) = &*self.known_digest.borrow()
            && *of == version
        {
            return digest.clone();
        }
        let (text, counters) = self.inventory_text().await;
        let digest = digest(&text);
        self.heard.set_own(&digest, counters);
        self.known_digest.replace(Some((version, digest.clone())));
        digest
    }

    /// Makes the text of the inventory, which has its counters too. Calls are served meanwhile.
    async fn inventory_text(&self) -> (String, CounterFamilies) {
        let (mut text, mut left_out, mut counters) = (String::new(), 0_usize, Vec::new());
        for (number, rule) in self.inventory.rules().enumerate() {
            let line = rule.line;
            counters.extend(rule.counters);
            if text.len() + line.len() < MAX_INVENTORY_BYTES && left_out == 0 {
                text.push_str(&line);
                text.push('\n');
            } else {
                left_out += 1;
            }
            if number % LINES_AT_ONCE == LINES_AT_ONCE - 1 {
                yield_now().await;
            }
        }
        if left_out > 0 {
            text.push_str(&format!("{{\"left_out\":{left_out}}}\n"));
        }
        let counters = CounterFamilies::new(counters);
        text.push_str(&counters.line());
        text.push('\n');
        (text, counters)
    }
}

/// The digest of an inventory: 128 bits of its SHA-256, in hex.
fn digest(text: &str) -> String {
    Sha256::digest(text)[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A call of the script: see `heartbeat.lua`.
#[derive(Clone, Copy)]
pub(super) struct HeartbeatCall<'a> {
    /// `None` for an instance that has ended.
    pub(super) present: Option<&'a WrittenMember>,
    pub(super) before: Option<&'a WrittenMember>,
    /// The text of the inventory; empty if the store should have it.
    pub(super) text: &'a str,
    pub(super) life: Duration,
}

impl HeartbeatCall<'_> {
    fn command(self, server: &LiveServer, script: &str) -> Cmd {
        let Self { present, before, text, life } = self;
        let keys = &server.keys;
        let inventory = present.or(before).map_or("", |written| &*written.inventory);
        let moved_from = before.filter(|before| before.inventory != inventory);
        let member = |written: Option<&WrittenMember>| written.map_or(String::new(), |written| written.member.clone());
        let mut command = redis::cmd("EVALSHA");
        command.arg(script).arg(6 + usize::from(moved_from.is_some()));
        command.arg(keys.members(inventory)).arg(keys.counts()).arg(keys.summary()).arg(keys.summed());
        command.arg(keys.counted(inventory)).arg(keys.inventory(inventory));
        if let Some(moved_from) = moved_from {
            command.arg(keys.members(&moved_from.inventory));
        }
        let life = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
        command.arg(life).arg(inventory).arg(member(present)).arg(member(before)).arg(text);
        if let Some(moved_from) = moved_from {
            command.arg(&moved_from.inventory);
        }
        command
    }
}

/// A reply of the script.
#[derive(Debug, Default)]
struct HeartbeatReply {
    lacks_text: bool,
    /// Empty if the store has none that can be used.
    counts: LiveCounts,
}

impl HeartbeatReply {
    /// Reads a reply. What no script sends is left out.
    fn read(reply: &Value) -> Self {
        let Value::Array(values) = reply else { return Self::default() };
        let [lacks_text, Value::BulkString(summary)] = &values[..] else { return Self::default() };
        let words: Vec<_> = str::from_utf8(summary).unwrap_or_default().split(' ').collect();
        let count = |pair: &[&str]| match *pair {
            [digest, number] if is_hex(digest, DIGEST_DIGITS) => Some((digest.to_owned(), number.parse().ok()?)),
            _ => None,
        };
        Self { lacks_text: *lacks_text == Value::Int(1), counts: words.chunks(2).filter_map(count).collect() }
    }
}

//! The numbers of limiters that the replies to heartbeats have.

use std::cell::Cell;
use std::rc::Rc;

use redis::Value;
use tokio::time::Instant;

use super::owner::LiveServer;
use crate::instances::{CounterFamilies, Instances, LiveCounts};
use crate::store::redis::pipelined::ReplyBound;

/// The most inventories that are read after one heartbeat.
const MAX_READ: usize = 8;

/// Passes the numbers on, and reads the inventories that they are about.
pub(super) struct HeardCounts {
    server: Rc<LiveServer>,
    instances: Instances,
    heard_at: Cell<Option<Instant>>,
}

impl HeardCounts {
    pub(super) fn new(server: Rc<LiveServer>, instances: Instances) -> Self {
        Self { server, instances, heard_at: Cell::default() }
    }

    /// Sets the own inventory.
    pub(super) fn set_own(&self, digest: &str, counters: CounterFamilies) {
        if self.instances.is_live() {
            self.instances.heard().set_own(digest, counters);
        }
    }

    /// Hears the numbers of a reply. An inventory that cannot be read may count any key.
    pub(super) async fn hear(&self, counts: LiveCounts) {
        // A limiter that is listed hears of itself at least.
        if counts.is_empty() {
            return;
        }
        let heard = self.instances.heard();
        let now = Instant::now();
        let before = self.heard_at.replace(Some(now));
        heard.hear(counts, before.map(|before| now.duration_since(before)).unwrap_or_default());
        if !self.instances.is_live() {
            return;
        }
        for inventory in heard.unread().into_iter().take(MAX_READ) {
            if let Some(counters) = self.read(&inventory).await {
                heard.set_counters(&inventory, counters);
            }
        }
    }

    /// Reads the counters of an inventory. `None` if the store has none, or cannot be asked.
    async fn read(&self, inventory: &str) -> Option<CounterFamilies> {
        let (node, _) = self.server.connected()?;
        let mut command = redis::cmd("GET");
        command.arg(self.server.keys.inventory(inventory));
        match self.server.send_from(node, &command, ReplyBound::Script).await {
            Ok(Value::BulkString(text)) => Some(CounterFamilies::of_inventory(&String::from_utf8_lossy(&text))),
            _ => None,
        }
    }
}

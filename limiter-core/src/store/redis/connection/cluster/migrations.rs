//! Slots that move from one node to another.
//!
//! A new owner of a slot may lack its counters: the master failed, or the slot was assigned anew. A migrated slot lacks
//! none: its keys went to the new owner one by one, and calls on them were redirected there by ASK before the slot
//! itself moved. So an ASK proves that the new owner has the counters of the old one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use crate::store::redis::connection::managed::ManagedConnection;

/// The latest redirect of each slot.
#[derive(Default)]
pub(crate) struct SlotMigrations(RefCell<BTreeMap<u16, SlotMigration>>);

struct SlotMigration {
    to: Rc<ManagedConnection>,
    redirect: RedirectKind,
    at: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RedirectKind {
    Ask,
    Moved,
}

/// The time for which an ASK proves a migration.
const ASK_VALIDITY: Duration = Duration::from_secs(10);
/// The time for which a MOVED outweighs a map. The map may come from a node that has not applied the move yet.
const MOVED_VALIDITY: Duration = Duration::from_secs(1);

impl SlotMigrations {
    /// Records that the owner of a slot redirects calls on some of its keys to another node.
    pub(crate) fn ask(&self, slot: u16, to: &Rc<ManagedConnection>) {
        self.record(slot, to, RedirectKind::Ask);
    }

    /// Records that a slot has another owner.
    pub(crate) fn moved(&self, slot: u16, to: &Rc<ManagedConnection>) {
        self.record(slot, to, RedirectKind::Moved);
    }

    /// Returns whether the slot was migrated to this node.
    pub(crate) fn is_migrated(&self, slot: u16, to: &Rc<ManagedConnection>) -> bool {
        self.0.borrow().get(&slot).is_some_and(|latest| {
            latest.redirect == RedirectKind::Ask && latest.is_valid() && Rc::ptr_eq(&latest.to, to)
        })
    }

    /// Returns whether a map that names this owner is older than a MOVED.
    pub(crate) fn contradicts(&self, slot: u16, owner: &Rc<ManagedConnection>) -> bool {
        self.0.borrow().get(&slot).is_some_and(|latest| {
            latest.redirect == RedirectKind::Moved && latest.is_valid() && !Rc::ptr_eq(&latest.to, owner)
        })
    }

    /// The nodes that have keys of moving slots, also where the map does not name them.
    pub(crate) fn targets(&self) -> Vec<(u16, Rc<ManagedConnection>)> {
        let mut moves = self.0.borrow_mut();
        moves.retain(|_, latest| latest.is_valid());
        moves.iter().map(|(slot, latest)| (*slot, Rc::clone(&latest.to))).collect()
    }

    fn record(&self, slot: u16, to: &Rc<ManagedConnection>, redirect: RedirectKind) {
        let latest = SlotMigration { to: Rc::clone(to), redirect, at: Instant::now() };
        self.0.borrow_mut().insert(slot, latest);
    }
}

impl SlotMigration {
    fn is_valid(&self) -> bool {
        self.at.elapsed()
            < match self.redirect {
                RedirectKind::Ask => ASK_VALIDITY,
                RedirectKind::Moved => MOVED_VALIDITY,
            }
    }
}

//! Slots that move from one node to another.
//!
//! A slot that changes its owner may have lost its counts: its master failed, or it was assigned anew. A slot that was
//! migrated has lost nothing: its keys went to the new owner one after the other, and calls on them were sent there by
//! ASK before the slot itself was. So an ASK is the proof that the new owner has the counts of the old one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use crate::store::redis::connection::managed::ManagedConnection;

/// The latest redirects of slots.
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

/// How long an ASK proves a migration.
const ASK_HOLDS: Duration = Duration::from_secs(10);
/// How long a MOVED outweighs a map, which may come from a node that does not know of it yet.
const MOVED_HOLDS: Duration = Duration::from_secs(1);

impl SlotMigrations {
    /// Records that the owner of a slot sends calls on some of its keys to another node.
    pub(crate) fn ask(&self, slot: u16, to: &Rc<ManagedConnection>) {
        self.record(slot, to, RedirectKind::Ask);
    }

    /// Records that a slot has another owner.
    pub(crate) fn moved(&self, slot: u16, to: &Rc<ManagedConnection>) {
        self.record(slot, to, RedirectKind::Moved);
    }

    /// Returns whether the slot was migrated to this node.
    pub(crate) fn is_migrated(&self, slot: u16, to: &Rc<ManagedConnection>) -> bool {
        self.0
            .borrow()
            .get(&slot)
            .is_some_and(|latest| latest.redirect == RedirectKind::Ask && latest.holds() && Rc::ptr_eq(&latest.to, to))
    }

    /// Returns whether a map that names this owner is older than a MOVED.
    pub(crate) fn contradict(&self, slot: u16, owner: &Rc<ManagedConnection>) -> bool {
        self.0.borrow().get(&slot).is_some_and(|latest| {
            latest.redirect == RedirectKind::Moved && latest.holds() && !Rc::ptr_eq(&latest.to, owner)
        })
    }

    /// The nodes that have keys of moving slots, whatever the map says.
    pub(crate) fn targets(&self) -> Vec<(u16, Rc<ManagedConnection>)> {
        let mut moves = self.0.borrow_mut();
        moves.retain(|_, latest| latest.holds());
        moves.iter().map(|(slot, latest)| (*slot, Rc::clone(&latest.to))).collect()
    }

    fn record(&self, slot: u16, to: &Rc<ManagedConnection>, redirect: RedirectKind) {
        let latest = SlotMigration { to: Rc::clone(to), redirect, at: Instant::now() };
        self.0.borrow_mut().insert(slot, latest);
    }
}

impl SlotMigration {
    fn holds(&self) -> bool {
        self.at.elapsed()
            < match self.redirect {
                RedirectKind::Ask => ASK_HOLDS,
                RedirectKind::Moved => MOVED_HOLDS,
            }
    }
}

//! Calls that are put to a server together.
//!
//! Those of one kind, with the same count, limit and cost, are one entry: they are granted one after the other, as many as
//! fit. So a key that everybody wants costs the server one decision for all who wait for it.

use std::collections::{HashMap, hash_map};
use std::rc::Rc;
use std::time::Duration;

use tokio::task::spawn_local;
use tokio::time::{Instant, timeout_at};

use super::driver::Driver;
use super::exchange::Exchange;
use super::lane::Lane;
use super::link::Link;
use super::pending::Pending;
use super::script::{Entry, Grant};
use super::several::all;
use crate::guard::Settled;
use crate::standby::Before;
use crate::store::{Answer, Question};
use crate::{Algorithm, Error, Limit};

/// Entries of one slot, and whose they are.
#[derive(Default)]
struct Group {
    slot: u16,
    entries: Vec<Entry>,
    /// The calls of each entry, in the order in which they came.
    calls: Vec<Vec<Rc<Pending>>>,
    places: HashMap<(Rc<str>, Limit, u32), usize>,
}

/// One of the groups that may be under way to a server; when it is given up, the next may go. That is when all is
/// answered, or under way to another server instead.
pub(super) struct Seat {
    driver: Rc<Driver>,
    link: Rc<Link>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.link.lane().arrive();
        self.driver.depart(&self.link);
    }
}

/// Entries that go at a time: the server serves nobody else meanwhile.
const MOST_ENTRIES: usize = 128;

impl Driver {
    /// Sends what may go to this server now.
    pub(super) fn depart(self: &Rc<Self>, link: &Rc<Link>) {
        while let Some(calls) = link.lane().depart() {
            // At once: what finds no room is back in the queue before the next group is taken from it.
            let groups = self.board(link.lane(), calls);
            let seat = Rc::new(Seat { driver: Rc::clone(self), link: Rc::clone(link) });
            spawn_local(Rc::clone(self).carry(seat, groups));
        }
    }

    async fn carry(self: Rc<Self>, seat: Rc<Seat>, groups: Vec<Group>) {
        let link = Rc::clone(&seat.link);
        let carry = |group| self.exchange(link.lane(), group, Some(Rc::clone(&seat)));
        let mut ways: Vec<_> = groups.into_iter().map(carry).collect();
        // From here on each has its own part of it.
        drop(seat);
        match (ways.pop(), ways.is_empty()) {
            (None, _) => {}
            (Some(way), true) => way.await,
            (Some(way), false) => drop(all(ways.into_iter().chain([way])).await),
        }
    }

    /// Those that are to be asked, by their slots.
    fn board(&self, lane: &Lane, calls: Vec<Rc<Pending>>) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        let mut calls = calls.into_iter();
        let (mut entries, now) = (0, Instant::now());
        while entries < MOST_ENTRIES
            && let Some(call) = calls.next()
        {
            // Nobody waits for it, so nothing is asked, and nothing has failed.
            if !call.is_wanted() {
                continue;
            }
            if now >= call.until.instant {
                self.late(&call);
                continue;
            }
            let questions = [call.question()];
            match self.standby().before(&questions, Duration::ZERO) {
                Before::StoreAlone => {}
                Before::Held(answer) => call.held.set(Some(answer)),
                Before::Denied(answer) => {
                    call.answer(Ok(Settled::by_standby(answer)));
                    continue;
                }
            }
            let slot = self.nodes().slot(&questions[0]);
            let place = groups.iter().position(|group| group.slot == slot).unwrap_or_else(|| {
                groups.push(Group { slot, ..Group::default() });
                groups.len() - 1
            });
            entries += groups[place].add(self.script().name(&questions[0]).into(), &call);
        }
        lane.put_back(calls.collect());
        groups
    }

    async fn exchange(&self, lane: &Lane, group: Group, seat: Option<Rc<Seat>>) {
        let Group { slot, entries, calls, .. } = group;
        let Some(latest) = calls.iter().flatten().map(|call| call.until.instant).max() else { return };
        let command = self.script().group(&entries);
        let exchange = Rc::new(Exchange::new(self.terms(), self.nodes()).taking(seat));
        calls.iter().flatten().for_each(|call| call.sent(&exchange));
        lane.left(&exchange);
        let reply = timeout_at(latest, exchange.call(&command, slot)).await;
        lane.came_back(&exchange);
        match reply.map(|reply| reply.and_then(|reply| command.read_group(reply))) {
            // Each has been told, when its own time was over, or is now.
            Err(_) => calls.iter().flatten().for_each(|call| self.late(call)),
            Ok(Ok(grants)) => {
                for ((entry, calls), grant) in entries.iter().zip(&calls).zip(grants) {
                    match grant {
                        Ok(grant) => self.hand_out(&grant, entry.cost, calls),
                        Err(error) => {
                            exchange.failed_in_part(&error);
                            self.failed(calls, &error);
                        }
                    }
                }
            }
            Ok(Err(_)) if exchange.is_torn() => {
                exchange.leave();
                self.apart(lane, slot, entries, calls).await;
            }
            Ok(Err(error)) => calls.iter().for_each(|calls| self.failed(calls, &error)),
        }
        exchange.leave();
    }

    /// Each entry by itself: nothing of them has been applied.
    async fn apart(&self, lane: &Lane, slot: u16, entries: Vec<Entry>, calls: Vec<Vec<Rc<Pending>>>) {
        let alone = |(entry, calls)| Group { slot, entries: vec![entry], calls: vec![calls], places: HashMap::new() };
        all(entries.into_iter().zip(calls).map(alone).map(|group| self.exchange(lane, group, None))).await;
    }

    fn hand_out(&self, grant: &Grant, cost: u32, calls: &[Rc<Pending>]) {
        for (place, call) in (0..).zip(calls) {
            if call.is_answered() {
                continue;
            }
            let answer = grant.to(place, cost);
            let (questions, held) = ([call.question()], call.held.get());
            let settled = match self.standby().after(&questions, Duration::ZERO, held.as_ref(), &answer) {
                Ok(mirrored) => Settled::by_store(answer, mirrored),
                Err(denial) => Settled::by_standby(denial),
            };
            call.answer(Ok(settled));
        }
    }

    fn failed(&self, calls: &[Rc<Pending>], error: &Error) {
        for call in calls.iter().filter(|call| !call.is_answered()) {
            self.standby().call_failed(&[call.question()]);
            call.fail(error.clone());
        }
    }

    fn late(&self, call: &Pending) {
        if !call.is_answered() {
            self.standby().call_failed(&[call.question()]);
            call.late();
        }
    }
}

impl Group {
    /// Gives how many entries it has more by this call.
    fn add(&mut self, name: Rc<str>, call: &Rc<Pending>) -> usize {
        let Question { limit, cost, .. } = call.question();
        // A queue that nobody waits in: what is free for one is not free for the next.
        if limit.algorithm() != Algorithm::LeakyBucket {
            match self.places.entry((Rc::clone(&name), limit, cost)) {
                hash_map::Entry::Occupied(place) => {
                    self.entries[*place.get()].calls += 1;
                    self.calls[*place.get()].push(Rc::clone(call));
                    return 0;
                }
                hash_map::Entry::Vacant(place) => drop(place.insert(self.entries.len())),
            }
        }
        self.entries.push(Entry { name, limit, cost, calls: 1 });
        self.calls.push(vec![Rc::clone(call)]);
        1
    }
}

impl Grant {
    /// The answer to one of the calls.
    pub(super) fn to(&self, place: u32, cost: u32) -> Answer {
        let Self { granted, remaining, retry_after, reset_after, stamp } = *self;
        let behind = granted.saturating_sub(place + 1);
        let (allowed, retry_after) = if place < granted { (true, Some(Duration::ZERO)) } else { (false, retry_after) };
        let remaining = remaining.saturating_add(behind.saturating_mul(cost));
        Answer { allowed, which: 0, remaining, retry_after, reset_after, stamp, delay: Duration::ZERO }
    }
}

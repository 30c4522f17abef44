//! The slots in use are never more than the limit, but for calls whose slots were lost.

use super::*;

/// A process that follows the protocol.
#[derive(Default)]
struct JudgedSlots {
    number: u32,
    /// Calls that run and have slots.
    run: u16,
    /// Calls that run after their slots have ended.
    lost: u16,
    /// The lost calls in its last message.
    registered: u16,
    allow: u16,
    end: u64,
}

impl JudgedSlots {
    /// Runs calls until now.
    fn live(&mut self, now: u64, random: &mut Random) {
        if now >= self.end {
            (self.lost, self.run, self.allow) = (self.lost + self.run, 0, 0);
        }
        let free = self.allow.saturating_sub(self.run + self.lost);
        self.run += some(random, free);
        self.run -= some(random, self.run);
        self.lost -= some(random, self.lost);
    }

    /// Sends a message to the store, whose reply may be lost.
    fn send(&mut self, store: &mut StoredSlots, (now, max): (u64, u16), index: u16, random: &mut Random) {
        let run = self.run + self.lost;
        let waiting = some(random, 4);
        let want = run + some(random, 3).max(waiting);
        if want < self.allow {
            self.allow = want;
        }
        (self.number, self.registered) = (self.number + 1, self.lost);
        let hold = run.max(self.allow);
        let message = SlotMessage { hold, waiting, least: 0, ..message(self.number, run, want, max) };
        let (reply, _) = store.apply(now, process(index), &message);
        if random.below(5) > 0 {
            (self.allow, self.end) = (reply.allow, now + 990);
        }
    }
}

/// A number from 0 to `most`, mostly small.
fn some(random: &mut Random, most: u16) -> u16 {
    u16::try_from(random.below(u64::from(most) + 1)).expect("16 bits")
}

#[test]
fn slots_beyond_the_limit_are_those_of_lost_calls() {
    let (mut lost, mut beyond, mut most_in_use) = (0, 0, 0);
    for seed in 0..full_or(20_000, 500) {
        let mut random = Random::new(seed);
        let max = 1 + some(&mut random, 7);
        let (mut store, mut now) = (StoredSlots::default(), 1_000_000);
        let mut processes: Vec<_> = (0..=random.between(1, 4)).map(|_| JudgedSlots::default()).collect();
        for _ in 0..200 {
            now += random.below(300);
            let index = random.below(processes.len() as u64);
            processes.iter_mut().for_each(|process| process.live(now, &mut random));
            let number = u16::try_from(index).expect("16 bits");
            processes[usize::from(number)].send(&mut store, (now, max), number, &mut random);

            let registered: u16 = processes.iter().map(|process| process.registered).sum();
            let held: u16 = store.peek(now).iter().map(|holder| holder.slots).sum();
            let in_use: u16 = processes.iter().map(|process| process.run).sum();
            assert!(held <= max + registered, "seed {seed}: {held} slots of {max} and {registered} lost");
            assert!(in_use <= max, "seed {seed}: {in_use} calls of {max}");
            lost += u32::from(registered);
            beyond += u32::from(held > max);
            most_in_use += u32::from(in_use == max);
        }
    }
    assert!(lost > 100 && beyond > 100 && most_in_use > 1000, "{lost} {beyond} {most_in_use}");
}

//! Random schedules of messages, which the script and the model must execute alike.

use super::*;

/// Keys of a schedule.
const KEYS: [&str; 3] = ["a", "b", "c"];

/// The expiry becomes a time, since the clock of the server stands still.
const EXPIRY: (&str, &str) = ("2000 - now)", "2000)");
/// Looks at all entries with each message.
const ALWAYS_CLEAN: (&str, &str) = ("if first <= now or", "if true or first <= now or");
/// Changes each value in place.
const IN_PLACE: (&str, &str) = ("MAX_WHOLE_BYTES = 100", "MAX_WHOLE_BYTES = 0");

#[derive(Default)]
struct SendingProcess {
    /// The number of its last message.
    number: u32,
    /// Its last message about each key, and the slots that it may use.
    last: HashMap<usize, (SlotMessage, u16)>,
}

/// A script and the models of its keys.
struct SlotSchedule {
    script: Script,
    random: Random,
    keys: Vec<(RedisKey, StoredSlots)>,
    processes: Vec<SendingProcess>,
    max: u16,
    slot_times: &'static [u16],
}

impl SlotSchedule {
    fn new(seed: u64, processes: usize, texts: &[(&str, &str)]) -> Self {
        let mut random = Random::new(seed);
        let script = Script::with_replaced(RedisServer::timeless(), texts);
        let keys = KEYS.map(|name| (script.key(name), StoredSlots::default())).to_vec();
        // The numbers of some processes wrap.
        let numbers = [0, u32::MAX - 30];
        let process = |_| SendingProcess { number: numbers[pick(&mut random, 2)], ..SendingProcess::default() };
        let processes = (0..processes).map(process).collect();
        let max = [1, 2, 5, 20, 60][pick(&mut random, 5)];
        let slot_times = [&[100_u16][..], &[100, 100, 100, 700]][pick(&mut random, 2)];
        Self { script, random, keys, processes, max, slot_times }
    }

    fn below(&mut self, bound: u16) -> u16 {
        u16::try_from(self.random.below(bound.into())).expect("16 bits")
    }

    /// The next message of a process: mostly a new one, sometimes the last or a late one.
    fn message(&mut self, process: usize, key: usize) -> SlotMessage {
        let last = self.processes[process].last.get(&key).copied();
        match (last, self.random.below(20)) {
            (Some((last, _)), 0) => return last,
            (Some((last, _)), 1) => return SlotMessage { number: last.number.wrapping_sub(1), ..last },
            _ => {}
        }
        self.processes[process].number = self.processes[process].number.wrapping_add(1);
        let (number, allow) = (self.processes[process].number, last.map_or(0, |(_, allow)| allow));
        let max = if self.random.below(10) == 0 { self.max.div_ceil(2) } else { self.max };
        let some = max.div_ceil(2) + 2;
        let run = if self.random.below(3) == 0 { self.below(some) } else { self.below(allow + 1) };
        let want = run + [0, self.below(some)][pick(&mut self.random, 2)];
        let waits = want > run && self.random.below(3) > 0;
        let least = if waits && self.random.below(4) == 0 { run + 1 + self.below(want - run) } else { 0 };
        SlotMessage {
            number,
            run,
            hold: run.max(allow.min(want)),
            want: if self.random.below(10) == 0 { 0 } else { want },
            least,
            waiting: if waits { want - run } else { 0 },
            max,
            slot_time: self.slot_times[pick(&mut self.random, self.slot_times.len())],
            asks_again: self.random.below(3) == 0,
        }
    }

    /// Makes one step. Returns false if script and model differ.
    fn step(&mut self) -> bool {
        match self.random.below(10) {
            0 => self.script.clock.advance(Duration::from_millis(self.random.below(3000))),
            1..=4 => self.script.clock.advance(Duration::from_micros(self.random.below(60_000))),
            5 if self.random.below(8) == 0 => {
                self.script.clock.rewind(Duration::from_millis(self.random.below(5000)));
            }
            _ => {}
        }
        let (now, index) = (self.script.now_ms(), pick(&mut self.random, KEYS.len()));
        let (key, model) = &mut self.keys[index];
        match self.random.below(150) {
            0 => {
                self.script.reset(key);
                model.reset(now);
            }
            1 => {
                let values: [&[u8]; 4] = [b"x", &[1; 55], &[2; 56], &[1; 24]];
                self.script.command("SET", key, &[values[pick(&mut self.random, 4)]]);
                model.damage();
            }
            2 => {
                self.script.command("DEL", key, &[]);
                self.script.command("HSET", key, &[b"field", b"value"]);
                model.damage();
            }
            _ => return self.send(now) && self.has_equal_values(now),
        }
        self.has_equal_values(now)
    }

    /// Sends a batch of a process.
    fn send(&mut self, now: u64) -> bool {
        let process = pick(&mut self.random, self.processes.len());
        let id = super::process(u16::try_from(process).expect("16 bits"));
        let keys: Vec<_> = (0..=self.random.below(3)).map(|_| pick(&mut self.random, KEYS.len())).collect();
        let (mut messages, mut expected, mut notices) = (Vec::new(), Vec::new(), Vec::new());
        for key in keys {
            let message = self.message(process, key);
            let (name, model) = &mut self.keys[key];
            let (reply, woken) = model.apply(now, id, &message);
            let channels = woken.into_iter().map(|process| self.script.naming.notice_channel(process));
            notices.extend(channels.map(|channel| (channel, name.name.to_vec())));
            messages.push((name.clone(), message));
            expected.push(reply);
            self.processes[process].last.insert(key, (message, reply.allow));
        }
        self.script.send(id, &messages) == Some(expected) && self.script.notices() == notices
    }

    fn has_equal_values(&mut self, now: u64) -> bool {
        self.keys.iter().all(|(key, model)| {
            let holders = model.peek(now);
            let last = holders.iter().map(|holder| holder.end).max();
            let ttl = last.is_none_or(|last| {
                let end = u128::from(now) + last.as_millis();
                let expiry = self.script.command("PTTL", key, &[]).integer();
                u128::try_from(expiry).is_ok_and(|expiry| expiry > end + 500)
            });
            let value = self.script.command("GET", key, &[]);
            ttl && self.script.peek(key) == Some(holders)
                && model.encode().is_none_or(|entries| has_entries(&value, &entries))
        })
    }
}

fn pick(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.below(bound as u64)).unwrap_or(0)
}

/// Returns whether a value has these entries, and a head for them.
fn has_entries(value: &Reply, expected: &[u8]) -> bool {
    let Reply::Bulk(value) = value else { return expected.is_empty() };
    let Some((head, entries)) = value.split_first_chunk::<24>() else { return false };
    let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let parts = entries.as_chunks::<32>().0;
    let sum: u64 = parts.iter().map(|entry| number(&entry[18..20])).sum();
    let waiting = parts.iter().filter(|entry| number(&entry[22..24]) > 0).count();
    let is_within = |entry: &[u8; 32]| {
        let end = number(&entry[8..14]);
        number(&head[5..11]) <= end && end <= number(&head[11..17]) && number(&head[17..19]) <= number(&entry[20..22])
    };
    let has_numbers = sum == number(&head[1..5]) && waiting as u64 == number(&head[19..21]);
    entries == expected && !expected.is_empty() && has_numbers && parts.iter().all(is_within)
}

/// Returns the step in which the script first differs from the model.
fn first_difference(seed: u64, processes: usize, texts: &[(&str, &str)]) -> Option<u64> {
    let mut schedule = SlotSchedule::new(seed, processes, &[&[EXPIRY], texts].concat());
    (0..full_or(3000, 400)).find(|_| !schedule.step())
}

#[test]
fn the_script_does_what_the_model_does() {
    for seed in 0..full_or(12, 6) {
        for processes in [3, 6, 40] {
            for texts in [&[][..], &[ALWAYS_CLEAN], &[IN_PLACE]] {
                assert_eq!(
                    first_difference(seed, processes, texts),
                    None,
                    "seed {seed}, {processes} processes, {texts:?}"
                );
            }
        }
    }
}

#[test]
fn a_script_with_a_fault_differs_from_the_model() {
    let faults: [(&str, &[(&str, &str)]); 16] = [
        (
            "an ended entry is revived",
            &[
                (
                    "if ends <= now or ends > latest then",
                    "if ends <= now and sub(value, at, at + 7) ~= ARGV[2] or ends > latest then",
                ),
                ("    if ends > now then\n", "    if ends > now or sub(value, at, at + 7) == ARGV[2] then\n"),
            ],
        ),
        ("no end is shortened", &[("local latest = now + unit * 10", "local latest = ends")]),
        ("numbers are not compared", &[("state = lead < WRAP / 2 and STALE or FRESH", "state = FRESH")]),
        ("a number counts twice", &[("state = lead < WRAP / 2 and", "state = lead > 0 and lead < WRAP / 2 and")]),
        ("the floor is the running calls", &[("floor = own_slots > run and own_slots or run", "floor = run")]),
        (
            "all that is granted may be used",
            &[("local allow = granted < room and granted or room", "local allow = granted")],
        ),
        ("those that wait are not looked for", &[("if other_waiters > 0 then", "if false then")]),
        ("ended entries stay", &[("if first <= now or", "if")]),
        (
            "the place in the line does not count",
            &[("if not is_hungry or own_waiting == 0 or since < own_since then", "if not is_hungry then")],
        ),
        ("a part that helps nobody is granted", &[("if part > floor and part >= least then", "if part > floor then")]),
        (
            "one that got something keeps its place",
            &[("own_waiting > 0 and granted <= own_slots and", "own_waiting > 0 and")],
        ),
        ("the clock gives the place in the line", &[("latest = since >= latest and since + 1 or latest", "")]),
        ("no notice follows an end", &[("granted < own_slots or has_ended or", "granted < own_slots or")]),
        ("no holder has a notice", &[("(own_waiting == 0 or asks_again % 2 == 1)", "false")]),
        ("the key expires too early", &[("if last - last % 1000 ~= old_last - old_last % 1000 then", "if false then")]),
        ("the head has an old sum", &[("sum, waiters = in_use + granted,", "sum, waiters = sum,")]),
    ];
    for (fault, texts) in faults {
        let difference = (0..6).find_map(|seed| first_difference(seed, 6, texts));
        assert!(difference.is_some(), "{fault}");
    }
}

#[test]
fn no_value_makes_the_script_fail() {
    let mut random = Random::new(1);
    let mut script = Script::new(RedisServer::timeless());
    let key = script.key("value");
    for _ in 0..full_or(20_000, 300) {
        let processes = 1 + random.below(4);
        script.command("DEL", &key, &[]);
        let send = |script: &mut Script, random: &mut Random, number| {
            let process = process(u16::try_from(random.below(processes)).expect("16 bits"));
            let waiting = [0, 2][pick(random, 2)];
            let message = SlotMessage { waiting, asks_again: true, ..message(number, 1, 1 + waiting, 5) };
            script.send(process, &[(key.clone(), message)])
        };
        for number in 0..6 {
            assert!(send(&mut script, &mut random, number).is_some());
        }
        let mut value = script.command("GET", &key, &[]).bytes();
        for _ in 0..=random.below(6) {
            let at = 1 + pick(&mut random, value.len() - 1);
            value[at] = [0, 1, 127, 255][pick(&mut random, 4)];
        }
        script.command("SET", &key, &[&value]);
        for number in 6..12 {
            let reply = send(&mut script, &mut random, number);
            assert!(reply.is_some() && script.peek(&key).is_some(), "{value:?}");
        }
        // An end that is too late becomes known after the longest slot time. Then it comes a slot time later.
        for number in 1..3 {
            script.clock.advance(Duration::from_millis(655_351));
            script.send(process(9), &[(key.clone(), message(number, 0, 0, 5))]).expect("a reply");
        }
        let reply = script.send(process(9), &[(key.clone(), message(3, 0, 5, 5))]).expect("a reply");
        assert_eq!((reply[0].granted, reply[0].in_use), (5, 5), "{value:?}");
    }
}

//! The counters that the rules of a limiter can make, in a form that other limiters compare.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::iter;

use crate::algorithm::CounterKind;
use crate::error::NamedValue;
use crate::key::KeyTemplate;
use crate::{Key, Limit};

/// Stands for keys, or for limits, that are unknown.
const UNKNOWN: u64 = 0;

/// The texts of a key and the places of its parts, as a hash that is the same in each process. `None` if they are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyShape(u64);

impl KeyShape {
    /// The shape of a key. `None` for one that was read from a digest, or is long with many parts.
    pub(crate) fn of(key: &Key) -> Option<Self> {
        let outline = key.outline()?;
        let mut hash = Fnv::NEW;
        // Texts and parts alternate.
        for (index, piece) in outline.split(|byte| *byte == b'@').enumerate() {
            if index % 2 == 0 { hash.add(piece) } else { hash.add(b"@") }
        }
        Some(Self(hash.known()))
    }

    /// The shape of a template's keys. `None` for a text that is no template.
    pub(crate) fn of_template(template: &str) -> Option<Self> {
        let template = KeyTemplate::parse(template)?;
        let parts = template.parts.len();
        Self::of(&template.key(iter::repeat_n("", parts)))
    }
}

/// Counters of a rule: those of its keys of one template with one algorithm and window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CounterFamily {
    shape: u64,
    kind: u64,
    rule: u64,
}

impl CounterFamily {
    /// `shape` and `limit` are `None` if they are unknown.
    pub(crate) fn new(rule: &str, shape: Option<KeyShape>, limit: Option<&Limit>) -> Self {
        let shape = shape.map_or(UNKNOWN, |shape| shape.0);
        Self { shape, kind: limit.map_or(UNKNOWN, kind), rule: Fnv::of(rule.as_bytes()) }
    }
}

/// The algorithm and the window of a limit.
pub(super) fn kind(limit: &Limit) -> u64 {
    let CounterKind { algorithm, window } = (*limit).into();
    let mut hash = Fnv::NEW;
    hash.add(algorithm.name().as_bytes());
    hash.add(&window.to_be_bytes());
    hash.known()
}

/// The counters of an inventory, in order. `None` if any key may be counted there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CounterFamilies(Option<BTreeSet<CounterFamily>>);

/// The most counters in a text. An inventory with more counts any key.
const MAX_COUNTERS: usize = 2_048;
const START: &str = "{\"counters\":\"";
const END: &str = "\"}";
/// The hex digits of each number of a counter.
const DIGITS: usize = 16;

impl CounterFamilies {
    pub(crate) fn new(counters: impl IntoIterator<Item = CounterFamily>) -> Self {
        let counters: BTreeSet<_> = counters.into_iter().collect();
        Self((counters.len() <= MAX_COUNTERS).then_some(counters))
    }

    /// The line of an inventory with these counters: a JSON object.
    pub(crate) fn line(&self) -> String {
        let mut line = String::from(START);
        for CounterFamily { shape, kind, rule } in self.0.iter().flatten() {
            // Writing to a `String` cannot fail.
            let _ = write!(line, "{shape:016x}{kind:016x}{rule:016x}");
        }
        if self.0.is_none() {
            line.push('*');
        }
        line + END
    }

    /// Reads the counters from the text of an inventory. One without them may count any key.
    pub(crate) fn of_inventory(text: &str) -> Self {
        let line = text.lines().rev().find_map(|line| line.strip_prefix(START)?.strip_suffix(END));
        Self(line.and_then(parse))
    }

    /// The rules that count keys of this shape by this kind. `None` if there is none.
    pub(super) fn rules_of(&self, shape: Option<KeyShape>, kind: u64) -> Option<BTreeSet<u64>> {
        let shape = shape?.0;
        let rules: BTreeSet<_> = self.of_shape(shape, kind)?.map(|counter| counter.rule).collect();
        (!rules.is_empty()).then_some(rules)
    }

    /// Returns whether keys of this shape may be counted by this kind, here or by one of these rules with unknown keys.
    pub(super) fn may_count(&self, shape: KeyShape, kind: u64, rules: &BTreeSet<u64>) -> bool {
        let (Some(mut of_shape), Some(mut of_unknown)) = (self.of_shape(shape.0, kind), self.of_shape(UNKNOWN, kind))
        else {
            return true;
        };
        of_shape.next().is_some() || of_unknown.any(|counter| rules.contains(&counter.rule))
    }

    fn of_shape(&self, shape: u64, kind: u64) -> Option<impl Iterator<Item = &CounterFamily>> {
        let first = CounterFamily { shape, kind: 0, rule: 0 };
        let last = CounterFamily { shape, kind: u64::MAX, rule: u64::MAX };
        let of_shape = self.0.as_ref()?.range(first..=last);
        Some(of_shape.filter(move |counter| counter.kind == kind || counter.kind == UNKNOWN))
    }
}

/// Reads the numbers of counters. `None` for a text that no limiter writes.
fn parse(digits: &str) -> Option<BTreeSet<CounterFamily>> {
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) || digits.len() > MAX_COUNTERS * 3 * DIGITS {
        return None;
    }
    let numbers = digits.as_bytes().chunks(DIGITS).map(|number| std::str::from_utf8(number).ok());
    let numbers = numbers.map(|number| u64::from_str_radix(number?, 16).ok()).collect::<Option<Vec<_>>>()?;
    let counters = numbers.chunks(3).map(|numbers| match *numbers {
        [shape, kind, rule] => Some(CounterFamily { shape, kind, rule }),
        _ => None,
    });
    counters.collect()
}

/// The hash FNV-1a with 64 bits (Fowler, Noll and Vo, draft-eastlake-fnv): the same in each process.
struct Fnv(u64);

impl Fnv {
    const NEW: Self = Self(0xcbf2_9ce4_8422_2325);
    const PRIME: u64 = 0x0000_0100_0000_01b3;

    fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(Self::PRIME));
    }

    /// The hash as a number that does not mean unknown.
    fn known(self) -> u64 {
        self.0.max(UNKNOWN + 1)
    }

    fn of(bytes: &[u8]) -> u64 {
        let mut hash = Self::NEW;
        hash.add(bytes);
        hash.known()
    }
}

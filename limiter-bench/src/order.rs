//! The order in which calls use keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The spread of a case's calls over its keys.
#[derive(Debug, Clone)]
pub enum Order {
    /// A random key, each with the same probability.
    Random {
        /// The number of keys.
        keys: usize,
    },
    /// Each key a number of times in a row, and then never again. The order ends with the last key.
    InTurn {
        /// The number of keys.
        keys: usize,
        /// Calls on each.
        times: usize,
        /// Calls so far, of all pickers of this order.
        calls: Arc<AtomicUsize>,
    },
}

impl Order {
    /// Creates an order in which each key is used `times` in a row.
    #[must_use]
    pub fn in_turn(keys: usize, times: usize) -> Self {
        Self::InTurn { keys, times, calls: Arc::default() }
    }

    /// Returns the keys of one caller. Each caller needs a seed of its own.
    #[must_use]
    pub fn picker(&self, seed: usize) -> Picker {
        let state = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed as u64 + 1) | 1;
        Picker { order: self.clone(), state }
    }
}

/// The keys of one caller.
#[derive(Debug)]
pub struct Picker {
    order: Order,
    state: u64,
}

impl Picker {
    /// Returns the key of the next call, or none after the last.
    #[inline]
    pub fn next_key(&mut self) -> Option<usize> {
        match &self.order {
            Order::Random { keys } => Some(below(*keys, &mut self.state)),
            Order::InTurn { keys, times, calls } => {
                let key = calls.fetch_add(1, Ordering::Relaxed) / times;
                (key < *keys).then_some(key)
            }
        }
    }
}

/// Returns a random number below `bound`: xorshift, and the upper half of a product instead of a remainder.
#[inline]
fn below(bound: usize, state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    let product = u128::from(*state) * (bound as u128);
    usize::try_from(product >> 64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_reaches_every_key_and_no_other() {
        let mut picker = Order::Random { keys: 7 }.picker(1);
        let mut seen = [0_u32; 7];
        for _ in 0..7_000 {
            seen[picker.next_key().expect("no end")] += 1;
        }
        assert!(seen.iter().all(|&times| (800..1_200).contains(&times)), "{seen:?}");
    }

    #[test]
    fn in_turn_uses_each_key_a_fixed_number_of_times_over_all_pickers() {
        let order = Order::in_turn(2, 3);
        let (mut one, mut other) = (order.picker(0), order.picker(1));
        let keys: Vec<_> = (0..4).flat_map(|_| [one.next_key(), other.next_key()]).collect();
        assert_eq!(keys, [Some(0), Some(0), Some(0), Some(1), Some(1), Some(1), None, None]);
    }
}

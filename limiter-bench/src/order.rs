//! Which key is asked for next.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How the calls of a case spread over its keys.
#[derive(Debug, Clone)]
pub enum Order {
    /// Any key, each as likely.
    Random {
        /// How many there are.
        keys: usize,
    },
    /// Each key so many times in a row, and then never again. Ends with the last key.
    InTurn {
        /// How many there are.
        keys: usize,
        /// Calls on each.
        times: usize,
        /// Calls so far, by all who share the order.
        calls: Arc<AtomicUsize>,
    },
}

impl Order {
    /// Each key `times` in a row.
    #[must_use]
    pub fn in_turn(keys: usize, times: usize) -> Self {
        Self::InTurn { keys, times, calls: Arc::default() }
    }

    /// For one of those who ask. Each needs a seed of its own.
    #[must_use]
    pub fn picker(&self, seed: usize) -> Picker {
        let state = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed as u64 + 1) | 1;
        Picker { order: self.clone(), state }
    }
}

/// One caller's keys.
#[derive(Debug)]
pub struct Picker {
    order: Order,
    state: u64,
}

impl Picker {
    /// The key of the next call, or none if there are no more.
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

/// Xorshift, and the upper half of a product in place of a remainder.
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
    fn in_turn_gives_each_key_so_often_over_all_pickers_and_ends() {
        let order = Order::in_turn(2, 3);
        let (mut one, mut other) = (order.picker(0), order.picker(1));
        let keys: Vec<_> = (0..4).flat_map(|_| [one.next_key(), other.next_key()]).collect();
        assert_eq!(keys, [Some(0), Some(0), Some(0), Some(1), Some(1), Some(1), None, None]);
    }
}

//! Settlements: the change of what an allowed call counts, once its cost is known.

use super::once::Once;
use super::sharing::{SameCounter, takes};
use super::{RefundInfo, Request};

/// The permits that each request of a call counts from now on. The cost of a request is what it counts before.
#[derive(Clone, Debug)]
pub(crate) struct Settlement {
    pub(crate) info: RefundInfo,
    /// One number for each request.
    pub(crate) after: Vec<u32>,
    /// Present for a receipt, which the store settles once. It has a lone stamp.
    pub(crate) once: Option<Once>,
}

/// What a settlement changes by one request. Those on one counter all return permits, or all charge some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterChange<'a> {
    /// Its cost is what the call counts in addition.
    pub(crate) charged: Request<'a>,
    /// The permits that it counts no longer.
    pub(crate) returned: u32,
    /// The permits that it keeps, if any are returned.
    pub(crate) kept: u32,
}

/// The changes of the counters, one for each request. On one counter they are of one kind: the last turns of a leaky bucket
/// could not be returned after a charge.
pub(crate) fn changes<'a>(
    requests: &[Request<'a>],
    after: &[u32],
    same_counter: SameCounter,
) -> Vec<CounterChange<'a>> {
    let count = |(request, after): (&Request<'a>, &u32)| Request { cost: *after, ..*request };
    let settled: Vec<_> = requests.iter().zip(after).map(count).collect();
    let (before, after) = (takes(requests, same_counter), takes(&settled, same_counter));
    let change = |(before, after): (&Request<'a>, &Request<'a>)| CounterChange {
        charged: Request { cost: after.cost.saturating_sub(before.cost), ..*before },
        returned: before.cost.saturating_sub(after.cost),
        kept: before.cost.min(after.cost),
    };
    let mut changes: Vec<_> = before.iter().zip(after.iter()).map(change).collect();
    for index in 0..changes.len() {
        let of_counter = |other: &usize| same_counter(&requests[index], &requests[*other]);
        for other in (0..changes.len()).filter(of_counter) {
            let moved = changes[index].returned.min(changes[other].charged.cost);
            changes[index].returned -= moved;
            changes[index].kept += moved;
            changes[other].charged.cost -= moved;
        }
    }
    changes
}

/// The changes of a charge: the call counts the cost of each request, and has counted nothing before.
pub(crate) fn charges<'a>(requests: &[Request<'a>], same_counter: SameCounter) -> Vec<CounterChange<'a>> {
    let before: Vec<_> = requests.iter().map(|request| Request { cost: 0, ..*request }).collect();
    let after: Vec<_> = requests.iter().map(|request| request.cost).collect();
    changes(&before, &after, same_counter)
}

impl Settlement {
    /// The changes of the requests.
    pub(crate) fn changes<'a>(&self, requests: &[Request<'a>], same_counter: SameCounter) -> Vec<CounterChange<'a>> {
        changes(requests, &self.after, same_counter)
    }
}

/// The requests of what changes add, each with its cost.
pub(crate) fn charged<'a>(changes: &[CounterChange<'a>]) -> Vec<Request<'a>> {
    changes.iter().map(|change| change.charged).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;
    use crate::request::Role;
    use crate::request::sharing::in_memory;

    /// The permits that each change charges, returns and keeps.
    fn numbers(changes: &[CounterChange<'_>]) -> Vec<(u32, u32, u32)> {
        changes.iter().map(|change| (change.charged.cost, change.returned, change.kept)).collect()
    }

    #[test]
    fn requests_of_one_counter_change_together() {
        let (key, other) = (Key::new("a"), Key::new("b"));
        let limit = |text: &str| text.parse().expect("a limit");
        let requests = [
            Request::new(&key, limit("9/s"), 2),
            Request::new(&key, limit("5/s"), 5),
            Request::new(&other, limit("5/s"), 1),
        ];
        assert_eq!(numbers(&changes(&requests, &[3, 3, 3], in_memory)), [(0, 0, 2), (0, 1, 4), (2, 0, 1)]);
        assert_eq!(numbers(&changes(&requests, &[9, 3, 0], in_memory)), [(5, 0, 2), (0, 0, 5), (0, 1, 0)]);
        assert_eq!(numbers(&changes(&requests, &[4, 6, 1], in_memory)), [(2, 0, 2), (1, 0, 5), (0, 0, 1)]);
    }

    #[test]
    fn lanes_count_the_largest_sum_before_and_after() {
        let key = Key::new("a");
        let request = |rule, cost| Request {
            role: Role::of_limit(rule, 0),
            ..Request::new(&key, "9/s".parse().expect("a limit"), cost)
        };
        let requests = [request(1, 5), request(2, 3)];
        assert_eq!(numbers(&changes(&requests, &[1, 3], in_memory)), [(0, 2, 3), (0, 0, 0)]);
        assert_eq!(numbers(&changes(&requests, &[5, 8], in_memory)), [(3, 0, 5), (0, 0, 0)]);
        assert_eq!(numbers(&changes(&requests, &[5, 4], in_memory)), [(0, 0, 5), (0, 0, 0)]);
    }
}

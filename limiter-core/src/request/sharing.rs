//! The permits that the requests of one decision take of a counter that several of them use.
//!
//! A rule with several limits, and several rules of one call, may use one counter. The call then counts there once: each
//! request is evaluated with its own limit and cost, and the largest cost is taken, by the smallest `max`. A bucket whose
//! permits refill at the lower rate holds for the higher one too. The items of a direct call are in one lane, and add up.

use std::borrow::Cow;

use super::{Request, Role};

/// Returns whether two requests use one counter of a store. Stores differ in the layouts that they tell apart.
pub(crate) type SameCounter = fn(&Request<'_>, &Request<'_>) -> bool;

/// Returns whether two requests use one counter of the memory store, which has one layout.
pub(crate) fn in_memory(one: &Request<'_>, other: &Request<'_>) -> bool {
    one.has_counter(other.key, other.limit)
}

/// Returns whether two requests use one counter in Redis, where each layout has its own, and each number of hashes too.
pub(crate) fn in_redis(one: &Request<'_>, other: &Request<'_>) -> bool {
    let place = |request: &Request<'_>| (request.limit.layout(), request.limit.packed());
    place(one) == place(other) && in_memory(one, other)
}

/// Returns whether any of the requests are of several lanes, observed or postpaid. If not, each takes its own cost.
pub(crate) fn may_share(requests: &[Request<'_>]) -> bool {
    requests.iter().any(|request| request.role != Role::ADDED)
}

/// Removes the lanes of requests whose counter no other lane uses, as most are.
pub(crate) fn remove_unshared_lanes(requests: &mut [Request<'_>]) {
    let is_shared =
        |request: &Request<'_>| requests.iter().any(|other| other.role != request.role && in_memory(request, other));
    let shared: Vec<_> = requests.iter().map(is_shared).collect();
    for (request, is_shared) in requests.iter_mut().zip(shared) {
        if !is_shared {
            request.role = request.role.without_lane();
        }
    }
}

/// The only request that is not observed; `None` if there are several.
#[inline]
pub(crate) fn lone<'r, 'a>(requests: &'r [Request<'a>]) -> Option<&'r Request<'a>> {
    match requests {
        [request] => Some(request),
        [request, next, ..] if next.role.is_observed() => Some(request),
        _ => None,
    }
}

/// The number of requests that are not observed. They come first.
pub(crate) fn enforced(requests: &[Request<'_>]) -> usize {
    requests.iter().take_while(|request| !request.role.is_observed()).count()
}

/// Permits that earlier requests of its lane take from the counter of one request.
pub(crate) fn pending(requests: &[Request<'_>], index: usize, same_counter: SameCounter) -> u32 {
    let request = &requests[index];
    let earlier = requests[..index].iter().filter(|other| other.role == request.role && same_counter(request, other));
    earlier.fold(0, |sum, other| sum.saturating_add(other.own_take()))
}

/// The requests with the permits that each takes as its cost. Of several lanes on a counter, the first request with the
/// smallest `max` takes the permits of all.
pub(crate) fn takes<'r, 'a>(requests: &'r [Request<'a>], same_counter: SameCounter) -> Cow<'r, [Request<'a>]> {
    if !may_share(requests) {
        return Cow::Borrowed(requests);
    }
    requests
        .iter()
        .enumerate()
        .map(|(index, request)| Request { cost: taken(requests, index, same_counter), ..*request })
        .collect()
}

/// Permits that one request takes.
fn taken(requests: &[Request<'_>], index: usize, same_counter: SameCounter) -> u32 {
    let request = &requests[index];
    if request.role.is_observed() {
        return 0;
    }
    let of_counter = || requests.iter().filter(|other| !other.role.is_observed() && same_counter(request, other));
    if of_counter().all(|other| other.role == request.role) {
        return request.own_take();
    }
    let is_smaller =
        |(other_index, other): (usize, &Request<'_>)| (other.limit.max(), other_index) < (request.limit.max(), index);
    let is_other = |(_, other): &(usize, &Request<'_>)| !other.role.is_observed() && same_counter(request, other);
    if requests.iter().enumerate().filter(is_other).any(is_smaller) {
        return 0;
    }
    let of_lane = |role: Role| {
        of_counter().filter(|other| other.role == role).fold(0_u32, |sum, other| sum.saturating_add(other.own_take()))
    };
    of_counter().map(|other| of_lane(other.role)).max().unwrap_or(0)
}

/// The refund of at most `max_permits` of each request, whose cost is what the call holds. Each has the permits that are
/// returned as its cost, and is paired with those that the call keeps.
pub(crate) fn refunds<'a>(
    requests: &[Request<'a>],
    max_permits: u32,
    same_counter: SameCounter,
) -> Vec<(Request<'a>, u32)> {
    let kept: Vec<_> =
        requests.iter().map(|request| Request { cost: request.cost.saturating_sub(max_permits), ..*request }).collect();
    let kept = takes(&kept, same_counter);
    let refund =
        |(held, kept): (&Request<'a>, &Request<'_>)| (Request { cost: held.cost - kept.cost, ..*held }, kept.cost);
    takes(requests, same_counter).iter().zip(kept.iter()).map(refund).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    fn in_lanes<'a>(key: &'a Key, requests: &[(usize, &str, u32)]) -> Vec<Request<'a>> {
        let request = |&(rule_index, limit, cost): &(usize, &str, u32)| Request {
            role: Role::of_limit(rule_index, 0),
            ..Request::new(key, limit.parse().expect("a limit"), cost)
        };
        requests.iter().map(request).collect()
    }

    fn costs(requests: &[Request<'_>]) -> Vec<u32> {
        requests.iter().map(|request| request.cost).collect()
    }

    #[test]
    fn costs_of_a_lane_add_up_and_lanes_take_the_largest_sum_by_the_smallest_max() {
        let key = Key::new("a");
        let requests = in_lanes(&key, &[(1, "9/s", 2), (2, "5/s", 1), (1, "7/s", 3), (3, "5/s", 4), (4, "1/m", 6)]);
        assert_eq!(costs(&takes(&requests, in_memory)), [0, 5, 0, 0, 6]);
        let pending: Vec<_> = (0..5).map(|index| pending(&requests, index, in_memory)).collect();
        assert_eq!(pending, [0, 0, 2, 0, 0]);
        let added = in_lanes(&key, &[(0, "9/s", 2), (0, "5/s", 1)]);
        assert_eq!(costs(&takes(&added, in_memory)), [2, 1]);
        let again = takes(&requests, in_memory).into_owned();
        assert_eq!(costs(&takes(&again, in_memory)), [0, 5, 0, 0, 6]);
    }

    #[test]
    fn observed_requests_take_nothing() {
        let key = Key::new("a");
        let mut requests = in_lanes(&key, &[(1, "9/s", 2), (2, "5/s", 8)]);
        requests[1].role = requests[1].role.observed();
        assert_eq!((enforced(&requests), costs(&takes(&requests, in_memory))), (1, vec![2, 0]));
        assert_eq!(lone(&requests), Some(&requests[0]));
    }

    #[test]
    fn partial_refunds_return_all_that_was_taken() {
        let key = Key::new("a");
        let mut held = in_lanes(&key, &[(1, "9/s", 2), (1, "9/s", 2), (2, "9/s", 3)]);
        let mut returned = 0;
        for _ in 0..3 {
            let refunds = refunds(&held, 1, in_memory);
            returned += refunds.iter().map(|(request, _)| request.cost).sum::<u32>();
            held.iter_mut().for_each(|request| request.cost = request.cost.saturating_sub(1));
            assert_eq!(refunds[0].1, 4 - returned);
        }
        assert_eq!(returned, 4);
    }
}

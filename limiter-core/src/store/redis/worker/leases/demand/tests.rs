use std::time::Duration;

use super::*;
use crate::clock::Clock;
use crate::local::counter_hash::Table;
use crate::{Key, Limit};

const LIMIT: &str = "1000000/1s";
const ID: LeaseId = LeaseId { mark: 7, end: 1_000 };
const RETURNED: ReturnedPermits = ReturnedPermits { permits: 5, id: ID };

fn request<'k>(key: &'k Key, limit: &str, cost: u32) -> Request<'k> {
    Request::new(key, limit.parse::<Limit>().expect("a limit"), cost)
}

fn calls(calls: u32) -> Occasion {
    Occasion::Calls { calls, cost: 1 }
}

/// One counter whose leases are of a process, under a clock that the test moves.
struct Counter {
    demands: LeaseDemands,
    key: Key,
    now: Moment,
}

impl Counter {
    /// Returns a counter about which one script call was made.
    fn called() -> Self {
        let counter = Self { demands: LeaseDemands::new(), key: Key::new("a"), now: Clock::System.now() };
        assert_eq!(counter.wanted(calls(1_000)), 0, "the first script call requests no lease");
        counter
    }

    fn request(&self) -> Request<'_> {
        request(&self.key, LIMIT, 1)
    }

    fn tag(&self) -> CounterTag<'_> {
        self.demands.counter(&self.request())
    }

    fn wait(&mut self, micros: u64) {
        self.now = self.now.after(Duration::from_micros(micros));
    }

    fn begin(&self, occasion: Occasion) -> (u32, Option<ReturnedPermits>) {
        self.demands.begin(self.tag(), occasion, self.now, || true)
    }

    /// Returns the size of the lease that a script call requests, and closes the request.
    fn wanted(&self, occasion: Occasion) -> u32 {
        let (wanted, returned) = self.begin(occasion);
        assert_eq!(returned, None);
        self.demands.completed(self.tag());
        wanted
    }

    fn next_size(&self) -> u32 {
        self.wanted(Occasion::Renewal)
    }

    /// Records a lease whose script call took no time. Returns the number of permits below which it is renewed.
    fn granted(&self, permits: u32, unused: u32) -> u32 {
        self.demands.granted(&self.request(), Granted { permits, unused, sent_at: self.now, received_at: self.now })
    }

    /// Grants leases of the size that is wanted and lets calls use them up at a rate. Returns the sizes of the next ones.
    fn sizes_at_rate(&mut self, permits_per_milli: u64, leases: usize) -> Vec<u32> {
        let lease = |_| {
            let permits = self.next_size();
            self.granted(permits, 0);
            self.wait(u64::from(permits) * 1_000 / permits_per_milli);
            permits
        };
        (0..leases).map(lease).collect()
    }
}

#[test]
fn a_counter_is_busy_when_three_script_calls_are_near_or_calls_wait_together() {
    let mut counter = Counter::called();
    counter.wait(1);
    assert_eq!(counter.wanted(calls(BUSY_CALLS - 1)), 0, "the second script call");
    counter.wait(BUSY_MICROS - 1);
    assert_eq!(counter.wanted(calls(1)), 0, "the first of the three is too long ago");
    counter.wait(BUSY_MICROS - 1);
    assert_eq!(counter.wanted(calls(1)), 0);
    counter.wait(0);
    assert_eq!(counter.wanted(calls(1)), FIRST_SIZE, "the third one within the time");
    for occasion in [calls(BUSY_CALLS), Occasion::Renewal] {
        assert_eq!(Counter::called().wanted(occasion), FIRST_SIZE, "{occasion:?}");
    }
}

/// A script call that returns permits saves nothing if hardly any were used.
#[test]
fn a_counter_is_busy_until_a_lease_of_it_was_hardly_used() {
    let mut counter = Counter::called();
    assert_eq!(counter.wanted(calls(BUSY_CALLS)), FIRST_SIZE);
    counter.demands.was_too_large(&counter.request(), MIN_USED);
    counter.wait(1_000_000);
    assert_eq!(counter.wanted(calls(1)), FIRST_SIZE / 2);
    counter.demands.was_too_large(&counter.request(), MIN_USED - 1);
    counter.wait(1_000_000);
    assert_eq!(counter.wanted(calls(1)), 0);
    assert_eq!(counter.wanted(calls(BUSY_CALLS)), FIRST_SIZE / 4);
}

#[test]
fn one_request_is_open_at_a_time_and_only_for_a_lease_that_can_be_used() {
    let counter = Counter::called();
    let busy = calls(BUSY_CALLS);
    assert_eq!(counter.demands.begin(counter.tag(), busy, counter.now, || false), (0, None));
    assert!(!counter.demands.is_requested(counter.tag()));
    assert_eq!(counter.begin(busy).0, FIRST_SIZE);
    assert!(counter.demands.is_requested(counter.tag()));
    let not_called = || panic!("no lease is wanted");
    assert_eq!(counter.demands.begin(counter.tag(), busy, counter.now, not_called), (0, None));
    counter.demands.completed(counter.tag());
    assert!(!counter.demands.is_requested(counter.tag()));
    assert_eq!(counter.begin(busy).0, FIRST_SIZE);
}

#[test]
fn sizes_grow_to_the_time_of_a_lease_at_the_rate_and_at_most_double() {
    let sizes = Counter::called().sizes_at_rate(1_000, 9);
    assert_eq!(sizes, [64, 64, 128, 256, 512, 1_024, 2_048, 4_096, 6_200]);
    let sizes = Counter::called().sizes_at_rate(125, 6);
    assert_eq!(sizes, [64, 64, 128, 256, 512, 775]);
}

#[test]
fn sizes_fall_slowly_with_the_rate_and_not_below_the_least_size() {
    let mut counter = Counter::called();
    assert_eq!(counter.sizes_at_rate(1_000, 9).last(), Some(&6_200));
    // Each lease counts as three tenths. The first one is still of the old rate.
    assert_eq!(counter.sizes_at_rate(100, 5), [6_200, 6_200, 4_526, 3_354, 2_533]);
    assert_eq!(counter.sizes_at_rate(100, 40).last(), Some(&620));
    assert_eq!(counter.sizes_at_rate(1, 60).last(), Some(&MIN_SIZE));
}

#[test]
fn unused_permits_of_a_replaced_lease_are_no_part_of_the_rate() {
    let mut counter = Counter::called();
    counter.granted(1_024, 0);
    counter.wait(1_024);
    counter.granted(1_024, 1_008);
    // One permit in 64 µs, for 6.2 ms.
    assert_eq!(counter.next_size(), 96);
    counter.wait(1_024);
    counter.granted(1_024, 1_025);
    assert_eq!(counter.next_size(), 67, "more unused permits than granted ones are none used");
}

#[test]
fn permits_that_are_left_at_the_end_halve_the_size() {
    let mut counter = Counter::called();
    counter.sizes_at_rate(125, 9);
    let mut sizes = Vec::new();
    for _ in 0..7 {
        sizes.push(counter.next_size());
        counter.demands.was_too_large(&counter.request(), MIN_USED);
    }
    assert_eq!(sizes, [775, 387, 193, 96, 48, 24, 12]);
    assert_eq!(counter.next_size(), MIN_SIZE);
}

/// A process that was quiet has a lease left at its end. Its next burst finds half of the size, and the rate comes back.
#[test]
fn a_burst_after_a_quiet_time_starts_from_the_size_before_it() {
    let mut counter = Counter::called();
    counter.sizes_at_rate(1_000, 9);
    counter.demands.was_too_large(&counter.request(), MIN_USED);
    counter.wait(10_000_000);
    assert_eq!(counter.sizes_at_rate(1_000, 4), [3_100, 4_340, 6_200, 6_200]);
}

#[test]
fn sizes_and_rates_are_bounded() {
    let mut counter = Counter::called();
    counter.wait(1);
    for _ in 0..40 {
        // As many permits in no time.
        counter.granted(u32::MAX, 0);
    }
    assert_eq!(counter.next_size(), MAX_SIZE);
    let late = counter.now;
    counter.wait(u64::MAX / 4);
    let granted = Granted { permits: u32::MAX, unused: 0, sent_at: late, received_at: counter.now };
    assert_eq!(counter.demands.granted(&counter.request(), granted), MAX_SIZE, "{granted:?}");
    // A reply from before the request, as after a step back of the clock.
    let granted = Granted { permits: 8, unused: 0, sent_at: counter.now, received_at: late };
    assert_eq!(counter.demands.granted(&counter.request(), granted), 5);
    assert_eq!(counter.next_size(), MAX_SIZE);
}

#[test]
fn a_lease_is_renewed_when_it_lasts_for_two_round_trips_and_the_slack() {
    let mut counter = Counter::called();
    counter.sizes_at_rate(1_000, 9);
    for (round_trip, permits, renew_below) in [(0, 4_000, 200), (300, 4_000, 800), (300, 1_000, 501), (300, 8, 5)] {
        counter.granted(1_000, 0);
        counter.wait(1_000 - round_trip);
        let sent_at = counter.now;
        counter.wait(round_trip);
        let granted = Granted { permits, unused: 0, sent_at, received_at: counter.now };
        assert_eq!(counter.demands.granted(&counter.request(), granted), renew_below, "{granted:?}");
        counter.wait(permits.into());
    }
}

#[test]
fn the_first_lease_is_renewed_when_it_is_used_up() {
    let counter = Counter::called();
    assert_eq!(counter.granted(FIRST_SIZE, 0), 1);
}

/// Otherwise calls of a high cost would not find enough permits in a lease, so its rate would stay zero.
#[test]
fn a_lease_is_for_several_calls_of_the_last_cost() {
    let counter = Counter::called();
    let costly = |cost| counter.wanted(Occasion::Calls { calls: BUSY_CALLS, cost });
    assert_eq!(costly(100), 100 * MIN_CALLS);
    assert_eq!(counter.next_size(), 100 * MIN_CALLS, "a renewal has the cost of the last call");
    assert_eq!(costly(FIRST_SIZE / MIN_CALLS), FIRST_SIZE);
    assert_eq!(costly(u32::MAX), MAX_SIZE);
}

#[test]
fn a_counter_with_the_same_hash_has_no_part_in_a_demand() {
    let counter = Counter::called();
    let key = Key::new("b");
    let other = CounterTag::new(&request(&key, LIMIT, 1), CounterHash::of(&counter.request()));
    let longer = CounterTag::new(&request(&counter.key, "1000000/2s", 1), CounterHash::of(&counter.request()));
    assert!(counter.begin(Occasion::Renewal).0 > 0);
    for tag in [other, longer] {
        counter.demands.completed(tag);
        assert!(!counter.demands.is_requested(tag) && counter.demands.is_requested(counter.tag()));
        assert_eq!(counter.demands.begin(tag, Occasion::Renewal, counter.now, || true), (0, None));
    }
}

/// An attacker may find such keys by the times of its calls.
#[test]
fn a_flood_of_keys_that_collide_in_another_table_takes_the_place_of_no_demand() {
    let place = |key: &Key, table| CounterHash::of(&request(key, LIMIT, 1)).place_and_tag(table, PLACES).0;
    for table in [Table::DEMANDS, Table::DENIALS, Table::LEASES, Table::FAILURES] {
        let counter = Counter::called();
        let collides = |key: &Key| place(key, table) == place(&counter.key, table);
        for key in (0..).map(|index: u32| Key::new("k").part(index)).filter(collides).take(64) {
            let flood = counter.demands.counter(&request(&key, LIMIT, 1));
            counter.demands.begin(flood, calls(1_000), counter.now, || true);
            counter.demands.completed(flood);
        }
        assert_eq!(counter.wanted(calls(1_000)) == 0, table == Table::DEMANDS, "{table:?}");
    }
}

/// Costs and limits are of the calls. The counter, and so the demand, is the same.
#[test]
fn calls_of_any_cost_and_max_share_a_demand() {
    let (key, other) = (Key::new("a"), Key::new("b"));
    let demands = LeaseDemands::new();
    let counter = demands.counter(&request(&key, LIMIT, 1));
    assert_eq!(counter, demands.counter(&request(&key, LIMIT, 3)));
    assert_eq!(counter, demands.counter(&request(&key, "20000/1s", 1)));
    assert_ne!(counter, demands.counter(&request(&key, "1000000/2s", 1)));
    assert_ne!(counter, demands.counter(&request(&other, LIMIT, 1)));
}

#[test]
fn unused_permits_are_kept_for_one_script_call() {
    let counter = Counter::called();
    let request = counter.request();
    let later = ReturnedPermits { id: LeaseId { end: 1_010, ..ID }, ..RETURNED };
    assert_eq!(counter.demands.keep(&request, RETURNED), Ok(()));
    assert_eq!(counter.demands.keep(&request, later), Err(later), "one lease at a time");
    assert_eq!(counter.demands.take_kept(&request, later.id), None, "of another lease");
    assert_eq!(counter.demands.take_kept(&request, ID), Some(RETURNED));
    assert_eq!(counter.demands.take_kept(&request, ID), None);
    assert_eq!(counter.demands.keep(&request, later), Ok(()));
    assert_eq!(counter.begin(calls(0)).1, Some(later), "with a script call that requests no lease as well");
    assert_eq!(counter.begin(Occasion::Renewal).1, None);
}

#[test]
fn a_counter_without_a_demand_has_no_size_and_keeps_nothing() {
    let counter = Counter { demands: LeaseDemands::new(), key: Key::new("a"), now: Clock::System.now() };
    let request = counter.request();
    assert!(!counter.demands.is_requested(counter.tag()));
    assert_eq!(counter.demands.keep(&request, RETURNED), Err(RETURNED));
    assert_eq!(counter.demands.take_kept(&request, ID), None);
    assert_eq!(counter.granted(100, 0), 1);
}

#[test]
fn a_counter_takes_the_place_of_another_one_that_has_nothing_to_lose() {
    let demands = LeaseDemands::new();
    let now = Clock::System.now();
    let key = Key::new("a");
    let first = request(&key, LIMIT, 1);
    let is_in_place = |key: &Key| demands.counter(&request(key, LIMIT, 1)).place() == demands.counter(&first).place();
    let other = (0..).map(|number: u32| Key::new("b").part(number)).find(is_in_place).expect("one of many");
    let second = request(&other, LIMIT, 1);
    let begin = |request: &Request<'_>| demands.begin(demands.counter(request), Occasion::Renewal, now, || true);
    let is_known = |request: &Request<'_>| {
        let (wanted, returned) = begin(request);
        demands.completed(demands.counter(request));
        wanted > 0 || returned.is_some()
    };
    assert!(!is_known(&first) && is_known(&first));
    assert!(!is_known(&second) && is_known(&second), "it has the place");
    assert!(!is_known(&first) && is_known(&first), "and loses it");
    assert!(begin(&first).0 > 0, "a request is open");
    assert!(!is_known(&second) && !is_known(&second));
    demands.completed(demands.counter(&first));
    assert_eq!(demands.keep(&first, RETURNED), Ok(()));
    assert!(!is_known(&second) && !is_known(&second), "permits are to be returned");
    assert_eq!(demands.take_kept(&first, ID), Some(RETURNED));
    assert!(!is_known(&second) && is_known(&second));
}

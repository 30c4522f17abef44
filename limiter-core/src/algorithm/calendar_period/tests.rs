use super::*;
use crate::Limit;
use crate::algorithm::{CounterKind, CounterState};

/// The input of a call with this limit at milliseconds of the wall clock. The store's clock is another one.
fn input(limit: &str, wall: u64, cost: u32) -> AlgorithmInput {
    let limit: Limit = limit.parse().expect(limit);
    let now = wall - SKEW;
    AlgorithmInput {
        floor: now,
        ceil: now,
        micros: now * 1000,
        kind: CounterKind::from(limit),
        max: limit.max(),
        burst: limit.max(),
        cost,
        pending: 0,
        max_wait: 0,
        calendar: limit.calendar_periods().map(|calendar| CalendarTime { calendar, micros: wall * 1000 }),
    }
}

/// The wall clock less the store's.
const SKEW: u64 = 12_345;
const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;
/// The start of a day of UTC, which is a Friday.
const FRIDAY: u64 = 20_784 * DAY;

fn counter() -> CounterState {
    CounterState::new(crate::Algorithm::Calendar)
}

#[test]
fn a_period_has_max_permits_and_the_next_begins_at_its_edge() {
    let mut state = counter();
    assert!(state.decide(&input("2/day@UTC", FRIDAY + 1, 1)).allowed);
    let second = state.decide(&input("2/day@UTC", FRIDAY + DAY - 1, 1));
    assert_eq!((second.allowed, second.remaining, second.reset_at), (true, 0, (FRIDAY + DAY - SKEW) * 1000));
    let denied = state.decide(&input("2/day@UTC", FRIDAY + DAY - 1, 1));
    assert_eq!((denied.allowed, denied.retry_at), (false, Some((FRIDAY + DAY - SKEW) * 1000)));
    let edge = state.decide(&input("2/day@UTC", FRIDAY + DAY, 2));
    assert_eq!((edge.allowed, edge.reset_at), (true, (FRIDAY + 2 * DAY - SKEW) * 1000), "the edge's own millisecond");
    assert_eq!(state.decide(&input("2/day@UTC", FRIDAY + DAY, 3)).retry_at, None, "never fits");
    assert_eq!(state.expires_at(0), FRIDAY + 3 * DAY - SKEW, "one period after its end");
}

#[test]
fn a_changed_zone_takes_effect_at_the_end_of_the_period() {
    let mut state = counter();
    assert!(state.decide(&input("2/day@UTC", FRIDAY + 8 * HOUR, 2)).allowed);
    // A new day has begun in Tokyo, which is nine hours ahead.
    let denied = state.decide(&input("2/day@Asia/Tokyo", FRIDAY + 16 * HOUR, 1));
    assert_eq!((denied.allowed, denied.retry_at), (false, Some((FRIDAY + DAY - SKEW) * 1000)));
    // From the end of the day of UTC, 15 hours of the day of Tokyo are left.
    let day = state.decide(&input("2/day@Asia/Tokyo", FRIDAY + DAY, 1));
    assert_eq!(day.reset_at, (FRIDAY + DAY + 15 * HOUR - SKEW) * 1000);
    // From its end on, nine hours of the day of UTC are left, less than a half: it lasts to the next edge.
    let long = state.decide(&input("2/day@UTC", FRIDAY + DAY + 15 * HOUR, 1));
    assert_eq!(long.reset_at, (FRIDAY + 3 * DAY - SKEW) * 1000);
}

#[test]
fn the_end_of_a_period_is_kept_for_one_period() {
    let monthly = |wall| input("2/month:31", wall, 1);
    let end = |state: &mut CounterState, wall| state.decide(&monthly(wall)).reset_at / 1000 + SKEW;
    let mut state = counter();
    let first = end(&mut state, FRIDAY);
    assert_eq!(end(&mut state, first), first + 31 * DAY, "from the 30th of November to the 31st of December");
    let mut daily = counter();
    assert!(daily.decide(&input("2/day@Asia/Tokyo", FRIDAY, 1)).allowed);
    let later = daily.decide(&input("2/day@UTC", FRIDAY + 15 * HOUR + DAY, 1));
    assert_eq!(later.reset_at / 1000 + SKEW, FRIDAY + 2 * DAY, "the old end is forgotten");
}

#[test]
fn a_clock_that_steps_back_frees_nothing_twice() {
    let mut state = counter();
    assert!(state.decide(&input("2/day@UTC", FRIDAY, 2)).allowed);
    for back in [1, HOUR, DAY] {
        let denied = state.decide(&input("2/day@UTC", FRIDAY - back, 1));
        assert_eq!((denied.allowed, denied.retry_at), (false, Some((FRIDAY + DAY - SKEW) * 1000)), "{back}");
    }
    assert!(state.decide(&input("2/day@UTC", FRIDAY - DAY - 1, 2)).allowed, "the counter is void");
}

#[test]
fn a_period_ends_as_another_store_has_fixed_it() {
    let mut state = counter();
    assert!(state.decide(&input("1/day@UTC", FRIDAY + HOUR, 1)).allowed);
    state.end_period_after(&input("1/day@UTC", FRIDAY + HOUR, 0), Duration::from_millis(14 * HOUR));
    let denied = state.decide(&input("1/day@UTC", FRIDAY + 2 * HOUR, 1));
    assert_eq!(denied.retry_at, Some((FRIDAY + 15 * HOUR - SKEW) * 1000));
    let next = state.decide(&input("1/day@UTC", FRIDAY + 15 * HOUR, 1));
    assert_eq!((next.allowed, next.reset_at), (true, (FRIDAY + 2 * DAY - SKEW) * 1000), "less than a half is left");
}

#[test]
fn a_refund_returns_permits_of_the_present_period_only() {
    let at = |wall| input("3/day@UTC", wall, 1);
    let stamp = |wall: u64| (wall - SKEW) * 1000;
    let mut state = counter();
    assert!(state.decide(&at(FRIDAY)).allowed);
    assert!(state.decide(&at(FRIDAY + DAY)).allowed && state.decide(&at(FRIDAY + DAY + 1)).allowed);
    state.refund(&at(FRIDAY + DAY + 2), stamp(FRIDAY));
    assert_eq!(state.used(&at(FRIDAY + DAY + 2)), 2, "of the day before");
    state.refund(&at(FRIDAY + DAY + 2), stamp(FRIDAY + DAY));
    assert_eq!(state.used(&at(FRIDAY + DAY + 2)), 1);
    state.refund(&AlgorithmInput { cost: 9, ..at(FRIDAY + DAY + 2) }, stamp(FRIDAY + DAY + 1));
    let empty = state.peek(&at(FRIDAY + DAY + 3));
    assert_eq!((empty.remaining, empty.reset_at), (3, stamp(FRIDAY + DAY + 3)));
    let other = state.decide(&input("3/day@Asia/Tokyo", FRIDAY + DAY + 16 * HOUR, 1));
    assert_eq!(other.reset_at, stamp(FRIDAY + 2 * DAY), "the period lasts, although nothing is taken of it");
}

/// Each set of zones with the most permits in a day. With "the later start wins" the second set took 15.
#[test]
fn processes_that_disagree_take_at_most_twice_max_in_a_period_of_each() {
    use limiter_testkit::Random;
    let sets: [(&[&str], u32); 3] =
        // Three periods, of which none is shorter than a half, reach into one day.
        [(&["UTC"], 5), (&["UTC", "Etc/GMT-1"], 10), (&["UTC", "Etc/GMT-6", "Etc/GMT-12", "Etc/GMT+6"], 15)];
    for (zones, bound) in sets {
        for seed in 0..60 {
            let (mut random, mut state) = (Random::new(seed), counter());
            let (mut now, mut taken, mut denied_since) = (FRIDAY, Vec::new(), None);
            while now < FRIDAY + 6 * DAY {
                now += random.below(HOUR / 2);
                let zone = zones[usize::try_from(random.below(zones.len() as u64)).expect("few")];
                if state.decide(&input(&format!("5/day@{zone}"), now, 1)).allowed {
                    taken.push(now);
                    denied_since = None;
                } else {
                    let since = *denied_since.get_or_insert(now);
                    assert!(now - since < 3 * DAY / 2, "denied for longer than a period and a half");
                }
            }
            for zone in zones {
                let calendar =
                    format!("5/day@{zone}").parse::<Limit>().expect("a limit").calendar_periods().expect("one");
                let most =
                    taken.chunk_by(|one, other| calendar.edges_at(*one).start == calendar.edges_at(*other).start);
                let most = most.map(<[u64]>::len).max().unwrap_or(0);
                assert!(
                    most <= usize::try_from(bound).expect("few"),
                    "{zones:?} seed {seed}: {most} in a day of {zone}"
                );
            }
        }
    }
}

/// A customer who may change his zone at any time takes about twice his limit. By "the later start wins" it was 24 times.
#[test]
fn a_customer_who_changes_his_zone_takes_about_twice_his_limit() {
    let mut state = counter();
    let (mut now, mut taken) = (FRIDAY, 0);
    while now < FRIDAY + 10 * DAY {
        let zones = (0..24).map(|hour| {
            if hour < 12 { format!("5/day@Etc/GMT+{hour}") } else { format!("5/day@Etc/GMT-{}", 24 - hour) }
        });
        // He names the zone whose period ends first.
        let limit = zones
            .min_by_key(|limit| {
                state.peek(&input(limit, now, 0)).reset_at.max(state.clone().decide(&input(limit, now, 1)).reset_at)
            })
            .expect("some");
        taken += u32::from(state.decide(&input(&limit, now, 1)).allowed);
        now += HOUR / 20;
    }
    assert!((50..=110).contains(&taken), "{taken} of 50");
}

/// Its clock is ahead, or the reply came late.
#[test]
fn a_call_that_begins_the_stores_next_period_counts_alone_in_it() {
    let (mut state, late) = (counter(), FRIDAY + DAY - 5);
    assert!(state.decide(&input("2/day@UTC", FRIDAY + 1, 2)).allowed);
    let CounterState::Calendar(period) = &mut state else { panic!("a calendar") };
    period.record(&input("2/day@UTC", late, 1));
    period.end_after(&input("2/day@UTC", late, 1), Duration::from_millis(DAY + 5));
    assert_eq!(period.used(&input("2/day@UTC", FRIDAY + DAY, 1)), 1);
    assert_eq!(period.used(&input("2/day@UTC", FRIDAY + 2 * DAY, 1)), 0);
}

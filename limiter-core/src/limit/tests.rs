//! Tests of the bounds of a limit, and of its parts.

use super::*;

#[test]
fn a_window_is_rounded_up_to_whole_milliseconds() {
    let limit = Limit::new(1, Duration::from_nanos(1)).expect("valid");
    assert_eq!(limit.window(), Duration::from_millis(1));
    let limit = Limit::new(1, Duration::from_micros(1500)).expect("valid");
    assert_eq!(limit.window(), Duration::from_millis(2));
    assert!(Limit::new(1, Duration::ZERO).is_err());
    assert!(Limit::new(1, Limit::MAX_WINDOW + Duration::from_nanos(1)).is_err());
    assert!(Limit::new(1, Duration::MAX).is_err());
}

#[test]
fn each_invalid_limit_names_option_bound_value_and_remedy() {
    let limit = |max, window| Limit::new(max, window).map(drop);
    let valid: Limit = "5/10s".parse().expect("valid");
    let bucket = valid.with_algorithm(Algorithm::TokenBucket);
    let concurrent = Limit::concurrent(5).expect("valid");
    let second = Duration::from_secs(1);
    let cases = [
        (limit(0, second), "`max` must be at least 1, got 0: write the number of permits in a window"),
        (limit(1, Duration::ZERO), "`window` must be more than zero, got 0 s: write a duration such as 10 s"),
        (
            limit(1, Limit::MAX_WINDOW + second),
            "`window` must be at most 366 days, got 31622401s: write a shorter duration",
        ),
        (bucket.with_burst(0).map(drop), "`burst` must be at least 1, got 0: leave it out for the default of `max`"),
        (
            valid.with_burst(7).map(drop),
            "`burst` must be left out for `SlidingWindow`, got 7: write `Algorithm::TokenBucket` or \
             `Algorithm::LeakyBucket`, or remove it",
        ),
        (
            bucket.with_layout(Layout::Zset).map(drop),
            "`layout` must be `Layout::Compact` for `TokenBucket`, got `Layout::Zset`: write \
             `Algorithm::SlidingWindow`, or remove it",
        ),
        (Limit::concurrent(0).map(drop), "`concurrent` must be at least 1, got 0: write the number of calls at once"),
        (
            Limit::concurrent(65_536).map(drop),
            "`concurrent` must be at most 65535, got 65536: write fewer calls at once",
        ),
        (
            concurrent.with_burst(7).map(drop),
            "`burst` must be left out for `Concurrent`, got 7: remove it, or raise `max`",
        ),
        (
            concurrent.with_layout(Layout::Zset).map(drop),
            "`layout` must be `Layout::Compact` for `Concurrent`, got `Layout::Zset`: remove it",
        ),
    ];
    for (result, message) in cases {
        let error = result.expect_err(message);
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::InvalidLimit, message));
    }
}

#[test]
fn a_limit_of_calls_at_once_stays_one_and_has_no_window() {
    for max in [1, 50, 65_535] {
        let limit = Limit::concurrent(max).expect("valid");
        assert!(limit.is_concurrent());
        assert_eq!((limit.max(), limit.burst(), limit.max_cost()), (max, max, max));
        assert_eq!((limit.algorithm(), limit.window()), (Algorithm::Concurrent, Duration::ZERO));
        assert_eq!(Limit::nearest_concurrent(max), limit);
        for algorithm in Algorithm::VALUES {
            assert_eq!(limit.with_algorithm(*algorithm), limit);
        }
    }
    assert_eq!(Limit::nearest_concurrent(0).max(), 1);
    assert_eq!(Limit::nearest_concurrent(u32::MAX), Limit::concurrent(65_535).expect("valid"));
    let window: Limit = "5/10s".parse().expect("valid");
    assert_eq!(window.with_algorithm(Algorithm::Concurrent), window);
    assert!(!window.is_concurrent());
}

#[cfg(feature = "calendar")]
#[test]
fn a_limit_of_the_calendar_stays_one() {
    let limit = Limit::calendar(5, Period::Month).expect("valid").anchor(31).expect("a day");
    let days = |days: u64| Duration::from_secs(86_400 * days);
    assert!(limit.window() >= days(31) && limit.window() < days(32));
    assert_eq!((limit.algorithm(), limit.max_cost()), (Algorithm::Calendar, 5));
    for algorithm in Algorithm::VALUES {
        assert_eq!(limit.with_algorithm(*algorithm), limit);
    }
    let window: Limit = "5/10s".parse().expect("valid");
    assert_eq!(window.with_algorithm(Algorithm::Calendar), window);
    assert_eq!(limit.share_of(NonZeroU32::new(2).expect("some")).calendar_periods(), limit.calendar_periods());
    assert!(size_of::<Limit>() <= 24, "{} bytes", size_of::<Limit>());
}

#[cfg(feature = "calendar")]
#[test]
fn each_invalid_calendar_names_option_bound_value_and_remedy() {
    let of = |period| Limit::calendar(5, period).expect("valid");
    let window: Limit = "5/10s".parse().expect("valid");
    let anchor = |period, anchor: &str| of(period).anchor(anchor);
    let cases = [
        (Limit::calendar(0, Period::Day), "`max` must be at least 1, got 0: write the number of permits in a period"),
        (
            of(Period::Month).anchor(32),
            "`anchor` must be a day from 1 to 31 for a month, got `32`: write one such as 5, and 31 for the last day \
             of each month",
        ),
        (
            of(Period::Month).anchor(0),
            "`anchor` must be a day from 1 to 31 for a month, got `0`: write one such as 5, and 31 for the last day \
             of each month",
        ),
        (anchor(Period::Day, "1"), "`anchor` must be left out for a day, got `1`: remove it"),
        (anchor(Period::Hour, "monday"), "`anchor` must be left out for an hour, got `monday`: remove it"),
        (
            of(Period::Week).anchor(1),
            "`anchor` must be a weekday such as `sunday` for a week, got `1`: write one such as `monday`",
        ),
        (
            anchor(Period::Year, "02-30"),
            "`anchor` must be a date such as `04-06` for a year, got `02-30`: write one such as `04-06`",
        ),
        (
            of(Period::Month).zone("Berlin"),
            "`zone` must be a name of the IANA time zone database, got `Berlin`: write `Europe/Berlin`",
        ),
        (
            window.zone("Europe/Berlin"),
            "`zone` must be left out for `5/10s`, got one: write a limit such as `1000/month`",
        ),
        (of(Period::Day).with_burst(7), "`burst` must be left out for `Calendar`, got 7: remove it, or raise `max`"),
        (
            of(Period::Day).with_layout(Layout::Zset),
            "`layout` must be `Layout::Compact` for `Calendar`, got `Layout::Zset`: remove it",
        ),
    ];
    for (result, message) in cases {
        let error = result.map(drop).expect_err(message);
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::InvalidLimit, message));
    }
}

#[cfg(feature = "calendar")]
#[test]
fn a_configured_limit_counts_in_the_calendar_of_its_caller() {
    let limit = |text: &str| text.parse::<Limit>().expect(text);
    let cases = [
        // It keeps what it names, and takes the rest.
        ("5/month", "1/month:5@Europe/Berlin", "5/month:5@Europe/Berlin"),
        ("5/month:1", "1/month:5@Europe/Berlin", "5/month:1@Europe/Berlin"),
        ("5/month@UTC", "1/month:5@Europe/Berlin", "5/month:5@UTC"),
        ("5/month:7@Asia/Tokyo", "1/month:5@Europe/Berlin", "5/month:7@Asia/Tokyo"),
        ("5/year", "1/month:5@Europe/Berlin", "5/year@Europe/Berlin"),
        ("5/month", "1/month", "5/month"),
        // A window that is a period.
        ("5/day", "1/day@Asia/Tokyo", "5/day@Asia/Tokyo"),
        ("5/24h", "1/month:5@Asia/Tokyo", "5/day@Asia/Tokyo"),
        ("5/week", "1/week:sunday@Asia/Tokyo", "5/week:sunday@Asia/Tokyo"),
        ("5/day@UTC", "1/day@Asia/Tokyo", "5/day@UTC"),
        ("5/30d", "1/month:5@Asia/Tokyo", "5/30d"),
        ("5/10s", "1/day@Asia/Tokyo", "5/10s"),
        // A caller that counts in windows.
        ("5/day", "1/10s", "5/d"),
        ("5/month", "1/10s", "5/month"),
        ("5 concurrent", "1/day@Asia/Tokyo", "5 concurrent"),
    ];
    for (configured, caller, expected) in cases {
        assert_eq!(limit(configured).in_calendar_of(limit(caller)).to_string(), expected, "{configured} {caller}");
    }
    let bucket = limit("5/day").with_algorithm(Algorithm::TokenBucket);
    assert_eq!(bucket.in_calendar_of(limit("1/day@Asia/Tokyo")), bucket);
    let callers = ["9/10s", "1/week@Asia/Tokyo", "1/month:5@Europe/Berlin", "50 concurrent"].map(limit);
    let example = |text| limit(text).example_among(callers.iter().copied()).map(|found| found.to_string());
    let found = ["5/month", "5/week", "5/day", "5/year", "5 concurrent"].map(example);
    let expected =
        [Some("1/month:5@Europe/Berlin"), Some("1/week@Asia/Tokyo"), Some("9/10s"), Some("1/week@Asia/Tokyo"), None];
    assert_eq!(found, expected.map(|found| found.map(str::to_owned)));
}

#[test]
fn each_instance_has_at_least_one_slot_of_a_share() {
    let share = |max, instances| {
        let limit = Limit::concurrent(max).expect("valid");
        limit.share_of(NonZeroU32::new(instances).expect("some"))
    };
    assert_eq!(share(50, 4), Limit::concurrent(12).expect("valid"));
    assert_eq!(share(3, 4), Limit::concurrent(1).expect("valid"));
}

#[test]
fn only_a_sliding_window_has_another_layout() {
    let limit: Limit = "5/10s".parse().expect("valid");
    let zset = limit.with_layout(Layout::Zset).expect("valid");
    assert_ne!(zset, limit);
    assert_eq!(zset.with_layout(Layout::Compact).expect("valid"), limit);
    assert_eq!(zset.with_algorithm(Algorithm::SlidingWindow), zset);
    assert_eq!((format!("{limit:?}"), format!("{zset:?}")), ("Limit(5/10s)".into(), "Limit(5/10s, Zset)".into()));
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingCounter, Algorithm::TokenBucket, Algorithm::LeakyBucket]
    {
        let other = zset.with_algorithm(algorithm);
        assert_eq!(other, limit.with_algorithm(algorithm));
        assert_eq!(other.with_layout(Layout::Zset).expect_err("another algorithm").kind(), ErrorKind::InvalidLimit);
        assert_eq!(other.with_layout(Layout::Compact).expect("the default"), other);
    }
}

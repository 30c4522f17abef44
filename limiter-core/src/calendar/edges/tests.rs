use jiff::tz::TimeZoneDatabase;
use jiff::{Timestamp, ToSpan};
use limiter_testkit::Random;

use super::*;
use crate::Limit;

/// The edges of a calendar by its definition: the instants at which the number of its period changes for the first time.
/// It knows nothing but the civil time of an instant.
struct Oracle {
    zone: TimeZone,
    period: Period,
    anchor: Anchor,
}

impl Oracle {
    /// Returns the number of the period of a civil date.
    fn number(&self, date: Date) -> i64 {
        let day = i64::from(self.anchor.day());
        let epoch = Date::constant(1969, 12, 29);
        let days = i64::from((date - epoch).get_days());
        // A date before the anchor's day of its month belongs to the month before.
        let day = day.min(i64::from(date.days_in_month()));
        let month = month_number(date) - i64::from(i64::from(date.day()) < day);
        match self.period {
            Period::Hour => unreachable!("hours are no dates"),
            Period::Day => days,
            Period::Week => (days - i64::from(self.anchor.day())).div_euclid(7),
            Period::Month => month,
            Period::Quarter => (month + 1 - i64::from(self.anchor.month())).div_euclid(3),
            _ => (month + 1 - i64::from(self.anchor.month())).div_euclid(12),
        }
    }

    /// Returns the highest number that any instant up to this one has had, looking back some days.
    fn begun(&self, seconds: i64) -> i64 {
        let number = |seconds| self.number(self.zone.to_datetime(at(seconds)).date());
        (0..=26 * 4).map(|quarters| number(seconds - 900 * quarters)).max().expect("some")
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("a time")
}

fn calendar(period: Period, zone: &str, anchor: Option<Anchor>) -> Calendar {
    let calendar = Calendar::new(period).in_zone(zone).expect(zone);
    anchor.map_or(calendar, |anchor| calendar.anchored(anchor))
}

fn zones() -> Vec<String> {
    let names = TimeZoneDatabase::bundled();
    let names: Vec<_> = names.available().map(|name| name.as_str().to_owned()).collect();
    names.into_iter().filter(|name| name != "Etc/Unknown").collect()
}

fn seconds(text: &str) -> u64 {
    let timestamp: Timestamp = text.parse().expect(text);
    u64::try_from(timestamp.as_millisecond()).expect("after 1970")
}

const START: i64 = 1_577_836_800; // 2020
const END: i64 = 2_145_916_800; // 2038

#[test]
fn the_edges_of_days_and_hours_are_right_at_every_transition_of_every_zone() {
    let (mut transitions, mut odd_hours) = (0, 0);
    let mut longest_day = 0;
    for name in zones() {
        let zone = TimeZone::get(&name).expect("a zone");
        let anchor = Anchor::default_of(Period::Day);
        let days = Oracle { zone: zone.clone(), period: Period::Day, anchor };
        let all = zone.following(at(START)).map(|shift| shift.timestamp().as_second());
        for shift in all.take_while(|shift| *shift < END) {
            transitions += 1;
            for seconds in [shift - 86_400, shift - 3600, shift - 1, shift, shift + 1, shift + 3600, shift + 86_400] {
                let millis = u64::try_from(seconds).expect("after 1970") * 1000;
                let edges = calendar(Period::Day, &name, None).edges_at(millis);
                let (start, end) = (edges.start / 1000, edges.end / 1000);
                longest_day = longest_day.max(end - start);
                let number = |seconds: u64| days.begun(i64::try_from(seconds).expect("a time"));
                assert!((edges.start..edges.end).contains(&millis), "{name} {seconds}");
                assert_eq!(number(start), number(end - 1), "{name} {seconds}: one day");
                assert!(number(start - 1) < number(start) && number(end) > number(start), "{name} {seconds}: edges");

                let edges = calendar(Period::Hour, &name, None).edges_at(millis);
                let (start, end) = (edges.start / 1000, edges.end / 1000);
                let clock = |seconds: u64| zone.to_datetime(at(i64::try_from(seconds).expect("a time")));
                assert!((edges.start..edges.end).contains(&millis), "{name} {seconds}");
                let (first, last) = (clock(start), clock(end - 1));
                let is_edge = |seconds: u64| {
                    let (before, after) = (clock(seconds - 1), clock(seconds));
                    after.minute() == 0 && after.second() == 0 || after - before != 1.second().fieldwise()
                };
                assert!(is_edge(start) && is_edge(end), "{name} {seconds}");
                assert_eq!((first.date(), first.hour()), (last.date(), last.hour()), "{name} {seconds}: one hour");
                assert_eq!((last - first).get_minutes(), i64::try_from((end - start - 1) / 60).expect("minutes"));
                odd_hours += u32::from(end - start != 3600);
            }
        }
    }
    assert!(transitions > 5_000, "{transitions}");
    assert!(odd_hours > 50, "{odd_hours}: those of Lord Howe");
    assert_eq!(longest_day * 1000, Period::Day.max_millis(), "that of Casey");
}

#[test]
fn periods_agree_with_civil_dates() {
    let zones = zones();
    let mut random = Random::new(7);
    for case in 0..40_000 {
        let name = &zones[usize::try_from(random.below(zones.len() as u64)).expect("few")];
        let period = Period::ALL[1 + usize::try_from(random.below(5)).expect("few")];
        let text = match period {
            Period::Day | Period::Hour => String::new(),
            Period::Week => ["mon", "tue", "wed", "thu", "fri", "sat", "sun"][case % 7].to_owned(),
            Period::Month => (1 + random.below(31)).to_string(),
            _ => format!("{}-{}", 1 + random.below(12), 1 + random.below(31)),
        };
        let anchor = Anchor::parse(period, &text);
        let calendar = calendar(period, name, anchor);
        let anchor = anchor.unwrap_or(Anchor::default_of(period));
        let oracle = Oracle { zone: TimeZone::get(name).expect("a zone"), period, anchor };
        let millis =
            random.between(u64::try_from(START).expect("1970") * 1000, u64::try_from(END).expect("1970") * 1000);
        let edges = calendar.edges_at(millis);
        let what = format!("{calendar} at {millis}: {edges:?}");
        let number = |millis: u64| oracle.begun(i64::try_from(millis / 1000).expect("a time"));
        assert!((edges.start..edges.end).contains(&millis), "{what}");
        assert_eq!(number(edges.start), number(millis), "{what}");
        assert_eq!(number(edges.end - 1000), number(millis), "{what}");
        assert!(number(edges.start - 1000) < number(millis) && number(edges.end) > number(millis), "{what}");
        assert!(edges.end - edges.start <= period.max_millis(), "{what}");
        assert_eq!(calendar.edges_at(edges.start - 1).start, edges.before, "{what}");
        assert_eq!(calendar.edges_at(edges.end).end, edges.after, "{what}");
        assert_eq!(calendar.edges_at(edges.start), edges);
    }
}

#[test]
fn edges_are_those_that_people_know() {
    let cases = [
        // The clock of Berlin shows 2 o'clock twice in October, and not at all in March.
        ("5/hour@Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"),
        ("5/hour@Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"),
        ("5/day@Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
        ("5/day@Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"),
        // Lord Howe shifts by half an hour.
        ("5/hour@Australia/Lord_Howe", "2026-04-04T15:15:00Z", "2026-04-04T15:00:00Z", "2026-04-04T15:30:00Z"),
        // Midnight is missing in Santiago and comes twice in Havana.
        ("5/day@America/Santiago", "2026-09-06T12:00:00Z", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"),
        ("5/day@America/Havana", "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"),
        // Samoa has skipped the 30th of December 2011.
        ("5/day@Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"),
        ("5/day@Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"),
        ("5/week@UTC", "2026-11-27T12:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"),
        ("5/week:sun@UTC", "2026-11-27T12:00:00Z", "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"),
        ("5/month", "2028-02-29T23:59:59Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
        ("5/month:31", "2026-02-28T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"),
        ("5/month:5@Europe/Berlin", "2026-11-04T22:59:59Z", "2026-10-04T22:00:00Z", "2026-11-04T23:00:00Z"),
        ("5/quarter", "2026-11-27T12:00:00Z", "2026-10-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("5/quarter:04-06", "2026-10-05T12:00:00Z", "2026-07-06T00:00:00Z", "2026-10-06T00:00:00Z"),
        ("5/year:04-06@Europe/London", "2026-04-05T22:00:00Z", "2025-04-05T23:00:00Z", "2026-04-05T23:00:00Z"),
        ("5/year:02-29", "2027-03-01T00:00:00Z", "2027-02-28T00:00:00Z", "2028-02-29T00:00:00Z"),
    ];
    for (limit, now, start, end) in cases {
        let limit: Limit = limit.parse().expect(limit);
        let edges = limit.calendar_periods().expect("a calendar").edges_at(seconds(now));
        assert_eq!((edges.start, edges.end), (seconds(start), seconds(end)), "{limit} at {now}");
    }
}

#[test]
fn instants_at_the_ends_of_the_clock_have_edges() {
    for &period in Period::ALL {
        for zone in ["UTC", "Pacific/Kiritimati", "Pacific/Niue"] {
            for millis in [0, 1, 86_400_000, u64::MAX / 1000, u64::MAX - 1] {
                let edges = calendar(period, zone, None).edges_at(millis);
                assert!(edges.start <= millis && millis < edges.end, "{period} {zone} {millis}: {edges:?}");
                assert!(edges.before <= edges.start && edges.end <= edges.after, "{edges:?}");
            }
        }
    }
}

//! Limits of calendar periods: on every store, against an oracle on civil time, and in the attribute.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use limiter_testkit::{Random, RedisServer, Reply, full_or};
use rate_limited::{
    Anchor, Decision, Denied, Key, Limit, Limiter, ManualClock, OnError, Period, Rule, RuleSet, rate_limited,
};

use crate::support::{LONG_DEADLINE, Subject, builder_for, key, limit, on_every_store};

on_every_store! {
    a_period_has_max_permits_and_ends_at_its_edge,
    a_refund_and_a_charge_count_in_the_present_period,
    a_reset_begins_anew_and_a_peek_takes_nothing,
    limits_of_several_periods_decide_together,
    a_changed_zone_takes_effect_at_the_end_of_the_period,
    random_schedules_equal_the_oracle_on_civil_time,
    processes_with_one_set_of_zone_data_never_exceed_a_period,
    processes_whose_zone_data_differ_by_an_hour_take_at_most_twice_max,
}

fn denied(decision: Decision) -> Denied {
    decision.into_result().expect_err("a denial")
}

/// Moves the clock to a time of the same or a later day.
fn move_to(clock: &ManualClock, time: &str) {
    let time: Timestamp = time.parse().expect(time);
    let time = Duration::from_secs(u64::try_from(time.as_second()).expect("after 1970"));
    clock.advance(time.checked_sub(clock.now()).expect("the clock is not there yet"));
}

async fn check(subject: &Subject, key: &Key, limit: &str) -> Decision {
    let limit: Limit = limit.parse().expect(limit);
    subject.limiter.check(key, &limit).await.expect("the store answers")
}

async fn a_period_has_max_permits_and_ends_at_its_edge(subject: Subject) {
    let key = key("a");
    move_to(&subject.clock, "2026-10-24T22:30:00Z");
    const LIMIT: &str = "2/day@Europe/Berlin";
    assert!(check(&subject, &key, LIMIT).await.is_allowed());
    let Decision::Allowed(second) = check(&subject, &key, LIMIT).await else { panic!("a permit is free") };
    // The clock is set back on that day.
    assert_eq!((second.remaining(), second.reset_after()), (0, Duration::from_secs(24 * 3600 + 1800)));
    let wait = denied(check(&subject, &key, LIMIT).await).retry_after();
    assert_eq!(wait, second.reset_after());
    subject.clock.advance(wait - Duration::from_millis(1));
    assert_eq!(denied(check(&subject, &key, LIMIT).await).retry_after(), Duration::from_millis(1));
    subject.advance_millis(1);
    assert!(check(&subject, &key, LIMIT).await.is_allowed(), "the edge's own millisecond");
    let costly = subject.limiter.check_n(&key, &limit(LIMIT), 3).await.expect("the store answers");
    assert!(denied(costly).is_final());
}

async fn a_refund_and_a_charge_count_in_the_present_period(subject: Subject) {
    let (key, limit) = (key("a"), limit("3/month:5@Asia/Tokyo"));
    let Decision::Allowed(old) = subject.limiter.check(&key, &limit).await.expect("the store answers") else {
        panic!("a permit is free")
    };
    subject.clock.advance(old.reset_after());
    let Decision::Allowed(new) = subject.limiter.check(&key, &limit).await.expect("the store answers") else {
        panic!("a permit is free")
    };
    assert_eq!(subject.limiter.charge(&key, &limit, 3).await.expect("counted").overdrawn(), 1);
    subject.limiter.refund(&old).await.expect("the store answers");
    assert_eq!(subject.limiter.usage(&key, &limit).await.expect("read").overdrawn(), 1, "of the period before");
    subject.limiter.refund(&new).await.expect("the store answers");
    let left = subject.limiter.usage(&key, &limit).await.expect("read");
    assert_eq!((left.overdrawn(), left.remaining()), (0, 0));
}

async fn a_reset_begins_anew_and_a_peek_takes_nothing(subject: Subject) {
    let (key, limit) = (key("a"), limit("1/year"));
    for _ in 0..3 {
        assert!(subject.limiter.peek(&key, &limit).await.expect("the store answers").is_allowed());
    }
    assert!(subject.limiter.check(&key, &limit).await.expect("the store answers").is_allowed());
    assert!(subject.limiter.peek(&key, &limit).await.expect("the store answers").is_denied());
    subject.limiter.reset(&key, &limit).await.expect("the store answers");
    assert!(subject.limiter.check(&key, &limit).await.expect("the store answers").is_allowed());
}

async fn limits_of_several_periods_decide_together(subject: Subject) {
    let key = key("a");
    let limits = ["2/hour@UTC", "3/day@UTC", "9/10s"].map(limit);
    let items: Vec<_> = limits.iter().map(|limit| (&key, limit, 1)).collect();
    let take = async || subject.limiter.check_all(&items).await.expect("the store answers");
    assert!(take().await.is_allowed() && take().await.is_allowed());
    let hour = denied(take().await);
    assert_eq!(hour.limit(), limits[0]);
    subject.clock.advance(hour.retry_after());
    assert!(take().await.is_allowed());
    let day = denied(take().await);
    assert_eq!(day.limit(), limits[1]);
    assert!(day.retry_after() > Duration::from_secs(3600));
}

async fn a_changed_zone_takes_effect_at_the_end_of_the_period(subject: Subject) {
    let key = key("a");
    move_to(&subject.clock, "2026-11-27T16:00:00Z");
    assert!(check(&subject, &key, "1/day@UTC").await.is_allowed());
    assert_eq!(denied(check(&subject, &key, "1/day@Asia/Tokyo").await).retry_after(), Duration::from_secs(8 * 3600));
    subject.clock.advance(Duration::from_secs(8 * 3600));
    let Decision::Allowed(allowed) = check(&subject, &key, "1/day@Asia/Tokyo").await else { panic!("a new period") };
    assert_eq!(allowed.reset_after(), Duration::from_secs(15 * 3600), "the day of Tokyo that has begun");
    assert!(check(&subject, &key, "1/day@UTC").await.is_denied());
}

/// A counter by the definition: whole periods in civil time, and the permits of the present one.
struct Oracle {
    zone: TimeZone,
    period: Period,
    /// The anchor as a day of the month, or the month and the day, or the days since Monday.
    anchor: (i8, i8),
    present: Option<(Timestamp, Timestamp, u32)>,
}

impl Oracle {
    fn start_of(&self, now: Timestamp) -> Date {
        let date = self.zone.to_datetime(now).date();
        let (month, day) = self.anchor;
        let months = match self.period {
            Period::Week => {
                let since = (i64::from(date.weekday().to_monday_zero_offset()) + 7 - i64::from(day)) % 7;
                return date - since.days();
            }
            Period::Month => 1,
            Period::Quarter => 3,
            Period::Year => 12,
            _ => return date,
        };
        // Tries one month after another: the first whose number and day fit.
        let anchored = |month: Date| month.first_of_month() + i64::from(day.min(month.days_in_month()) - 1).days();
        let is_start =
            |candidate: &Date| (candidate.month() - month).rem_euclid(months) == 0 && anchored(*candidate) <= date;
        let found = (0..=12).map(|back| date.first_of_month() - i64::from(back).months()).find(is_start);
        anchored(found.expect("a month of the year"))
    }

    fn next(&self, start: Date) -> Date {
        let months = match self.period {
            Period::Week => return start + 7.days(),
            Period::Month => 1,
            Period::Quarter => 3,
            Period::Year => 12,
            _ => return start + 1.days(),
        };
        let month = start.first_of_month() + months.months();
        month + i64::from(self.anchor.1.min(month.days_in_month()) - 1).days()
    }

    fn bounds(&self, now: Timestamp) -> (Timestamp, Timestamp) {
        if self.period == Period::Hour {
            let now = Timestamp::from_second(now.as_second()).expect("a time");
            let start =
                now - self.zone.to_datetime(now).minute().minutes() - self.zone.to_datetime(now).second().seconds();
            return (start, start + 1.hours());
        }
        let edge = |date: Date| self.zone.to_zoned_datetime(date.at(0, 0, 0, 0)).expect("a date").timestamp();
        let start = self.start_of(now);
        (edge(start), edge(self.next(start)))
    }

    /// Returns whether the call is allowed, the permits left, and the time to the end of the period.
    fn check(&mut self, now: Timestamp, max: u32, cost: u32) -> (bool, u32, Duration) {
        let present = self.present.filter(|(start, end, _)| {
            let is_behind = now < *start && start.duration_since(now) <= end.duration_since(*start);
            (*start <= now || is_behind) && now < *end
        });
        let (start, end, used) = present.unwrap_or_else(|| {
            let (start, end) = self.bounds(now);
            (start, end, 0)
        });
        let allowed = used + cost <= max || cost == 0;
        let used = if allowed { used + cost } else { used };
        if allowed && cost > 0 {
            self.present = Some((start, end, used));
        }
        (allowed, max.saturating_sub(used), end.duration_since(now).unsigned_abs())
    }
}

/// Zones without shifts in an hour, which the oracle does not know.
const ZONES: [&str; 6] =
    ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "America/Santiago", "Pacific/Auckland"];

async fn random_schedules_equal_the_oracle_on_civil_time(subject: Subject) {
    let mut random = Random::new(5);
    // 25 000 rounds are a million calls, and take a quarter of an hour.
    let rounds = std::env::var("RATE_LIMITED_CALENDAR_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let rounds = rounds.unwrap_or(full_or(3_000, 120));
    for round in 0..rounds {
        let mut pick = |below: u64| i8::try_from(random.below(below)).expect("few");
        let period = [Period::Hour, Period::Day, Period::Week, Period::Month, Period::Quarter, Period::Year]
            [usize::try_from(pick(6)).expect("few")];
        let name = ZONES[usize::try_from(pick(6)).expect("few")];
        let (month, day) = (1 + pick(12), 1 + pick(31));
        let max = 1 + u32::try_from(pick(5)).expect("few");
        let of = |limit: Limit, anchor: &str| limit.anchor(Anchor::from(anchor)).expect("an anchor");
        let limit = Limit::calendar(max, period).expect("a limit").zone(name).expect("a zone");
        let (limit, anchor) = match period {
            Period::Week => {
                let days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
                (of(limit, days[usize::try_from(day % 7).expect("few")]), (0, day % 7))
            }
            Period::Month => (limit.anchor(u32::try_from(day).expect("a day")).expect("a day"), (0, day)),
            Period::Quarter | Period::Year => {
                let day = day.min(28);
                (of(limit, &format!("{month:02}-{day:02}")), (month, day))
            }
            _ => (limit, (0, 0)),
        };
        let text = limit.to_string();
        assert_eq!(text.parse::<Limit>().expect(&text), limit);
        let zone = TimeZone::get(name).expect("a zone");
        let mut oracle = Oracle { zone, period, anchor, present: None };
        // From 2001 to about 2040.
        let key = Key::new("round:").part(round);
        let start = Duration::from_secs(random.between(1_000_000_000, 2_200_000_000));
        subject.clock.rewind(subject.clock.now());
        subject.clock.advance(start);
        let longest = u64::try_from(limit.window().as_micros()).expect("a window");
        for step in 0..40 {
            let by = Duration::from_micros(random.below(longest / [2, 3, 50][usize::try_from(step % 3).expect("few")]));
            if random.below(12) == 0 {
                subject.clock.rewind(by / 4);
            } else {
                subject.clock.advance(by);
            }
            let cost = u32::try_from(random.below(4)).expect("few");
            let now = Timestamp::from_microsecond(i64::try_from(subject.now_us()).expect("a time")).expect("a time");
            let millis = Timestamp::from_millisecond(now.as_millisecond()).expect("a time");
            let before = oracle.present;
            let (allowed, left, until_end) = oracle.check(millis, max, cost);
            let decision = subject.limiter.check_n(&key, &limit, cost).await.expect("the store answers");
            let what = format!("round {round}, step {step}: {limit} at {now}, cost {cost}, {before:?}: {decision:?}");
            assert_eq!(decision.is_allowed(), allowed, "{what}");
            match decision {
                Decision::Allowed(decided) => assert_eq!(decided.remaining(), left, "{what}"),
                Decision::Denied(decided) if decided.is_final() => assert!(cost > max, "{what}"),
                Decision::Denied(decided) => {
                    let part = Duration::from_micros(subject.now_us() % 1000);
                    assert_eq!(decided.retry_after(), until_end - part, "{what}");
                }
            }
        }
    }
}

// Two processes, whose sets of zone data may differ: the zone of the second one is as the first one would be an hour later.

/// Calls of two processes on one key for days. Returns the admissions in milliseconds since 1970. Checks that no denial
/// lasts longer than one and a half periods, and that a call is denied until `retry_after` and not longer.
async fn admissions(subject: &Subject, limits: [Limit; 2], seed: u64) -> Vec<u64> {
    const HOUR: u64 = 3_600_000;
    let (mut random, key) = (Random::new(seed), key("two"));
    let now = || u64::try_from(subject.clock.now().as_millis()).expect("a time");
    // To a whole millisecond.
    subject.clock.advance(Duration::from_nanos(1_000_000 - u64::from(subject.clock.now().subsec_nanos()) % 1_000_000));
    let (began, mut admitted, mut denied_since) = (now(), Vec::new(), None);
    while now() < began + 24 * 12 * HOUR {
        subject.advance_millis(random.between(1, 2 * HOUR));
        let limit = &limits[usize::try_from(random.below(2)).expect("few")];
        let decision = subject.limiter.check(&key, limit).await.expect("the store answers");
        let Decision::Denied(denied) = decision else {
            admitted.push(now());
            denied_since = None;
            continue;
        };
        let since = *denied_since.get_or_insert(now());
        let wait = u64::try_from(denied.retry_after().as_millis()).expect("a time");
        assert!(now() + wait - since <= 36 * HOUR, "seed {seed}: denied for longer than a period and a half");
        if random.below(4) == 0 {
            subject.advance_millis(wait - 1);
            assert!(subject.limiter.peek(&key, limit).await.expect("the store answers").is_denied(), "seed {seed}");
            subject.advance_millis(1);
            assert!(subject.limiter.check(&key, limit).await.expect("the store answers").is_allowed(), "seed {seed}");
            admitted.push(now());
            denied_since = None;
        }
    }
    subject.limiter.reset(&key, &limits[0]).await.expect("the store answers");
    admitted
}

/// Returns the most admissions in a day of a zone.
fn most_in_a_day(admitted: &[u64], zone: &str) -> usize {
    let zone = TimeZone::get(zone).expect(zone);
    let mut days: HashMap<Date, usize> = HashMap::new();
    for millis in admitted {
        let time = Timestamp::from_millisecond(i64::try_from(*millis).expect("a time")).expect("a time");
        *days.entry(zone.to_datetime(time).date()).or_default() += 1;
    }
    days.into_values().max().unwrap_or(0)
}

async fn processes_with_one_set_of_zone_data_never_exceed_a_period(subject: Subject) {
    for seed in 0..full_or(40, 8) {
        let limits = ["5/day@Europe/Berlin"; 2].map(limit);
        let admitted = admissions(&subject, limits, seed).await;
        assert_eq!(most_in_a_day(&admitted, "Europe/Berlin"), 5, "seed {seed}");
    }
}

async fn processes_whose_zone_data_differ_by_an_hour_take_at_most_twice_max(subject: Subject) {
    for seed in 0..full_or(40, 8) {
        let zones = ["Etc/GMT-1", "Etc/GMT-2"];
        let admitted = admissions(&subject, zones.map(|zone| limit(&format!("5/day@{zone}"))), seed).await;
        for zone in zones {
            let most = most_in_a_day(&admitted, zone);
            assert!((5..=10).contains(&most), "seed {seed}: {most} in a day of {zone}");
        }
    }
}

/// A receipt that is settled in a later period begins that one with the edges of its limit.
#[tokio::test]
async fn a_receipt_begins_a_period_of_its_zone_and_anchor() {
    for url in [RedisServer::shared().url(), "memory:".to_owned()] {
        let clock = ManualClock::new();
        move_to(&clock, "2026-11-27T12:00:00Z");
        let builder = || Limiter::builder().url(url.as_str()).receipt_secret([7; 32]).deadline(LONG_DEADLINE);
        let limiter = builder().clock(clock.clone()).build().expect("a limiter");
        let (key, limit) = (key("receipt"), limit("9/month:5@Asia/Tokyo"));
        let allowed = limiter.check(&key, &limit).await.expect("the store answers").into_result().expect("a permit");
        let text = limiter.receipt(&key, &allowed).expect("a receipt").to_string();
        // The fifth of December has begun in Tokyo.
        move_to(&clock, "2026-12-04T15:00:00Z");
        let usage = limiter.settle_receipt(&key, &text.parse().expect("a text"), 3).await.expect("counted");
        assert_eq!(usage.reset_after(), Duration::from_secs(31 * 86_400), "{url}: to the fifth of January there");
        move_to(&clock, "2027-01-04T14:59:59Z");
        assert_eq!(limiter.usage(&key, &limit).await.expect("read").remaining(), 7, "{url}: two more than it held");
        move_to(&clock, "2027-01-04T15:00:00Z");
        assert_eq!(limiter.usage(&key, &limit).await.expect("read").remaining(), 9, "{url}");
    }
}

// A server whose clock is that of no caller.

/// Counts the calls that this server could not decide by the edges that they had.
fn other_edges(server: &RedisServer) -> u64 {
    let Reply::Bulk(info) = server.command(&["INFO", "errorstats"]) else { panic!("no text") };
    let info = String::from_utf8(info).expect("text");
    let count = info.lines().find_map(|line| line.strip_prefix("errorstat_EDGES:count="));
    count.map_or(0, |count| count.parse().expect("a number"))
}

/// The later calls of each limiter are written by their caller, which has to use the correction as well.
#[tokio::test]
async fn callers_whose_clocks_are_hours_off_share_one_count() {
    const HOUR: i64 = 3_600_000_000;
    let mut server = RedisServer::builder().shifted_clock().start();
    for hours in [1, -1, 5, -5] {
        server.set_clock(hours * HOUR);
        let prefix = limiter_testkit::unique("clock");
        let limiter = || {
            let builder = builder_for(&server).prefix(prefix.clone()).on_error(OnError::Raise);
            builder.remember_denials(Duration::ZERO).build().expect("valid")
        };
        let (ahead, behind, before) = (limiter(), limiter(), other_edges(&server));
        let (key, limit) = (Key::new("a"), limit("90/hour@UTC"));
        let (mut admitted, mut ends) = (0, Vec::new());
        for other in 0..60 {
            for limiter in [&ahead, &behind] {
                let decision = limiter.check(&key, &limit).await.expect("decided");
                admitted += u32::from(decision.is_allowed());
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
                // Only the first call of a key in a period needs edges.
                assert!(limiter.check(&Key::new("other:").part(other), &limit).await.expect("decided").is_allowed());
                ends.push((now + decision.limits().next().expect("a limit").reset_after()).as_secs_f64());
            }
        }
        // An hour may begin meanwhile.
        let begun = ends.iter().filter(|end| **end > ends[0] + 1800.0).count() > 0;
        if !begun {
            assert_eq!(admitted, 90, "{hours} h");
            assert!(
                ends.iter().all(|end| (end / 3600.0).fract().min(1.0 - (end / 3600.0).fract()) < 0.001),
                "{ends:?}"
            );
        }
        // Each limiter learns once how late it is.
        let expected = if hours.abs() > 2 { 2 } else { 0 };
        assert!(other_edges(&server) - before <= expected + 2 * u64::from(begun), "{hours} h");
        if expected > 0 {
            assert!(other_edges(&server) > before, "{hours} h: its edges did not fit");
        }
    }
}

#[tokio::test]
async fn a_configured_limit_counts_in_the_zone_and_from_the_anchor_of_the_attribute() {
    #[rate_limited(key = "configured:{id}", name = "configured", limit = "1/day", algorithm = calendar, zone = zone)]
    fn by_day(id: u32, zone: &str) -> Result<(), Denied> {
        Ok(())
    }

    let counted_by = |rule: Rule| {
        let limiter = Limiter::memory();
        limiter.set_rules(RuleSet::new().rule("configured", rule)).expect("valid");
        let denied = limiter.scope_sync(|| (0..9).find_map(|_| by_day(1, "Asia/Tokyo").err()));
        denied.expect("nine are too many").limit().to_string()
    };
    let configured = |text: &str| counted_by(Rule::new().limit(limit(text)));
    assert_eq!(configured("3/day"), "3/day@Asia/Tokyo");
    assert_eq!(configured("3/month"), "3/month@Asia/Tokyo");
    assert_eq!(configured("3/month:7@Europe/Berlin"), "3/month:7@Europe/Berlin");
    assert_eq!(configured("3/day@UTC"), "3/day@UTC");
    assert_eq!(configured("3/10m"), "3/10m");
    let window = Rule::new().limit(limit("3/day")).algorithm(rate_limited::Algorithm::SlidingWindow);
    assert_eq!(counted_by(window), "3/d");
}

#[tokio::test]
async fn an_attribute_limits_by_the_calendar_of_a_zone() {
    #[rate_limited(key = "text", limit = "1/month:5@Europe/Berlin", fallback = denied)]
    async fn by_text() -> bool {
        true
    }

    #[rate_limited(key = "argument:{zone}", limit = "1/day", algorithm = calendar, zone = zone, fallback = denied_in)]
    async fn by_argument(zone: &str) -> bool {
        true
    }

    #[rate_limited(
        key = "several",
        limits = ["2/week", "3/year"],
        algorithm = calendar,
        zone = "America/New_York",
        fallback = denied
    )]
    async fn by_several() -> bool {
        true
    }

    #[rate_limited(key = "anchored", limit = "1/quarter", algorithm = calendar, anchor = "04-06", fallback = denied)]
    async fn anchored() -> bool {
        true
    }

    fn denied() -> bool {
        false
    }

    fn denied_in(_zone: &str) -> bool {
        false
    }

    let clock = ManualClock::new();
    move_to(&clock, "2026-11-27T12:00:00Z");
    let limiter = Limiter::builder().clock(clock.clone()).build().expect("a limiter");
    limiter
        .scope(async {
            assert!(by_text().await && !by_text().await);
            assert!(by_argument("Asia/Tokyo").await && !by_argument("Asia/Tokyo").await);
            assert!(by_argument("nowhere").await && !by_argument("nowhere").await, "an unknown zone is UTC");
            assert!(by_several().await && by_several().await && !by_several().await);
            assert!(anchored().await && !anchored().await);
            move_to(&clock, "2026-11-27T15:00:00Z");
            assert!(by_argument("Asia/Tokyo").await && !by_argument("nowhere").await);
            move_to(&clock, "2026-11-28T00:00:00Z");
            assert!(by_argument("nowhere").await);
            move_to(&clock, "2026-11-30T05:00:00Z");
            assert!(by_several().await && !by_several().await, "three a year");
            move_to(&clock, "2026-12-04T22:59:59Z");
            assert!(!by_text().await);
            move_to(&clock, "2026-12-04T23:00:00Z");
            assert!(by_text().await && !anchored().await);
            move_to(&clock, "2027-01-06T00:00:00Z");
            assert!(anchored().await);
        })
        .await;
}

//! The edges of calendar periods, by civil dates and the shifts of a zone.
//!
//! A date begins at its first instant: the first at which the zone's clock shows this date or a later one. So midnight may
//! be missing, or come twice. An hour begins where the clock shows a whole hour, and at each shift of the clock.

use std::collections::HashMap;

use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Error, Timestamp, ToSpan};
use limiter_syntax::{Anchor, Period};

use super::{Calendar, Edges};
use crate::sync::process::PerProcess;
use crate::sync::{RwLock, read, write};

/// The edges of the periods that limits are in. A decision finds them here.
static PRESENT: PerProcess<RwLock<HashMap<Calendar, Edges>>> = PerProcess::new();
/// The most calendars whose edges are kept.
const MAX_PRESENT: usize = 1024;

impl Calendar {
    /// Returns the edges around an instant, in milliseconds since 1970.
    pub(crate) fn edges_at(self, millis: u64) -> Edges {
        let present = PRESENT.here();
        let known = read(present).get(&self).copied();
        if let Some(edges) = known.filter(|edges| (edges.start..edges.end).contains(&millis)) {
            return edges;
        }
        let edges = self.compute(millis);
        let mut present = write(present);
        if present.len() >= MAX_PRESENT {
            present.clear();
        }
        present.insert(self, edges);
        edges
    }

    fn compute(self, millis: u64) -> Edges {
        let (period, anchor, zone) = self.parts();
        let zone = zone.time_zone();
        let compute = || {
            let millis = i64::try_from(millis).ok()?;
            let seconds = millis.div_euclid(1000);
            if period == Period::Hour {
                hours(zone, seconds).ok()
            } else {
                Dates { zone, period, anchor }.around(seconds).ok()
            }
        };
        // There are dates until the year 9999, which no clock reaches.
        compute().unwrap_or_else(|| {
            let length = period.max_millis();
            let start = millis - millis % length;
            Edges {
                before: start.saturating_sub(length),
                start,
                end: start.saturating_add(length),
                after: start.saturating_add(length).saturating_add(length),
            }
        })
    }
}

/// Edges of four seconds. Those before 1970 are 1970.
fn of_seconds([before, start, end, after]: [i64; 4]) -> Edges {
    let millis = |seconds: i64| u64::try_from(seconds).unwrap_or(0).saturating_mul(1000);
    Edges { before: millis(before), start: millis(start), end: millis(end), after: millis(after) }
}

// Periods of dates. Instants are seconds since 1970.

struct Dates<'z> {
    zone: &'z TimeZone,
    period: Period,
    anchor: Anchor,
}

impl Dates<'_> {
    fn around(&self, seconds: i64) -> Result<Edges, Error> {
        let today = self.zone.to_datetime(Timestamp::from_second(seconds)?).date();
        let mut date = self.first_date_until(today)?;
        // The clock may show a date again that is over.
        loop {
            let next = self.step(date, 1)?;
            if self.first_instant(next)? > seconds {
                break;
            }
            date = next;
        }
        while self.first_instant(date)? > seconds {
            date = self.step(date, -1)?;
        }
        let (start, end) = (self.first_instant(date)?, self.first_instant(self.step(date, 1)?)?);
        Ok(of_seconds([self.next_edge(date, start, -1)?, start, end, self.next_edge(date, end, 1)?]))
    }

    /// Returns the next edge before or after an edge, from the date of a period on. A date that the zone has skipped is as
    /// long as nothing.
    fn next_edge(&self, mut date: Date, edge: i64, direction: i64) -> Result<i64, Error> {
        loop {
            date = self.step(date, direction)?;
            let instant = self.first_instant(date)?;
            if (instant - edge) * direction > 0 {
                return Ok(instant);
            }
        }
    }

    /// Returns the first date of the period that a date is in.
    fn first_date_until(&self, date: Date) -> Result<Date, Error> {
        match self.period {
            Period::Hour | Period::Day => Ok(date),
            Period::Week => {
                let weekday = i64::from(date.weekday().to_monday_zero_offset());
                date.checked_sub((weekday - i64::from(self.anchor.day())).rem_euclid(7).days())
            }
            _ => {
                let month = month_number(date);
                let months_since = match self.period {
                    Period::Month => 0,
                    _ => (month + 1 - i64::from(self.anchor.month())).rem_euclid(self.months()),
                };
                let first = self.date_in(month - months_since)?;
                if first > date { self.date_in(month - months_since - self.months()) } else { Ok(first) }
            }
        }
    }

    /// Returns the first date of the next period, or of the one before.
    fn step(&self, date: Date, direction: i64) -> Result<Date, Error> {
        match self.period {
            Period::Hour | Period::Day => date.checked_add(direction.days()),
            Period::Week => date.checked_add((7 * direction).days()),
            _ => self.date_in(month_number(date) + direction * self.months()),
        }
    }

    const fn months(&self) -> i64 {
        match self.period {
            Period::Month => 1,
            Period::Quarter => 3,
            _ => 12,
        }
    }

    /// Returns the date of the anchor in a month, or its last day if that is earlier.
    fn date_in(&self, month: i64) -> Result<Date, Error> {
        let year = i16::try_from(month.div_euclid(12)).unwrap_or(i16::MAX);
        let first = Date::new(year, i8::try_from(month.rem_euclid(12) + 1).unwrap_or(1), 1)?;
        let day = i8::try_from(self.anchor.day()).unwrap_or(i8::MAX);
        Date::new(first.year(), first.month(), day.min(first.days_in_month()))
    }

    /// Returns the first instant at which the clock shows a date or a later one.
    fn first_instant(&self, date: Date) -> Result<i64, Error> {
        let midnight = self.zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0));
        match midnight.offset() {
            AmbiguousOffset::Gap { .. } => {
                // The clock was set forward over midnight, and shows the date from then on.
                let later = midnight.later()?;
                let shift = self.zone.preceding(later.checked_add(1.second())?).next();
                Ok(shift.map_or(later, |shift| shift.timestamp()).as_second())
            }
            _ => midnight.earlier().map(Timestamp::as_second),
        }
    }
}

/// The months from the year 0 to the month of a date.
fn month_number(date: Date) -> i64 {
    12 * i64::from(date.year()) + i64::from(date.month()) - 1
}

// Hours.

fn hours(zone: &TimeZone, seconds: i64) -> Result<Edges, Error> {
    let (start, end) = hour(zone, seconds)?;
    Ok(of_seconds([hour(zone, start - 1)?.0, start, end, hour(zone, end)?.1]))
}

/// Returns start and end of the hour that an instant is in.
fn hour(zone: &TimeZone, seconds: i64) -> Result<(i64, i64), Error> {
    const HOUR: i64 = 3600;
    let offset = |seconds| Ok::<_, Error>(i64::from(zone.to_offset(Timestamp::from_second(seconds)?).seconds()));
    let own = offset(seconds)?;
    let start = seconds - (seconds + own).rem_euclid(HOUR);
    let end = start + HOUR;
    let mut bounds = (start, end);
    // Shifts of less than an hour, or within one, are rare.
    let shifts = zone.following(Timestamp::from_second(start - 1)?).map(|shift| shift.timestamp().as_second());
    for shift in shifts.take_while(|shift| *shift < end) {
        if offset(shift - 1)? == offset(shift)? {
            continue;
        }
        if shift <= seconds {
            bounds.0 = bounds.0.max(shift);
        } else {
            bounds.1 = bounds.1.min(shift);
        }
    }
    Ok(bounds)
}

#[cfg(test)]
mod tests;

//! What was chosen, and why: the sentences are written by hand, the figures in them are measured.

use super::measure::Sample;
use super::variants::{
    BY_RANGES, CALLS, CAPACITIES, EXPIRY_AS_NUMBER, EXPIRY_KEPT, GET_EACH, INTEGERS, MESSAGE_PACK, PACKED_EACH,
    SET_AND_PEXPIRE, SHIPPED, SMALL, ZSET,
};
use super::{Report, Row, cases};

/// A choice in a few sentences each, as far as its figures are there.
#[must_use]
pub fn all(report: &Report) -> Vec<String> {
    let figures = Figures(report);
    [
        figures.whole(),
        figures.capacity(),
        figures.together(),
        figures.expiry(),
        figures.expiry_kept(),
        figures.reply(),
        figures.arithmetic(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

struct Figures<'a>(&'a Report);

impl Figures<'_> {
    fn whole(&self) -> Option<String> {
        Some(format!(
            "**A log is one string, read whole; a long one that only grows is changed in its place.** Written whole each time, as by \
             `small`, a full log takes {} µs in groups in place of {}. Read by a header and ranges, too, it calls {} commands a decision in \
             place of {}, and takes {} the time of `small`, {} in groups; a short log fits into the first read, and takes {} and {}. \
             What is over is not cut off by each write then, so a log takes up to twice the bytes.",
            self.micros(cases::LONG_GROUPS, SMALL)?,
            self.micros(cases::LONG_GROUPS, SHIPPED)?,
            self.calls(cases::LONG, BY_RANGES)?,
            self.calls(cases::LONG, SMALL)?,
            self.ratio(cases::LONG, BY_RANGES)?,
            self.ratio(cases::LONG_GROUPS, BY_RANGES)?,
            self.ratio(cases::MANY, BY_RANGES)?,
            self.ratio(cases::MANY_GROUPS, BY_RANGES)?,
        ))
    }

    fn capacity(&self) -> Option<String> {
        let mut kept: Vec<_> = CAPACITIES.into_iter().chain([(128, SHIPPED)]).collect();
        kept.sort_unstable();
        let of_each = |figure: &dyn Fn(&str) -> Option<String>| {
            kept.iter().map(|(_, name)| figure(name)).collect::<Option<Vec<_>>>().map(|figures| figures.join(" / "))
        };
        Some(format!(
            "**128 runs are kept apart.** With 32 / 64 / 128 / 256 / 512 a full log takes {} bytes, a decision about it {} µs, and {} µs in \
             groups: most of what grows is for making texts of that length. Beyond so many instants in a window a permit comes back late, by \
             1/32 to 1/512 of the window at most. With 128 that is less than one percent, and a full log costs a group less than a call of a \
             sorted set's script ({} µs); from there on each halving of the delay costs more than it did before. A limit of up to 128 a \
             window never has a full log, and is exact with any of these.",
            of_each(&|name| self.figure(cases::LONG, name, |sample| sample.bytes, 0))?,
            of_each(&|name| self.micros(cases::LONG, name))?,
            of_each(&|name| self.micros(cases::LONG_GROUPS, name))?,
            self.micros(cases::LONG_GROUPS, ZSET)?,
        ))
    }

    fn together(&self) -> Option<String> {
        Some(format!(
            "**The values of a group are read by one MGET.** A GET for each takes {} the time of the whole decision.",
            self.ratio(cases::MANY_GROUPS, GET_EACH)?
        ))
    }

    fn expiry(&self) -> Option<String> {
        Some(format!(
            "**The expiry is set by the command that writes a whole value**, so that no key is ever without one. SET and then PEXPIRE takes {} the time, \
             {} in groups. **SET is given it as text**, made once for entries that live as long: as a number it takes {}, {} in \
             groups, since the server prints it like a fraction and then reads that.",
            self.ratio(cases::MANY, SET_AND_PEXPIRE)?,
            self.ratio(cases::MANY_GROUPS, SET_AND_PEXPIRE)?,
            self.ratio(cases::MANY, EXPIRY_AS_NUMBER)?,
            self.ratio(cases::MANY_GROUPS, EXPIRY_AS_NUMBER)?,
        ))
    }

    fn expiry_kept(&self) -> Option<String> {
        Some(format!(
            "**Each write sets the expiry anew**, though KEEPTTL in all but the first takes {} the time, {} in groups. That is what could be won \
             at most by an expiry some windows ahead that is seldom renewed. The price: keys that nobody asks for any more stay as much \
             longer, and the value has to say when its key expires.",
            self.ratio(cases::MANY, EXPIRY_KEPT)?,
            self.ratio(cases::MANY_GROUPS, EXPIRY_KEPT)?,
        ))
    }

    fn reply(&self) -> Option<String> {
        let each = |case| {
            let of = |variant| self.ratio(case, variant);
            Some(format!("{}, {} and {}", of(INTEGERS)?, of(PACKED_EACH)?, of(MESSAGE_PACK)?))
        };
        Some(format!(
            "**A group replies with one string, packed by one call.** An array of integers, a string packed entry by entry and MessagePack \
             take {} the time; where all is denied, {}. So it is little for the server; what reads the reply gains by it, which is \
             not in these figures. It is for groups: where one decision makes a call, the three take {}.",
            each(cases::MANY_GROUPS)?,
            each(cases::DENIED_GROUPS)?,
            each(cases::MANY)?,
        ))
    }

    fn arithmetic(&self) -> Option<String> {
        Some(format!(
            "**What is left to save is Lua's own time, not calls.** TIME, GET and SET alone take {} of the {} µs of a lone decision, and {} of {} in \
             groups, though they read each key by a GET. Of a lone decision most is what every call has to do once: so \
             decisions that wait together are one call.",
            self.micros(cases::MANY, CALLS)?,
            self.micros(cases::MANY, SHIPPED)?,
            self.micros(cases::MANY_GROUPS, CALLS)?,
            self.micros(cases::MANY_GROUPS, SHIPPED)?,
        ))
    }

    fn micros(&self, case: &str, variant: &str) -> Option<String> {
        self.figure(case, variant, |sample| sample.micros, 1)
    }

    fn calls(&self, case: &str, variant: &str) -> Option<String> {
        self.figure(case, variant, Sample::calls, 0)
    }

    fn figure(&self, case: &str, variant: &str, of: impl Fn(&Sample) -> f64, digits: usize) -> Option<String> {
        Some(format!("{:.digits$}", self.row(case, variant)?.figure(of)?))
    }

    /// Against what the variant is compared with.
    fn ratio(&self, case: &str, variant: &str) -> Option<String> {
        let row = self.row(case, variant)?;
        Some(format!("{:.2} ×", row.ratio_to(self.row(case, row.against?)?)?))
    }

    fn row(&self, case: &str, variant: &str) -> Option<&Row> {
        self.0.row(case, variant)
    }
}

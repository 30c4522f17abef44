//! Names of rules that the program chooses at run time.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::rule::RuleId;
use crate::sync::RwLock;
use crate::sync::process::{id, read_at_home, write_at_home};

/// The most names of a process. They are kept until the process ends.
const MAX_NAMES: usize = 10_000;

static NAMES: LazyLock<Names> = LazyLock::new(Names::default);

struct Names {
    home: u32,
    positions: RwLock<HashMap<&'static str, u32>>,
}

impl Default for Names {
    fn default() -> Self {
        Self { home: id(), positions: RwLock::new(HashMap::new()) }
    }
}

/// Returns the name as a static text, and its position in the caches of threads. `None` if there are too many names.
pub(crate) fn intern(name: &str) -> Option<(&'static str, u32)> {
    let Names { home, positions } = &*NAMES;
    let known = read_at_home(positions, *home)?.get_key_value(name).map(|(name, position)| (*name, *position));
    if known.is_some() {
        return known;
    }
    let mut positions = write_at_home(positions, *home)?;
    if let Some((name, position)) = positions.get_key_value(name) {
        return Some((name, *position));
    }
    if positions.len() == MAX_NAMES {
        return None;
    }
    let (name, position): (&'static str, _) = (Box::leak(name.into()), RuleId::new().position(1));
    positions.insert(name, position);
    Some((name, position))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_interned_once() {
        let [one, again, other] = ["a name", "a name", "another"].map(|name| intern(name).expect("few names"));
        assert_eq!(one, again);
        assert_ne!(one.1, other.1);
        assert!(std::ptr::eq(one.0, again.0));
    }
}

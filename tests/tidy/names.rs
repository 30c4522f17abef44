//! One type name in a crate.

use std::collections::BTreeMap;

use syn::Item;

use crate::modules::{conditions_of, modules};

/// Pairs of types with one name that may stay. The number may only fall.
const MAX_REPEATED: [(&str, usize); 11] = [
    ("limiter-core", 0),
    ("limiter-macros", 0),
    ("limiter-syntax", 0),
    ("limiter-testkit", 0),
    ("limiter-tower", 0),
    ("limiter-bench", 0),
    ("limiter-chaos", 0),
    ("limiter-cli", 0),
    ("limiter-dashboard", 0),
    ("limiter-inspect", 0),
    ("limiter-server", 0),
];

/// A type and the place where it is defined.
struct Definition {
    place: String,
    conditions: Vec<String>,
}

fn definitions(package: &str) -> BTreeMap<String, Vec<Definition>> {
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for module in modules(package, true) {
        collect(&module.items, &module.path, &module.conditions, &mut found);
    }
    found
}

fn collect(items: &[Item], place: &str, conditions: &[String], found: &mut BTreeMap<String, Vec<Definition>>) {
    for item in items {
        let (name, attributes) = match item {
            Item::Struct(item) => (&item.ident, &item.attrs),
            Item::Enum(item) => (&item.ident, &item.attrs),
            Item::Trait(item) => (&item.ident, &item.attrs),
            Item::Type(item) => (&item.ident, &item.attrs),
            Item::Union(item) => (&item.ident, &item.attrs),
            Item::Mod(module) => {
                if let Some((_, items)) = &module.content {
                    let place = format!("{place}::{}", module.ident);
                    collect(items, &place, &[conditions, &conditions_of(&module.attrs)].concat(), found);
                }
                continue;
            }
            _ => continue,
        };
        let conditions = [conditions, &conditions_of(attributes)].concat();
        found.entry(name.to_string()).or_default().push(Definition { place: place.to_owned(), conditions });
    }
}

/// Twins for two configurations, of which a build has one.
fn are_twins(one: &Definition, other: &Definition) -> bool {
    let plain = |condition: &String| condition.replace(' ', "");
    let denies = |one: &Definition, other: &Definition| {
        one.conditions
            .iter()
            .any(|condition| other.conditions.iter().any(|other| plain(condition) == format!("not({})", plain(other))))
    };
    denies(one, other) || denies(other, one)
}

#[test]
fn a_type_name_stands_for_one_type_in_a_crate() {
    let mut failures = Vec::new();
    for (package, max) in MAX_REPEATED {
        let mut repeated = Vec::new();
        for (name, definitions) in definitions(package) {
            let mut kept: Vec<&Definition> = Vec::new();
            for definition in &definitions {
                if !kept.iter().any(|other| are_twins(definition, other)) {
                    kept.push(definition);
                }
            }
            if kept.len() > 1 {
                let places: Vec<_> = kept.iter().map(|definition| definition.place.as_str()).collect();
                repeated.push(format!("  {name}: {}", places.join(", ")));
            }
        }
        if repeated.len() > max {
            failures.push(format!("{package}: {} names, at most {max}\n{}", repeated.len(), repeated.join("\n")));
        }
    }
    assert!(failures.is_empty(), "names of several types:\n{}", failures.join("\n"));
}

//! The entries of a mapping of YAML, each of a known name.

use limiter_syntax::nearest;

use super::mistake::Mistakes;
use super::yaml::{Node, Place, Yaml};

/// Names that Envoy's service has and this server does not, each with what to do.
const NOT_INCLUDED: [(&str, &str); 2] = [
    ("share_threshold", "write a `value` without `*` for what is counted together"),
    ("value_to_metric", "the metrics of this server have no values of keys"),
];

/// The entries of a mapping.
pub(super) struct Fields<'n> {
    entries: Vec<(&'static str, Field<'n>)>,
}

/// The value of an entry, and the place of its name.
#[derive(Clone, Copy)]
pub(super) struct Field<'n> {
    pub(super) name: &'static str,
    /// The place of the value.
    pub(super) place: Place,
    pub(super) node: &'n Node,
}

impl<'n> Fields<'n> {
    /// Reads the entries of a mapping that messages call `owner`. An entry of another name is a mistake. `None` for what is
    /// no mapping.
    pub(super) fn read(
        node: &'n Node,
        owner: &str,
        names: &'static [&'static str],
        mistakes: &mut Mistakes,
    ) -> Option<Self> {
        let Yaml::Mapping(entries) = &node.value else {
            let list = names.iter().take(3).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            mistakes.add(node.place, format!("{owner} must be a mapping, got {}: write {list}", node.kind()));
            return None;
        };
        let mut fields = Self { entries: Vec::with_capacity(entries.len()) };
        for (key, value) in entries {
            let Yaml::Scalar { text, .. } = &key.value else {
                mistakes.add(key.place, format!("a key of {owner} must be a name, got {}: write one", key.kind()));
                continue;
            };
            let Some(name) = names.iter().copied().find(|name| name == text) else {
                mistakes.add(key.place, unknown_name(owner, text, names));
                continue;
            };
            if fields.get(name).is_some() {
                mistakes.add(key.place, format!("{owner} must have `{name}` once, got it twice: remove one"));
                continue;
            }
            fields.entries.push((name, Field { name, place: value.place, node: value }));
        }
        Some(fields)
    }

    /// Returns the value of an entry. `None` without one, or for one that is nothing.
    pub(super) fn get(&self, name: &str) -> Option<Field<'n>> {
        let field = self.entries.iter().find(|(of, _)| *of == name).map(|(_, field)| *field);
        field.filter(|field| !field.node.is_null())
    }
}

impl<'n> Field<'n> {
    /// Returns the text of a single value.
    pub(super) fn text(&self, mistakes: &mut Mistakes) -> Option<&'n str> {
        match &self.node.value {
            Yaml::Scalar { text, .. } => Some(text),
            _ => {
                let (name, kind) = (self.name, self.node.kind());
                mistakes.add(self.place, format!("`{name}` must be a single value, got {kind}: write one"));
                None
            }
        }
    }

    /// Returns the value of `true` or `false`.
    pub(super) fn flag(&self, mistakes: &mut Mistakes) -> Option<bool> {
        let text = self.text(mistakes)?;
        match text {
            "true" | "True" | "TRUE" => Some(true),
            "false" | "False" | "FALSE" => Some(false),
            _ => {
                let name = self.name;
                mistakes
                    .add(self.place, format!("`{name}` must be `true` or `false`, got `{text}`: write one of them"));
                None
            }
        }
    }

    /// Returns a whole number that is not below `least`. Messages call it `quantity`.
    pub(super) fn number(&self, quantity: &str, least: u32, mistakes: &mut Mistakes) -> Option<u32> {
        let text = self.text(mistakes)?;
        let number = text.parse().ok().filter(|number: &u32| *number >= least);
        if number.is_none() {
            let (name, most) = (self.name, u32::MAX);
            let message =
                format!("`{name}` must be {quantity} between {least} and {most}, got `{text}`: write one such as 100");
            mistakes.add(self.place, message);
        }
        number
    }
}

fn unknown_name(owner: &str, text: &str, names: &'static [&'static str]) -> String {
    if let Some((_, fix)) = NOT_INCLUDED.iter().find(|(name, _)| *name == text) {
        return format!("`{text}` must be left out, got it: this server does not include it; {fix}");
    }
    let fix = match nearest(text, names.iter().copied()) {
        Some(name) => format!("write `{name}`"),
        None => format!("write one of {}", names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
    };
    format!("{owner} must have only known keys, got `{text}`: {fix}")
}

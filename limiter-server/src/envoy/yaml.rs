//! A tree of YAML in which each value has its place in the file.

use std::collections::HashMap;
use std::fmt;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

/// The most values of a file. Aliases count each time, so that a small file of them cannot fill the memory.
const MAX_VALUES: usize = 1_000_000;
/// The most lists and mappings inside of each other.
const MAX_DEPTH: usize = 64;

/// A line and a column, each from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Place {
    /// The start of a file.
    pub(super) const START: Self = Self { line: 1, column: 1 };
}

impl From<Marker> for Place {
    fn from(marker: Marker) -> Self {
        Self { line: marker.line(), column: marker.col() + 1 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Yaml,
}

/// A value of YAML.
#[derive(Clone, Debug)]
pub(super) enum Yaml {
    Scalar {
        text: String,
        /// It is without quotes, so `true` and `~` are no texts.
        is_plain: bool,
    },
    List(Vec<Node>),
    Mapping(Vec<(Node, Node)>),
}

impl Node {
    /// The kind of the value, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            _ if self.is_null() => "nothing",
            Yaml::Scalar { .. } => "a single value",
            Yaml::List(_) => "a list",
            Yaml::Mapping(_) => "a mapping",
        }
    }

    /// Returns whether it is no value, as after a key without one.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.value, Yaml::Scalar { text, is_plain: true } if matches!(&**text, "" | "~" | "null" | "Null" | "NULL"))
    }
}

/// A value that is not complete.
enum Open {
    List { place: Place, anchor: usize, items: Vec<Node> },
    Mapping { place: Place, anchor: usize, entries: Vec<(Node, Node)>, key: Option<Node> },
}

/// Parses the only document of a file. `None` if there is none.
///
/// # Errors
/// The first place at which it is no YAML, or more than this server reads, with a message.
pub(super) fn parse(text: &str) -> Result<Option<Node>, (Place, String)> {
    let mut tree = Tree::default();
    for event in Parser::new_from_str(text) {
        let (event, span) =
            event.map_err(|error| (Place::from(*error.marker()), format!("is no YAML: {}", error.info())))?;
        tree.add(event, span.start.into())?;
    }
    Ok(tree.root)
}

#[derive(Default)]
struct Tree {
    root: Option<Node>,
    open: Vec<Open>,
    /// The values with an anchor, each with the number of values in it.
    anchors: HashMap<usize, Node>,
    values: usize,
}

impl Tree {
    fn add(&mut self, event: Event<'_>, place: Place) -> Result<(), (Place, String)> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) if self.root.is_some() => {
                Err((place, "must have one document, got a second one: write it into a file of its own".to_owned()))
            }
            Event::DocumentStart(_) => Ok(()),
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(node) => self.close(Node { place, ..node }, 0),
                None => Err((
                    place,
                    "an alias must come after its anchor, got one inside of it: write the value".to_owned(),
                )),
            },
            Event::Scalar(text, style, anchor, _) => {
                let value = Yaml::Scalar { text: text.into_owned(), is_plain: style == ScalarStyle::Plain };
                self.close(Node { place, value }, anchor)
            }
            Event::SequenceStart(anchor, _) => self.open(Open::List { place, anchor, items: Vec::new() }, place),
            Event::MappingStart(anchor, _) => {
                self.open(Open::Mapping { place, anchor, entries: Vec::new(), key: None }, place)
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List { place, anchor, items }) => {
                    self.close(Node { place, value: Yaml::List(items) }, anchor)
                }
                Some(Open::Mapping { place, anchor, entries, .. }) => {
                    self.close(Node { place, value: Yaml::Mapping(entries) }, anchor)
                }
                None => Ok(()),
            },
        }
    }

    fn open(&mut self, open: Open, place: Place) -> Result<(), (Place, String)> {
        if self.open.len() == MAX_DEPTH {
            return Err((place, format!("must have at most {MAX_DEPTH} levels, got more: nest fewer descriptors")));
        }
        self.open.push(open);
        Ok(())
    }

    /// Adds a complete value to the one that is open.
    fn close(&mut self, node: Node, anchor: usize) -> Result<(), (Place, String)> {
        self.values += if self.anchors.is_empty() { 1 } else { count(&node) };
        if self.values > MAX_VALUES {
            return Err((node.place, format!("must have at most {MAX_VALUES} values, got more: write several files")));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Mapping { entries, key, .. }) => match key.take() {
                None => *key = Some(node),
                Some(name) => entries.push((name, node)),
            },
        }
        Ok(())
    }
}

/// The number of values in a value, with itself.
fn count(node: &Node) -> usize {
    1 + match &node.value {
        Yaml::Scalar { .. } => 0,
        Yaml::List(items) => items.iter().map(count).sum(),
        Yaml::Mapping(entries) => entries.iter().map(|(key, value)| count(key) + count(value)).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_its_place() {
        let root = parse("domain: a\ndescriptors:\n  - key: b\n    value: \"1\"\n").expect("YAML").expect("a document");
        let Yaml::Mapping(entries) = &root.value else { panic!("{root:?}") };
        let [(_, domain), (key, descriptors)] = &**entries else { panic!("{entries:?}") };
        assert_eq!((domain.place.to_string(), key.place.to_string()), ("1:9".to_owned(), "2:1".to_owned()));
        let Yaml::List(items) = &descriptors.value else { panic!("{descriptors:?}") };
        let Yaml::Mapping(entries) = &items[0].value else { panic!("{items:?}") };
        assert_eq!(entries[1].1.place, Place { line: 4, column: 12 });
        assert!(matches!(&entries[1].1.value, Yaml::Scalar { text, is_plain: false } if text == "1"));
    }

    #[test]
    fn what_is_no_yaml_has_a_place_and_a_message() {
        for (text, start) in
            [("a: [1, 2", "is no YAML"), ("a: 1\n b: 2", "is no YAML"), ("a: 1\n---\nb: 2", "must have one document")]
        {
            let (place, message) = parse(text).expect_err(text);
            assert!(message.starts_with(start) && place.line > 0, "{text}: {place} {message}");
        }
    }

    #[test]
    fn a_small_file_of_aliases_fills_no_memory() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let before = level - 1;
            let aliases = vec![format!("*a{before}"); 10].join(", ");
            text += &format!("a{level}: &a{level} [{aliases}]\n");
        }
        let (_, message) = parse(&text).expect_err("too many");
        assert!(message.starts_with("must have at most 1000000 values"), "{message}");
        let deep = "[".repeat(100_000);
        assert!(parse(&deep).is_err());
    }
}

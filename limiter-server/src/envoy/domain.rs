//! A domain: the descriptors of a file, as a tree that finds the most specific one.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use rate_limited::{Mode, Rule};

use super::fields::Fields;
use super::mistake::{Mistake, Mistakes};
use super::rate_limit::{RateLimitField, RateLimitKind};
use super::rule::{EnvoyRule, PartNames};
use super::yaml::{self, Node, Place, Yaml};

const DESCRIPTOR_NAMES: [&str; 7] =
    ["key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric"];

/// The descriptors of a file.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) name: Box<str>,
    /// The place of the name.
    pub(super) place: Place,
    pub(super) rules: Vec<EnvoyRule>,
    root: Level,
}

/// The descriptors of a list, by key.
#[derive(Debug, Default)]
struct Level(HashMap<Box<str>, DescriptorValues>);

/// The descriptors of a list with one key.
#[derive(Debug, Default)]
struct DescriptorValues {
    exact: HashMap<Box<str>, Descriptor>,
    /// Those whose value ends with `*`, by the text before it. The longest is the first.
    beginnings: Vec<(Box<str>, Descriptor)>,
    any: Option<Box<Descriptor>>,
}

#[derive(Debug)]
struct Descriptor {
    /// The index of its rule.
    rule: Option<usize>,
    below: Level,
    /// Its value is a part of the key.
    is_part: bool,
}

/// The rule of a request's descriptor, with the values of its key.
#[derive(Debug)]
pub(crate) struct Match<'t, 'r> {
    pub(crate) rule: &'t EnvoyRule,
    pub(crate) values: Vec<&'r str>,
}

/// The position in the tree of a descriptor that is read.
struct TreePath {
    /// The name of its rule.
    name: String,
    /// The template of its key.
    template: String,
    parts: PartNames,
}

impl Domain {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// All of its mistakes.
    pub(super) fn read(file: Arc<Path>, text: &str) -> Result<Self, Vec<Mistake>> {
        let root = match yaml::parse(text) {
            Ok(Some(root)) => root,
            Ok(None) => {
                let message = "must have a `domain`, got nothing: write `domain: …` and `descriptors: …`";
                return Err(vec![Mistake::at(file, Place::START, message)]);
            }
            Err((place, message)) => return Err(vec![Mistake::at(file, place, message)]),
        };
        let mut mistakes = Mistakes::new(Arc::clone(&file));
        let domain = Self::of_root(&root, &mut mistakes);
        match (domain, mistakes.into_list()) {
            (Some(domain), list) if list.is_empty() => Ok(domain),
            (_, list) => Err(list),
        }
    }

    fn of_root(root: &Node, mistakes: &mut Mistakes) -> Option<Self> {
        let fields = Fields::read(root, "a file", &["domain", "descriptors"], mistakes)?;
        let domain = match fields.get("domain") {
            Some(field) => field.text(mistakes).map(|name| (name, field.place)).filter(|(name, _)| !name.is_empty()),
            None => None,
        };
        if domain.is_none() {
            mistakes.add(root.place, "a file must have a `domain`, got none: write that of Envoy's filter");
        }
        // Without a name the descriptors are read for their mistakes.
        let (name, place) = domain.unwrap_or(("domain", root.place));
        let mut reader = Reader { rules: Vec::new(), mistakes };
        let path = TreePath { name: name.to_owned(), template: escaped(name), parts: PartNames::default() };
        let tree = match fields.get("descriptors") {
            Some(field) => reader.level(field.node, &path),
            None => Level::default(),
        };
        let rules = reader.rules;
        domain.map(|_| Self { name: name.into(), place, rules, root: tree })
    }

    /// Finds the rule of a request's descriptor: at each entry the exact value, else the longest beginning, else the key
    /// alone. `None` if no descriptor of this depth has a limit.
    pub(super) fn find<'t, 'r>(&'t self, entries: impl Iterator<Item = (&'r str, &'r str)>) -> Option<Match<'t, 'r>> {
        let (mut level, mut values, mut found) = (&self.root, Vec::new(), None);
        for (key, value) in entries {
            let descriptor = level.0.get(key)?.find(value)?;
            if descriptor.is_part {
                values.push(value);
            }
            (level, found) = (&descriptor.below, descriptor.rule);
        }
        Some(Match { rule: self.rules.get(found?)?, values })
    }
}

impl DescriptorValues {
    fn find(&self, value: &str) -> Option<&Descriptor> {
        let begins = || self.beginnings.iter().find(|(beginning, _)| value.starts_with(&**beginning));
        self.exact.get(value).or_else(|| begins().map(|(_, descriptor)| descriptor)).or(self.any.as_deref())
    }

    /// Adds a descriptor. Returns whether there is one with this value.
    fn add(&mut self, value: Option<&str>, descriptor: Descriptor) -> bool {
        let Some(value) = value else { return self.any.replace(Box::new(descriptor)).is_some() };
        let Some(beginning) = value.strip_suffix('*') else {
            return self.exact.insert(value.into(), descriptor).is_some();
        };
        if self.beginnings.iter().any(|(other, _)| **other == *beginning) {
            return true;
        }
        let at = self.beginnings.partition_point(|(other, _)| other.len() >= beginning.len());
        self.beginnings.insert(at, (beginning.into(), descriptor));
        false
    }
}

struct Reader<'m> {
    rules: Vec<EnvoyRule>,
    mistakes: &'m mut Mistakes,
}

impl Reader<'_> {
    fn level(&mut self, node: &Node, above: &TreePath) -> Level {
        let mut level = Level::default();
        let Yaml::List(items) = &node.value else {
            let message = format!("`descriptors` must be a list, got {}: write `- key: …` for each", node.kind());
            self.mistakes.add(node.place, message);
            return level;
        };
        for item in items {
            self.descriptor(item, above, &mut level);
        }
        level
    }

    fn descriptor(&mut self, node: &Node, above: &TreePath, level: &mut Level) {
        let Some(fields) = Fields::read(node, "a descriptor", &DESCRIPTOR_NAMES, self.mistakes) else { return };
        let key = match fields.get("key") {
            Some(field) => field.text(self.mistakes),
            None => {
                self.mistakes.add(node.place, "a descriptor must have a `key`, got none: write that of an entry");
                None
            }
        };
        let value = fields.get("value").and_then(|field| field.text(self.mistakes)).filter(|value| !value.is_empty());
        // Without a key the rest is read for its mistakes.
        let path = above.below(key.unwrap_or("key"), value);
        let mut flag = |name| fields.get(name).and_then(|field| field.flag(self.mistakes)).unwrap_or(false);
        let (is_shadow, is_quota) = (flag("shadow_mode"), flag("quota_mode"));
        // The metrics of this server are by rule.
        flag("detailed_metric");
        let rate_limit = fields.get("rate_limit").and_then(|field| RateLimitField::read(field.node, self.mistakes));
        let rule = rate_limit.map(|rate_limit| {
            let rule = rule_of(&rate_limit, is_shadow || is_quota).key(path.template.clone());
            let name = path.name.clone().into();
            self.rules.push(EnvoyRule::new(name, node.place, rate_limit, is_quota, rule));
            self.rules.len() - 1
        });
        let below = match fields.get("descriptors") {
            Some(field) => self.level(field.node, &path),
            None => Level::default(),
        };
        let descriptor = Descriptor { rule, below, is_part: is_part(value) };
        let Some(key) = key else { return };
        if key.is_empty() {
            self.mistakes.add(node.place, "a descriptor must have a `key`, got an empty one: write that of an entry");
        } else if level.0.entry(key.into()).or_default().add(value, descriptor) {
            let name = &path.name;
            let message = format!("a descriptor must be once in its list, got `{name}` twice: remove one");
            self.mistakes.add(node.place, message);
        }
    }
}

/// Returns the settings of a limit.
fn rule_of(rate_limit: &RateLimitField, is_shadow: bool) -> Rule {
    let rule = match rate_limit.kind {
        RateLimitKind::Unlimited => return Rule::new().mode(Mode::Off),
        RateLimitKind::Denied(limit) if is_shadow => return Rule::new().limit(limit).mode(Mode::Off),
        RateLimitKind::Denied(limit) => return Rule::new().limit(limit).mode(Mode::Deny),
        RateLimitKind::Limited(limit) => Rule::new().limit(limit),
    };
    let rule = if is_shadow { rule.mode(Mode::Shadow) } else { rule };
    let rule = rate_limit.algorithm.map_or(rule.clone(), |algorithm| rule.clone().algorithm(algorithm));
    let rule = rate_limit.burst.map_or(rule.clone(), |burst| rule.clone().burst(burst));
    if rate_limit.is_postpaid { rule.postpaid(true) } else { rule }
}

/// Returns whether a value stands for several, which are counted apart.
fn is_part(value: Option<&str>) -> bool {
    value.is_none_or(|value| value.ends_with('*'))
}

impl TreePath {
    fn below(&self, key: &str, value: Option<&str>) -> Self {
        let Self { name, template, parts } = self;
        let mut parts = parts.clone();
        let own = value.map_or_else(|| key.to_owned(), |value| format!("{key}_{value}"));
        let part = if is_part(value) { format!(":{{{}}}", parts.name_of(key)) } else { String::new() };
        Self { name: format!("{name}.{own}"), template: format!("{template}.{}{part}", escaped(&own)), parts }
    }
}

/// Returns a text as it is in a template.
fn escaped(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

//! The rules that a call can name, with the forms of their keys.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use limiter_syntax::{Piece, nearest, pieces};
use rate_limited::{Key, Limit, Limiter, Mode, RuleInForce};

use super::call::{Value, Values};
use super::problem::Problem;

/// The most suggestions in a second, and the most names that one is found among: together a small part of a processor.
const MAX_SUGGESTIONS: u32 = 20;
const MAX_COMPARED: usize = 1_000;

/// The rules of one state of the limiter.
#[derive(Debug)]
pub(crate) struct Catalog {
    generation: u64,
    rules: HashMap<Box<str>, CatalogRule>,
    /// The names that were suggested since an instant, at most a second ago.
    suggestions: Mutex<(Instant, u32)>,
}

/// A rule that a call can name.
#[derive(Debug)]
pub(crate) struct CatalogRule {
    name: Box<str>,
    /// `None` for a key that a caller cannot build: it is an expression of a program.
    template: Option<KeyForm>,
    /// The limits of keys without an override.
    limits: Vec<Limit>,
    plans: Vec<String>,
    mode: Mode,
    /// The number of its overrides.
    overrides: usize,
    is_postpaid: bool,
}

/// The form of a rule's keys: the text before the first part, and each part with the text after it.
#[derive(Debug, PartialEq, Eq)]
struct KeyForm {
    start: String,
    parts: Vec<FormPart>,
    /// The number of parts without those whose name an earlier one has.
    distinct: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct FormPart {
    name: Box<str>,
    /// The place of its value in order: that of the first part of this name.
    place: usize,
    text_after: String,
}

impl Catalog {
    /// Lists the rules of a limiter.
    pub(crate) fn read(limiter: &Limiter) -> Self {
        // Read first, so that a change meanwhile makes the list outdated.
        let generation = limiter.rules_generation();
        let rules = limiter.rules().into_iter().map(|rule| (rule.name().into(), CatalogRule::new(&rule))).collect();
        Self { generation, rules, suggestions: Mutex::new((Instant::now(), 0)) }
    }

    /// The number of the state of the rules.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the rule of this name.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn rule(&self, name: &str) -> Result<&CatalogRule, Problem> {
        self.find(name).ok_or_else(|| {
            let nearest = self.suggestion(name, Instant::now()).map(str::to_owned);
            Problem::UnknownRule { rule: name.to_owned(), nearest }
        })
    }

    /// Returns the rule of this name, if there is one.
    pub(crate) fn find(&self, name: &str) -> Option<&CatalogRule> {
        self.rules.get(name)
    }

    /// Returns the rule whose name is nearest to a wrong one. It compares with many names, so only a few calls a second get one.
    fn suggestion(&self, name: &str, now: Instant) -> Option<&str> {
        let mut suggestions = self.suggestions.lock().unwrap_or_else(PoisonError::into_inner);
        if now.duration_since(suggestions.0) >= Duration::from_secs(1) {
            *suggestions = (now, 0);
        }
        suggestions.1 += 1;
        if suggestions.1 > MAX_SUGGESTIONS {
            return None;
        }
        drop(suggestions);
        nearest(name, self.rules.keys().map(|known| &**known).take(MAX_COMPARED))
    }

    /// The rules by name.
    pub(crate) fn rules(&self) -> Vec<&CatalogRule> {
        let mut rules: Vec<_> = self.rules.values().collect();
        rules.sort_by(|one, other| one.name.cmp(&other.name));
        rules
    }
}

impl CatalogRule {
    fn new(rule: &RuleInForce) -> Self {
        Self {
            name: rule.name().into(),
            template: KeyForm::parse(rule.key().unwrap_or(rule.name())),
            limits: rule.limits().to_vec(),
            plans: rule.plans().to_vec(),
            mode: rule.mode(),
            overrides: rule.overrides(),
            is_postpaid: rule.postpaid() == Some(true),
        }
    }

    /// The rule's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The configured limits of keys without an override.
    pub(crate) fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The names of the parts of its keys, each once, in the order of the template. `None` for a key that a caller cannot build.
    pub(crate) fn parts(&self) -> Option<Vec<&str>> {
        Some(self.template.as_ref()?.distinct().map(|part| &*part.name).collect())
    }

    /// The number of [`parts`](Self::parts). `None` for a key that a caller cannot build.
    pub(crate) fn part_count(&self) -> Option<usize> {
        Some(self.template.as_ref()?.distinct)
    }

    /// The mode of keys without an override.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns whether some keys have settings of their own, by an override or a plan.
    pub(crate) fn has_exceptions(&self) -> bool {
        self.overrides > 0 || !self.plans.is_empty()
    }

    /// The plans for which it has settings.
    pub(crate) fn plans(&self) -> &[String] {
        &self.plans
    }

    /// Returns whether each of its keys has a limit, or needs none: the mode decides.
    pub(crate) fn is_bounded(&self) -> bool {
        !self.limits.is_empty() || matches!(self.mode, Mode::Off | Mode::Deny)
    }

    /// Returns whether its calls are charged afterwards, by a receipt.
    pub(crate) fn is_postpaid(&self) -> bool {
        self.is_postpaid
    }

    /// Builds the key of these values: that of an attribute with the rule's template.
    ///
    /// # Errors
    /// A value is missing, unknown or given twice, or the key is an expression.
    pub(crate) fn key(&self, values: &Values<'_>) -> Result<Key, Problem> {
        let rule = || self.name.to_string();
        let Some(form) = &self.template else { return Err(Problem::KeyIsExpression { rule: rule() }) };
        match values {
            Values::InOrder(values) => {
                let (given, needed) = (values.len(), form.distinct);
                if given != needed {
                    let parts = form.distinct().map(|part| part.name.to_string()).collect();
                    return Err(Problem::WrongNumberOfValues { rule: rule(), parts, given });
                }
                Ok(form.key(|part| &values[part.place]))
            }
            Values::Named(values) => {
                let value = |name: &str| values.iter().find(|(known, _)| known == name).map(|(_, value)| value);
                if let Some(part) = form.parts.iter().find(|part| value(&part.name).is_none()) {
                    return Err(Problem::MissingValue { rule: rule(), part: part.name.to_string() });
                }
                // Each part has a value. One more is unknown, or a second one.
                if values.len() != form.distinct {
                    let is_part = |name: &str| form.parts.iter().any(|part| &*part.name == name);
                    let unknown = values.iter().find(|(name, _)| !is_part(name));
                    let is_repeated = |(index, (name, _)): &(usize, &(_, _))| {
                        values[..*index].iter().any(|(earlier, _)| earlier == name)
                    };
                    let repeated = || values.iter().enumerate().find(is_repeated).map(|(_, pair)| pair);
                    let repeated = if unknown.is_none() { repeated() } else { None };
                    return Err(match (unknown, repeated) {
                        (None, Some((name, _))) => Problem::RepeatedValue { rule: rule(), part: name.to_string() },
                        (unknown, _) => {
                            let name = unknown.map(|(name, _)| name.to_string()).unwrap_or_default();
                            let nearest = nearest(&name, form.distinct().map(|part| &*part.name)).map(str::to_owned);
                            let parts = form.distinct().map(|part| part.name.to_string()).collect();
                            Problem::UnknownValue { rule: rule(), part: name, parts, nearest }
                        }
                    });
                }
                // The search above has found each.
                static NONE: Value<'static> = Value::Bool(false);
                Ok(form.key(|part| value(&part.name).unwrap_or(&NONE)))
            }
        }
    }
}

impl KeyForm {
    /// Parses a template whose parts are names. `None` for another one.
    fn parse(template: &str) -> Option<Self> {
        let mut form = Self { start: String::new(), parts: Vec::new(), distinct: 0 };
        for piece in pieces(template) {
            match piece.ok()? {
                Piece::Text(text) => match form.parts.last_mut() {
                    Some(part) => part.text_after = text,
                    None => form.start = text,
                },
                Piece::Value { spec: Some(_), .. } => return None,
                Piece::Value { expression, spec: None } if is_name(expression) => {
                    let earlier = form.parts.iter().find(|part| &*part.name == expression);
                    let place = earlier.map_or(form.distinct, |part| part.place);
                    form.distinct = form.distinct.max(place + 1);
                    form.parts.push(FormPart { name: expression.into(), place, text_after: String::new() });
                }
                Piece::Value { .. } => return None,
            }
        }
        Some(form)
    }

    /// The parts without those whose name an earlier one has.
    fn distinct(&self) -> impl Iterator<Item = &FormPart> {
        let mut next = 0;
        self.parts.iter().filter(move |part| {
            let is_first = part.place == next;
            next += usize::from(is_first);
            is_first
        })
    }

    fn key<'v>(&self, value: impl Fn(&FormPart) -> &'v Value<'v>) -> Key {
        let key = Key::new(&self.start);
        self.parts.iter().fold(key, |key, part| key.part(value(part)).text(&part.text_after))
    }
}

/// Returns whether an expression is a variable or a field, such as `user.id`.
fn is_name(expression: &str) -> bool {
    let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || c == '_');
    expression.split('.').all(|word| is_word(word.strip_prefix("r#").unwrap_or(word)))
}

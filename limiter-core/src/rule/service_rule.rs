//! The rules of services: layers of `tower` limit requests by them.

use crate::Limit;
use crate::rule::{KeyText, RuleId, RuleRef, UNCACHED};
use crate::sync::process::{ForChildren, PerProcess};
use crate::sync::{Mutex, lock};

/// The most rules of services in a process. They are kept until the process ends.
const MAX_SERVICE_RULES: usize = 10_000;

static REGISTERED: PerProcess<Registered> = PerProcess::new();

/// The rules of services so far.
struct Registered {
    rules: Mutex<Vec<RegisteredRule>>,
    for_children: ForChildren<Vec<RegisteredRule>>,
}

/// A rule of services, under its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisteredRule {
    pub(crate) name: &'static str,
    /// The limit of the layer, as text.
    pub(crate) limits: &'static [&'static str],
    pub(crate) limit: Option<Limit>,
    pub(crate) forms: &'static [KeyForm],
}

/// A form of the keys of a rule: the pieces that a request has.
#[derive(Debug)]
pub(crate) struct KeyForm {
    pub(crate) template: &'static str,
    position: u32,
    /// Each request that has its key has this form.
    is_only: bool,
}

/// A rule of services, for keys of one form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceRule<'a> {
    pub(crate) name: &'a str,
    /// `None` if there are too many rules.
    pub(crate) form: Option<&'static KeyForm>,
}

impl Registered {
    fn new(rules: Vec<RegisteredRule>) -> Self {
        Self { rules: Mutex::new(rules.clone()), for_children: ForChildren::new(rules) }
    }

    /// The rules of this process, and of its parents before they forked.
    fn here() -> &'static Self {
        REGISTERED.get(|parent| Self::new(parent.map_or_else(Vec::new, |parent| parent.for_children.get())))
    }

    fn register(&self, name: &str, templates: &[String], limit: Option<Limit>) -> Option<RegisteredRule> {
        let limits: Vec<String> = limit.iter().map(Limit::to_string).collect();
        let has_templates = |rule: &RegisteredRule| rule.forms.iter().map(|form| form.template).eq(templates);
        let is_same = |rule: &&RegisteredRule| rule.has(name, &limits) && (templates.is_empty() || has_templates(rule));
        let mut rules = lock(&self.rules);
        if let Some(rule) = rules.iter().find(is_same) {
            return Some(*rule);
        }
        // The last form is that of requests without their key.
        let form = |(index, template): (usize, &String)| KeyForm {
            template: leak(template),
            position: RuleId::new().position(1),
            is_only: index == 0 && templates.len() == 2,
        };
        let forms = || Vec::leak(templates.iter().enumerate().map(form).collect());
        // A layer is listed when it is made, and has templates when it is added to a service. It counts once.
        if let Some(rule) = rules.iter_mut().find(|rule| rule.is_listed_only(name, &limits)) {
            rule.forms = forms();
            let rule = *rule;
            self.for_children.set(&rules);
            return Some(rule);
        }
        if rules.len() == MAX_SERVICE_RULES {
            return None;
        }
        let limits = Vec::leak(limits.iter().map(|limit| leak(limit)).collect());
        let rule = RegisteredRule { name: leak(name), limits, limit, forms: forms() };
        rules.push(rule);
        self.for_children.set(&rules);
        Some(rule)
    }

    fn all(&self) -> Vec<RegisteredRule> {
        lock(&self.rules).clone()
    }
}

impl RegisteredRule {
    /// Returns the rule of a name, with a template for each form of its keys. Rules with equal arguments are one.
    /// Without templates it is listed, unless one with this name and limit is. `None` if there are too many rules.
    pub(crate) fn register(name: &str, templates: &[String], limit: Option<Limit>) -> Option<Self> {
        Registered::here().register(name, templates, limit)
    }

    /// Returns all rules of services in this process.
    pub(crate) fn all() -> Vec<Self> {
        Registered::here().all()
    }

    fn has(&self, name: &str, limits: &[String]) -> bool {
        self.name == name && self.limits.iter().eq(limits)
    }

    /// Returns whether the rule has this name and limit, and no templates yet.
    fn is_listed_only(&self, name: &str, limits: &[String]) -> bool {
        self.forms.is_empty() && self.has(name, limits)
    }
}

impl RuleRef for ServiceRule<'_> {
    fn position(&self) -> u32 {
        self.form.map_or(UNCACHED, |form| form.position)
    }

    fn name_and_key(&self) -> (&str, KeyText) {
        let key_text = |form: &KeyForm| match form.is_only {
            true => KeyText::Template(form.template),
            false => KeyText::Form(form.template),
        };
        (self.name, self.form.map_or(KeyText::Unknown, key_text))
    }
}

fn leak(text: &str) -> &'static str {
    Box::leak(text.into())
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_layer_counts_once_when_it_is_made_and_then_added() {
        let limit = Some("1/1m".parse().expect("a limit"));
        let registered = Registered::new(Vec::new());
        let register = |templates: &[String]| registered.register("counts once", templates, limit);
        let count = || registered.all().len();
        let templates = |template: &str| [template.to_owned()];
        assert_eq!(register(&[]).expect("there is room").forms.len(), 0);
        assert_eq!(register(&templates("a:{b}")).expect("there is room").forms[0].template, "a:{b}");
        assert_eq!(count(), 1);
        assert_eq!(register(&[]).expect("there is room").forms.len(), 1);
        assert_eq!(register(&templates("a:{b}")).expect("there is room").forms.len(), 1);
        assert_eq!(count(), 1);
        // A layer of the same name with another key is another one.
        assert_eq!(register(&templates("a:{c}")).expect("there is room").forms[0].template, "a:{c}");
        assert_eq!(count(), 2);
    }
}

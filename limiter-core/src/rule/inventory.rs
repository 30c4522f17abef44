//! The inventory of a limiter: its rules with their keys and limits, without overrides, whose keys may name customers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::error::NamedValue;
use crate::instances::{CounterFamily, InventoryRule, KeyShape};
use crate::rule::levels::RuleLevels;
use crate::rule::table::RuleState;
use crate::rule::{KeyText, Mode, RegisteredRule, RuleTable};
use crate::site::sites;
use crate::{Algorithm, Layout, Limit};

/// The rules of a limiter as lines of a text. It has nothing of the program's code.
pub(crate) struct RuleInventory {
    state: Arc<RuleState>,
    declared: BTreeSet<String>,
    switch: Option<Mode>,
}

/// The keys and limits of a rule in the program.
#[derive(Default)]
struct OfProgram {
    keys: BTreeSet<String>,
    limits: Vec<OwnLimit>,
    block: Option<&'static str>,
}

/// A limit in the source.
#[derive(Clone)]
enum OwnLimit {
    Known(Limit),
    /// One of expressions, as JSON.
    Expression(String),
}

impl RuleTable {
    /// Returns the inventory of these rules, whatever they become.
    pub(crate) fn inventory(&self) -> RuleInventory {
        let (state, declared) = self.state_and_declared();
        RuleInventory { state: Arc::clone(state), declared: declared.clone(), switch: self.switch() }
    }
}

impl RuleInventory {
    /// The rules of the functions and services of the program, and those that its builder declares.
    fn of_program(&self) -> BTreeMap<String, OfProgram> {
        let mut rules: BTreeMap<_, OfProgram> = BTreeMap::new();
        let mut add =
            |name: &str, keys: &mut dyn Iterator<Item = &str>, limits: &mut dyn Iterator<Item = OwnLimit>, block| {
                let rule = rules.entry(name.to_owned()).or_default();
                rule.keys.extend(keys.map(str::to_owned));
                if rule.limits.is_empty() {
                    rule.limits = limits.collect();
                }
                rule.block = rule.block.or(block);
            };
        for site in sites() {
            let (algorithm, burst) = site.algorithm_and_burst();
            add(
                site.rule(),
                &mut site.key().into_iter(),
                &mut site.limits().iter().map(|text| OwnLimit::of_site(text, algorithm, burst)),
                site.block(),
            );
        }
        for rule in RegisteredRule::all() {
            add(
                rule.name,
                &mut rule.forms.iter().map(|form| form.template),
                &mut rule.limit.into_iter().map(OwnLimit::Known),
                None,
            );
        }
        for name in &self.declared {
            add(name, &mut [].into_iter(), &mut [].into_iter(), None);
        }
        rules
    }
}

#[cfg(feature = "redis")]
impl crate::store::redis::InventorySource for RuleInventory {
    fn version(&self) -> (u64, usize) {
        let services = RegisteredRule::all().iter().map(|rule| 1 + rule.forms.len()).sum();
        (self.state.generation(), services)
    }

    fn rules(&self) -> Box<dyn Iterator<Item = InventoryRule>> {
        Box::new(self.rules())
    }
}

impl RuleInventory {
    /// Returns a line of JSON for each rule, and its counters.
    pub(crate) fn rules(&self) -> impl Iterator<Item = InventoryRule> + use<> {
        let (levels, mut of_program, switch) = (self.state.levels(), self.of_program(), self.switch);
        for name in levels.names() {
            let rule = of_program.entry(name.to_owned()).or_default();
            rule.keys.extend(levels.key_of(name).map(str::to_owned));
        }
        of_program.into_iter().map(move |(name, rule)| inventory_rule(&name, &rule, &levels, switch))
    }
}

/// The line of a rule, a JSON object, and its counters.
fn inventory_rule(name: &str, of_program: &OfProgram, levels: &RuleLevels, switch: Option<Mode>) -> InventoryRule {
    let resolved = levels.resolve(name, KeyText::Unknown, switch);
    let settings = resolved.settings();
    let own = of_program.limits.iter().find_map(|own| match own {
        OwnLimit::Known(limit) => Some(*limit),
        OwnLimit::Expression(_) => None,
    });
    // A layout that an algorithm does not support is an error of each call.
    let in_force = |limit: Limit, own: Option<Limit>| OwnLimit::Known(settings.apply(limit, own).unwrap_or(limit));
    let own_in_force = |own: &OwnLimit| match own {
        OwnLimit::Known(limit) => in_force(*limit, None),
        expression => expression.clone(),
    };
    let limits: Vec<_> = match settings.limits() {
        [] => of_program.limits.iter().map(own_in_force).collect(),
        limits => limits.iter().map(|limit| in_force(*limit, own)).collect(),
    };
    let counters = counters(name, of_program, &limits, levels.has_limits_for_some_calls(name));
    let limits: Vec<_> = limits.iter().map(OwnLimit::json).collect();
    let (mode, origin) = (settings.mode().as_str(), settings.limits_origin());
    let packed = settings.packed().map_or(String::new(), |buckets| format!(",\"packed\":{buckets}"));
    let block = settings.call.block.map(|block| block.to_string()).or(of_program.block.map(str::to_owned));
    let block = block.map_or(String::new(), |block| format!(",\"block\":{}", json(&block)));
    let line = format!(
        "{{\"rule\":{},\"keys\":{},\"limits\":[{}],\"mode\":{},\"origin\":{}{packed}{block}}}",
        json(name),
        json_list(of_program.keys.iter().map(String::as_str)),
        limits.join(","),
        json(mode),
        json(origin.as_str()),
    );
    InventoryRule { line, counters }
}

/// The counters of a rule: of each template by each limit. Those of some calls alone may be of any limit.
fn counters(name: &str, of_program: &OfProgram, limits: &[OwnLimit], has_others: bool) -> Vec<CounterFamily> {
    let mut kinds: Vec<_> = limits.iter().map(OwnLimit::known).collect();
    if kinds.is_empty() || has_others {
        kinds.push(None);
    }
    let mut shapes: Vec<_> = of_program.keys.iter().map(|template| KeyShape::of_template(template)).collect();
    if shapes.is_empty() {
        shapes.push(None);
    }
    let of_shape = |shape: Option<KeyShape>| kinds.iter().map(move |limit| CounterFamily::new(name, shape, *limit));
    shapes.into_iter().flat_map(of_shape).collect()
}

impl OwnLimit {
    /// The limit of an attribute with this algorithm. A burst of 0 is an expression.
    fn of_site(text: &str, algorithm: &str, burst: Option<u32>) -> Self {
        let algorithm = Algorithm::VALUES.iter().find(|known| known.name() == algorithm).copied().unwrap_or_default();
        let known = || {
            let limit: Limit = text.parse().ok()?;
            match burst {
                _ if limit.is_whole() => Some(limit),
                None => Some(limit.with_algorithm(algorithm)),
                Some(burst) => limit.with_algorithm(algorithm).with_burst(burst).ok(),
            }
        };
        let expression = || Self::Expression(format!("{{\"expression\":{}}}", json(text)));
        known().map_or_else(expression, Self::Known)
    }

    fn known(&self) -> Option<&Limit> {
        if let Self::Known(limit) = self { Some(limit) } else { None }
    }

    fn json(&self) -> String {
        match self {
            Self::Known(limit) => limit_json(limit),
            Self::Expression(json) => json.clone(),
        }
    }
}

/// A limit as JSON: its text, or an object if it does not count as the text alone would.
fn limit_json(limit: &Limit) -> String {
    let text = json(&limit.to_string());
    let is_zset = limit.layout() == Layout::Zset;
    if limit.is_whole() || (limit.algorithm() == Algorithm::SlidingWindow && !is_zset) {
        return text;
    }
    let burst = limit.own_burst().map_or(String::new(), |burst| format!(",\"burst\":{burst}"));
    let layout = if is_zset { ",\"layout\":\"zset\"" } else { "" };
    format!("{{\"limit\":{text},\"algorithm\":{}{burst}{layout}}}", json(limit.algorithm().name()))
}

/// Returns a text as JSON.
fn json(text: &str) -> String {
    let mut json = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => json.extend(['\\', letter]),
            letter if u32::from(letter) < 0x20 => json.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => json.push(letter),
        }
    }
    json.push('"');
    json
}

/// Returns texts as a list in JSON.
fn json_list<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", texts.map(json).collect::<Vec<_>>().join(","))
}

impl fmt::Debug for RuleInventory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleInventory").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    #[cfg(feature = "redis")]
    use crate::store::redis::InventorySource as _;
    use crate::{KeyMatch, Limiter, Rule};

    fn lines(limiter: &Limiter) -> Vec<String> {
        limiter.inside().rules.inventory().rules().map(|rule| rule.line).collect()
    }

    #[test]
    fn an_inventory_has_rules_keys_and_limits_and_no_override() {
        let customer = KeyMatch::parts([("user", "customer 42")]);
        let rule = Rule { key: Some("a\"b:{user}".into()), ..Rule::new() }.limit("5/10s".parse().expect("a limit"));
        let rule = rule.block("10m".parse().expect("a block"));
        let rule = rule.overriding(customer, Rule::new().limit("7/10s".parse().expect("a limit")));
        let limiter = Limiter::builder().url("memory:").rule("getId", rule).declare("other").build().expect("valid");
        let found = lines(&limiter);
        let expected = r#"{"rule":"getId","keys":["a\"b:{user}"],"limits":["5/10s"],"mode":"enforce","origin":"builder","block":"10m"}"#;
        assert!(found.iter().any(|line| line == expected), "{found:?}");
        assert!(found.iter().any(|line| line.starts_with(r#"{"rule":"other","keys":[]"#)), "{found:?}");
        assert!(!found.iter().any(|line| line.contains("customer") || line.contains("7/10s")), "{found:?}");
    }

    #[cfg(feature = "redis")]
    #[test]
    fn a_change_of_the_rules_changes_the_version() {
        use crate::{Origin, RuleSet};

        let limiter = Limiter::memory();
        let inventory = limiter.inside().rules.inventory();
        let before = (inventory.version(), lines(&limiter));
        let rules = RuleSet::new().rule("getId", Rule::new().limit("6/10s".parse().expect("a limit")));
        limiter.inside().set_rules(Origin::Runtime, rules).expect("valid");
        assert!(inventory.version().0 != before.0.0 && lines(&limiter) != before.1);
    }
}

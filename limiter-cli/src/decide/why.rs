//! `limiter why`: the state of a key under each rule that fits it.
//!
//! A limiter that lives has written the limits and the mode in force in it, whatever level they come from. They are the rules
//! of this command's limiter. Of the shared rules it takes the overrides and plans, and whole rules that no limiter has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rate_limited::{
    Block, Decision, Error, Key, Limit, LimitUsage, Limiter, Mode, Origin, Rule, RuleInForce, RuleSet, SharedRules,
    Source,
};
use serde_json::{Value, json};
use toml_edit::{DocumentMut, Item, value};

use super::answer::millis;
use super::target::{rules_alone, unlimited};
use super::use_of_limits::limit_json;
use crate::activity::{denials_json, denials_of_key, write_denials};
use crate::arguments::WhyArguments;
use crate::connection::Connection;
use crate::duration_text;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet::{Fleet, LiveLimits, fits, place};
use crate::key_argument::texts_and_parts;
use crate::output::{Output, Style, visible};
use crate::rules::stated_keys;
use crate::suggestion;

/// The state of the key under a rule.
struct KeyState {
    rule: String,
    limits: Vec<LimitUsage>,
    /// The limits of expressions in the source, which this command cannot read.
    unread: Vec<String>,
    mode: Mode,
    origin: String,
    decision: Decision,
    /// The limiters that have these limits, and all that have the rule.
    limiters: (usize, usize),
    /// The limits of the other limiters, as during a deploy.
    others: Vec<String>,
}

/// Shows for each rule that fits the key its limits in force, what is used of them, and when the next call is allowed.
/// Nothing is taken.
pub(crate) async fn why(arguments: &WhyArguments, connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    connection.require_shared("why")?;
    let key = arguments.key.read()?;
    if arguments.rule.is_none() && texts_and_parts(&key).is_none() {
        return Err(Failure::usage(
            "`--rule` must be written for a key with a digest, got none: its template cannot be found",
        ));
    }
    let reader = connection.limiter().await?;
    let fleet = Fleet::read(&reader).await?;
    let published = SharedRules::new(&reader).read().await?;
    let is_followed = fleet.instances().is_empty() || fleet.instances().iter().any(|one| one.rules_version.is_some());
    let toml = if is_followed { &*published.toml } else { "" };
    let names = names(&key, arguments, &fleet, toml)?;
    let rules: BTreeMap<_, _> =
        names.iter().filter_map(|name| Some((name.as_str(), of_limiters(&fleet, name)?))).collect();
    let shared = shared_beside(toml, &rules, &fleet, &key);
    let set = rules.iter().fold(RuleSet::new(), |set, (name, rule)| set.rule(*name, rule.clone()));
    let limiter = connection.builder().rules(set.clone()).expose_keys().connect().await?;
    let without_shared = Limiter::builder().rules(set).build()?;
    if let Err(error) = shared.and_then(|shared| limiter.set_rules(shared)) {
        output.warn(format_args!("version {} of the shared rules is left out: {error}", published.version));
    }
    let asked = Asked { key: &key, plan: arguments.plan.as_deref().unwrap_or_default(), fleet: &fleet };
    let in_force: BTreeMap<_, _> = limiter.rules().into_iter().map(|rule| (rule.name().to_owned(), rule)).collect();
    let mut states = Vec::new();
    for name in &names {
        states.push(asked.state(name, in_force.get(name), &limiter, &without_shared).await?);
    }
    // A peek of a direct call has the text of the key in Redis.
    let subject = limiter.peek(&key, &unlimited()).await?.key().map_or_else(|| key.encoded(), str::to_owned);
    let denials = denials_of_key(&limiter, &subject).await?;
    if denials.is_none() {
        output.warn("the last denials are unknown: permit `~rl-live:* +xrevrange`, with the prefix in place of `rl`");
    }
    let exit = if states.iter().any(|state| state.decision.is_denied()) { Exit::DENIED } else { Exit::SUCCESS };
    let versions = Versions { published: published.version, fleet: &fleet };
    let written = if output.is_json() {
        let rules = states.iter().map(KeyState::as_json).collect::<Vec<_>>();
        output.json(&json!({ "key": key.encoded(), "rules": rules, "last_denials": denials.as_deref().map(denials_json), "shared_rules": versions.as_json() }))
    } else {
        write(&key, &states, &versions, output).and_then(|()| write_denials(&denials.unwrap_or_default(), output))
    };
    Ok(output.settle(written, exit))
}

/// Returns the names of the rules that fit the key: those of limiters that live, and of the shared rules.
fn names(key: &Key, arguments: &WhyArguments, fleet: &Fleet, toml: &str) -> Result<Vec<String>, Failure> {
    let shared = stated_keys(toml);
    let known: BTreeSet<&str> = fleet.rules().map(|(name, _)| name).chain(shared.keys().map(String::as_str)).collect();
    if let Some(rule) = &arguments.rule {
        if known.contains(&**rule) {
            return Ok(vec![rule.clone()]);
        }
        let remedy = match suggestion::nearest(rule, known) {
            Some(name) => format!("write `{}`", visible(name)),
            None => "leave it out for each rule that fits the key".to_owned(),
        };
        return Err(Failure::usage(format!(
            "`--rule` must be a rule of a limiter that lives or of the shared rules, got `{}`: {remedy}",
            visible(rule)
        )));
    }
    let fits_key = |name: &&str| {
        let live = fleet.rule(name).into_iter().flat_map(|rule| &rule.keys).map(String::as_str);
        let stated = shared.get(*name).and_then(Option::as_deref);
        live.chain(stated).chain([*name]).any(|template| fits(template, key) == Some(true))
    };
    Ok(known.into_iter().filter(fits_key).map(str::to_owned).collect())
}

/// Returns the rule that most limiters have. A peek under a rule with a block sees that of the key, whatever its length.
fn of_limiters(fleet: &Fleet, name: &str) -> Option<Rule> {
    let live = fleet.rule(name)?;
    let (rule, (most, _)) = (live.in_most()?, live.by_limiters()?);
    let has_window = most.limits.iter().any(|limit| !limit.is_concurrent());
    let any = Block::new(Duration::from_millis(1)).ok().filter(|_| has_window);
    Some(any.map_or(rule.clone(), |any| rule.block(any)))
}

/// Returns the shared rules for a limiter that has these `rules` already, with what they have of the shared rules: their
/// overrides and plans alone.
fn shared_beside(toml: &str, rules: &BTreeMap<&str, Rule>, fleet: &Fleet, key: &Key) -> Result<RuleSet, Error> {
    let Ok(mut document) = toml.parse::<DocumentMut>() else { return rules_alone(toml) };
    let tables = document.get_mut("rules").and_then(Item::as_table_like_mut);
    for (name, table) in tables.into_iter().flat_map(|tables| tables.iter_mut()) {
        let (Some(table), true) = (table.as_table_like_mut(), rules.contains_key(name.get())) else { continue };
        for setting in ["limit", "limits", "algorithm", "burst", "layout", "mode", "block", "postpaid"] {
            table.remove(setting);
        }
        // Overrides match the parts of the key that the program states.
        let live = fleet.rule(name.get()).into_iter().flat_map(|live| &live.keys);
        let template = live.into_iter().find(|template| fits(template, key) == Some(true));
        if let (None, Some(template)) = (table.get("key"), template) {
            table.insert("key", value(template.as_str()));
        }
    }
    rules_alone(&document.to_string())
}

/// The question: a key, the customer's plan, and the limiters that live.
struct Asked<'a> {
    key: &'a Key,
    plan: &'a str,
    fleet: &'a Fleet,
}

impl Asked<'_> {
    /// Returns the state of the key under a rule.
    async fn state(
        &self,
        name: &str,
        found: Option<&RuleInForce>,
        limiter: &Limiter,
        without_shared: &Limiter,
    ) -> Result<KeyState, Failure> {
        let (named, default) = (limiter.named(name).plan(self.plan), unlimited());
        let decision = named.peek(self.key, &default).await?;
        let usage = named.usage_or(self.key, &default).await?;
        let limits: Vec<_> = usage.into_iter().filter(|usage| usage.limit() != default).collect();
        let with_shared = named.limits_for(self.key, &default)?;
        let variants = self.fleet.rule(name).and_then(|live| live.by_limiters());
        let is_same = with_shared == without_shared.named(name).limits_for(self.key, &default)?;
        let has_plans = found.is_some_and(|rule| !rule.plans().is_empty());
        let origin = match (&variants, found.map(RuleInForce::origin)) {
            (Some((most, _)), _) if is_same => most.origin.clone(),
            (None, Some(Origin::Runtime)) if found.is_some_and(|rule| rule.limits() == with_shared) => {
                "shared".to_owned()
            }
            _ if has_plans && self.plan.is_empty() => "an override or the smallest plan".to_owned(),
            _ if has_plans => "an override or the plan".to_owned(),
            _ => "an override".to_owned(),
        };
        let (most, others) = variants.map_or((None, Vec::new()), |(most, others)| (Some(most), others));
        let all = most.into_iter().chain(others.iter().copied()).map(|variant| variant.limiters).sum();
        Ok(KeyState {
            rule: name.to_owned(),
            limits,
            unread: most.filter(|_| is_same).map_or_else(Vec::new, |most| most.unread.clone()),
            mode: mode(&decision, found.map_or(Mode::Enforce, RuleInForce::mode)),
            origin,
            decision,
            limiters: (most.map_or(0, |most| most.limiters), all),
            others: others.into_iter().map(in_words).collect(),
        })
    }
}

/// Writes the limits of some limiters, such as `2/h in 3 limiters`.
fn in_words(variant: &LiveLimits) -> String {
    let limits = variant.limits.iter().map(Limit::to_string).chain(variant.unread.iter().cloned());
    let mode = if variant.mode == Mode::Enforce { String::new() } else { format!(", {}", variant.mode.as_str()) };
    let limits = visible(&limits.collect::<Vec<_>>().join(" and "));
    format!("{}{mode} in {}", if limits.is_empty() { "no limit" } else { &limits }, variant.limiters)
}

/// The mode of the key, which an override may have.
fn mode(decision: &Decision, of_rule: Mode) -> Mode {
    match decision {
        Decision::Denied(denied) if denied.source() == Source::Mode => Mode::Deny,
        Decision::Denied(_) => Mode::Enforce,
        Decision::Allowed(allowed) if allowed.source() == Source::Mode => Mode::Off,
        Decision::Allowed(allowed) if !allowed.is_enforced() => Mode::Shadow,
        Decision::Allowed(_) if of_rule == Mode::Shadow => Mode::Shadow,
        Decision::Allowed(_) => Mode::Enforce,
    }
}

impl KeyState {
    /// The time until the next call is allowed, `None` for never, and whether the key is blocked. `None` while one is
    /// allowed.
    fn denied_for(&self) -> Option<(Option<Duration>, bool)> {
        match &self.decision {
            Decision::Denied(denied) if denied.is_final() || self.mode == Mode::Deny => Some((None, false)),
            Decision::Denied(denied) => Some((Some(denied.retry_after()), denied.is_blocked())),
            Decision::Allowed(_) => None,
        }
    }

    fn next(&self) -> String {
        match self.denied_for() {
            None if self.unread.is_empty() => "now".to_owned(),
            None => "?".to_owned(),
            Some((None, _)) => "never".to_owned(),
            Some((Some(after), is_blocked)) => {
                let blocked = if is_blocked { ", blocked" } else { "" };
                format!("in {}{blocked}", duration_text::write(after))
            }
        }
    }

    fn as_json(&self) -> Value {
        let denied = self.denied_for();
        json!({
            "rule": self.rule,
            "limits": self.limits.iter().map(limit_json).collect::<Vec<_>>(),
            "unread_limits": self.unread,
            "mode": self.mode.as_str(),
            "origin": self.origin,
            "allowed": denied.is_none(),
            "blocked": denied.is_some_and(|(_, is_blocked)| is_blocked),
            "retry_after_ms": match denied {
                None => json!(0),
                Some((after, _)) => json!(after.map(millis)),
            },
            "limiters": self.limiters.0,
            "other_limits": self.others,
        })
    }
}

fn write(key: &Key, states: &[KeyState], versions: &Versions<'_>, output: &Output) -> Result<(), Failure> {
    output.line(key.encoded())?;
    if states.is_empty() {
        output.line("no rule of a limiter that lives, and none of the shared rules, fits this key")?;
        return versions.write(output);
    }
    let mut table = output.table(&["RULE", "LIMIT", "FROM", "MODE", "USED", "LEFT", "NEXT CALL", "LIMITERS"]);
    for state in states {
        let limiters = match state.limiters {
            (some, all) if some == all => all.to_string(),
            (some, all) => format!("{some} of {all}"),
        };
        let row = |limit: String, used: String, left: String| {
            let [rule, from] = [&state.rule, &state.origin].map(|text| visible(text));
            [rule, limit, from, state.mode.as_str().to_owned(), used, left, state.next(), limiters.clone()]
        };
        for usage in &state.limits {
            let left = match usage.overdrawn() {
                0 => usage.remaining().to_string(),
                beyond => format!("{beyond} beyond"),
            };
            table.add_row(row(usage.limit().to_string(), usage.used().to_string(), left));
        }
        for unread in &state.unread {
            table.add_row(row(visible(unread), "?".to_owned(), "?".to_owned()));
        }
        if state.limits.is_empty() && state.unread.is_empty() {
            table.add_row(row("-".to_owned(), "-".to_owned(), "-".to_owned()));
        }
    }
    output.print(table)?;
    for state in states.iter().filter(|state| !state.others.is_empty()) {
        output.line(format_args!("`{}` is other in: {}", visible(&state.rule), state.others.join("; ")))?;
    }
    versions.write(output)?;
    // The one that denies for the longest time.
    let wait = |state: &&KeyState| state.denied_for().map(|(after, _)| after.unwrap_or(Duration::MAX));
    match states.iter().filter(|state| state.decision.is_denied()).max_by_key(wait) {
        Some(denying) => output.line(output.paint(
            Style::Yellow,
            format_args!("denied by `{}`: next call {}", visible(&denying.rule), denying.next()),
        )),
        None if states.iter().any(|state| !state.unread.is_empty()) => {
            output.line("each limit that is known allows the next call")
        }
        None => output.line(output.paint(Style::Green, "each of them allows the next call")),
    }
}

/// The version of the shared rules in each limiter.
struct Versions<'f> {
    published: u64,
    fleet: &'f Fleet,
}

impl Versions<'_> {
    /// The limiters of each version that they follow. `None` for those that follow none.
    fn groups(&self) -> BTreeMap<Option<u64>, Vec<String>> {
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for instance in self.fleet.instances() {
            groups.entry(instance.rules_version).or_default().push(place(instance));
        }
        groups
    }

    fn write(&self, output: &Output) -> Result<(), Failure> {
        let groups = self.groups();
        if groups.is_empty() {
            output.note("no limiter lives, so only the shared rules are known");
            return Ok(());
        }
        let text = |(version, limiters): (&Option<u64>, &Vec<String>)| {
            let version = version.map_or("none".to_owned(), |version| version.to_string());
            // The usual version need not be listed limiter by limiter.
            let places = match limiters.len() {
                1..=3 => format!(" ({})", limiters.join(", ")),
                _ => String::new(),
            };
            format!("{version} in {}{places}", limiters.len())
        };
        let texts = groups.iter().map(text).collect::<Vec<_>>().join("; ");
        output.line(format_args!("shared rules: version {} is published; limiters follow {texts}", self.published))
    }

    fn as_json(&self) -> Value {
        let group = |(version, limiters): (&Option<u64>, &Vec<String>)| json!({ "version": version, "limiters": limiters.len(), "places": limiters });
        json!({ "published": self.published, "followed": self.groups().iter().map(group).collect::<Vec<_>>() })
    }
}

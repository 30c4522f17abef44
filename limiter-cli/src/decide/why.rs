//! `limiter why`: the state of a key under each rule that fits it.

use std::collections::BTreeMap;
use std::time::Duration;

use rate_limited::{Decision, Key, Limit, LimitUsage, Limiter, Mode, Origin, Rule, SharedRules, Source};
use serde_json::{Value, json};

use super::answer::millis;
use super::target::{rules_alone, unlimited};
use super::use_of_limits::limit_json;
use crate::arguments::WhyArguments;
use crate::connection::Connection;
use crate::duration_text;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet::{Fleet, LiveRule, fits, place};
use crate::output::{Output, Style, visible};

/// The state of the key under a rule.
struct KeyState {
    rule: String,
    limits: Vec<LimitUsage>,
    /// The limits of the source that this command cannot read.
    unread: Vec<String>,
    mode: Mode,
    origin: String,
    decision: Decision,
    limiters: usize,
}

/// Shows for each rule that fits the key its limits in force, what is used of them, and when the next call is allowed.
/// Nothing is taken.
pub(crate) async fn why(arguments: &WhyArguments, connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    connection.require_shared("why")?;
    let key = arguments.key.read()?;
    let reader = connection.limiter().await?;
    let fleet = Fleet::read(&reader).await?;
    let published = SharedRules::new(&reader).read().await?;
    let shared = rules_alone(&published.toml).map_err(|error| {
        Failure::usage(format!("version {} of the shared rules cannot be read: {error}", published.version))
    })?;
    // The limits of the programs are the levels below the shared rules.
    let mut builder = connection.builder();
    for (name, rule) in fleet.rules() {
        let limits = in_most(rule).map_or(&[][..], |variant| &variant.limits);
        // Limits of one window are one counter; a rule may have each once.
        if !limits.is_empty() {
            builder = builder.rule(name, limits.iter().fold(Rule::new(), |rule, limit| rule.limit(*limit)));
        }
    }
    let limiter = builder.connect().await?;
    limiter.set_rules(shared)?;
    let names = names(&key, arguments, &fleet, &limiter, &published.toml)?;
    let mut answers = Vec::new();
    for name in names {
        answers.push(answer(&name, &key, arguments, &fleet, &limiter).await?);
    }
    let is_denied = answers.iter().any(|answer| answer.decision.is_denied());
    let exit = if is_denied { Exit::DENIED } else { Exit::SUCCESS };
    let versions = Versions { published: published.version, fleet: &fleet };
    let written = if output.is_json() {
        let rules = answers.iter().map(KeyState::as_json).collect::<Vec<_>>();
        output.json(&json!({ "key": key.encoded(), "rules": rules, "shared_rules": versions.as_json() }))
    } else {
        write(&key, &answers, &versions, output)
    };
    Ok(output.settle(written, exit))
}

/// The limits that most limiters have.
fn in_most(rule: &LiveRule) -> Option<&crate::fleet::LiveLimits> {
    rule.variants.iter().max_by_key(|variant| variant.limiters)
}

/// Returns the names of the rules that fit the key: those of limiters that live, and of the shared rules.
fn names(
    key: &Key,
    arguments: &WhyArguments,
    fleet: &Fleet,
    limiter: &Limiter,
    toml: &str,
) -> Result<Vec<String>, Failure> {
    let in_force = limiter.rules();
    let known = || fleet.rules().map(|(name, _)| name).chain(in_force.iter().map(|rule| rule.name()));
    if let Some(rule) = &arguments.rule {
        if known().any(|name| name == rule) {
            return Ok(vec![rule.clone()]);
        }
        let remedy = match crate::suggestion::nearest(rule, known()) {
            Some(name) => format!("write `{}`", visible(name)),
            None => "leave it out for each rule that fits the key".to_owned(),
        };
        return Err(Failure::usage(format!(
            "`--rule` must be a rule of a limiter that lives or of the shared rules, got `{}`: {remedy}",
            visible(rule)
        )));
    }
    let stated = crate::rules::stated_keys(toml);
    let mut names: Vec<String> = known()
        .filter(|name| {
            let live = fleet.rule(name).into_iter().flat_map(|rule| &rule.keys).map(String::as_str);
            let mut templates = live.chain(stated.get(*name).map(String::as_str)).chain([*name]);
            templates.any(|template| fits(template, key) == Some(true))
        })
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}

async fn answer(
    name: &str,
    key: &Key,
    arguments: &WhyArguments,
    fleet: &Fleet,
    limiter: &Limiter,
) -> Result<KeyState, Failure> {
    let plan = arguments.plan.as_deref().unwrap_or_default();
    let (named, default) = (limiter.named(name).plan(plan), unlimited());
    let live = fleet.rule(name);
    let in_force = limiter.rules();
    let found = in_force.iter().find(|rule| rule.name() == name);
    let decision = named.peek(key, &default).await?;
    let is_known = |limit: &LimitUsage| limit.limit() != default;
    let limits: Vec<_> = named.usage_or(key, &default).await?.into_iter().filter(is_known).collect();
    let of_rule = found.map_or(&[][..], |rule| rule.limits());
    let has_own: Vec<Limit> = limits.iter().map(LimitUsage::limit).collect();
    let is_other = !limits.is_empty() && has_own != of_rule;
    let origin = match (is_other, found.map(|rule| rule.origin())) {
        (true, _) if !plan.is_empty() => "an override or the plan".to_owned(),
        (true, _) => "an override".to_owned(),
        (false, Some(Origin::Runtime)) => "the shared rules".to_owned(),
        _ => live.and_then(in_most).map_or_else(|| "-".to_owned(), |variant| variant.origin.clone()),
    };
    let mode = mode(&decision, found.map_or(Mode::Enforce, |rule| rule.mode()));
    let unread = match limits.is_empty() {
        true => live.into_iter().flat_map(|rule| &rule.variants).flat_map(|variant| variant.unread.clone()).collect(),
        false => Vec::new(),
    };
    let limiters = live.map_or(0, |rule| rule.variants.iter().map(|variant| variant.limiters).sum());
    Ok(KeyState { rule: name.to_owned(), limits, unread, mode, origin, decision, limiters })
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
    /// The time until the next call is allowed, and whether the key is blocked. `None` while one is.
    fn denied_for(&self) -> Option<(Duration, bool)> {
        match &self.decision {
            Decision::Denied(denied) => Some((denied.retry_after(), denied.is_blocked())),
            Decision::Allowed(_) => None,
        }
    }

    fn next(&self) -> String {
        match self.denied_for() {
            None => "now".to_owned(),
            Some((_, false)) if self.mode == Mode::Deny => "never".to_owned(),
            Some((after, is_blocked)) => {
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
            "retry_after_ms": denied.map(|(after, _)| millis(after)),
            "limiters": self.limiters,
        })
    }
}

fn write(key: &Key, answers: &[KeyState], versions: &Versions<'_>, output: &Output) -> Result<(), Failure> {
    output.line(key.encoded())?;
    if answers.is_empty() {
        output.line("no rule of a limiter that lives, and none of the shared rules, fits this key")?;
        return versions.write(output);
    }
    let mut table = output.table(&["RULE", "LIMIT", "FROM", "MODE", "USED", "LEFT", "NEXT CALL", "LIMITERS"]);
    for answer in answers {
        let limiters = answer.limiters.to_string();
        let row = |limit: String, used: String, left: String| {
            let [rule, from] = [&answer.rule, &answer.origin].map(|text| visible(text));
            [rule, limit, from, answer.mode.as_str().to_owned(), used, left, answer.next(), limiters.clone()]
        };
        for unread in &answer.unread {
            table.add_row(row(visible(unread), "?".to_owned(), "?".to_owned()));
        }
        for usage in &answer.limits {
            let left = match usage.overdrawn() {
                0 => usage.remaining().to_string(),
                beyond => format!("{beyond} beyond"),
            };
            table.add_row(row(usage.limit().to_string(), usage.used().to_string(), left));
        }
        if answer.limits.is_empty() && answer.unread.is_empty() {
            table.add_row(row("-".to_owned(), "-".to_owned(), "-".to_owned()));
        }
    }
    output.print(table)?;
    versions.write(output)?;
    match answers.iter().find(|answer| answer.denied_for().is_some()) {
        Some(denying) => output.line(output.paint(
            Style::Yellow,
            format_args!("denied by `{}`: next call {}", visible(&denying.rule), denying.next()),
        )),
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

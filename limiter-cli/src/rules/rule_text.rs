//! The text of the shared rules as a document: its comments and its order stay.

use limiter_inspect::OVERRIDE;
use toml_edit::{DocumentMut, Item, Table, TableLike};

use crate::failure::Failure;
use crate::output::visible;
use crate::suggestion;

/// A text of rules that parses.
#[derive(Clone, Debug)]
pub(super) struct RuleText {
    document: DocumentMut,
    has_crlf: bool,
}

/// The table of the rules at the top.
const RULES: &str = "rules";

/// The table of the plans at the top, and their names in a rule.
pub(super) const PLANS: &str = "plans";

impl RuleText {
    /// Reads a text, which the library accepts.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let document = text.parse();
        let document = document.map_err(|error: toml_edit::TomlError| {
            Failure::usage(format!("the text must be TOML, got a mistake in it: {}", error.message()))
        })?;
        let has_crlf = text.contains("\r\n") && text.matches('\n').count() == text.matches("\r\n").count();
        Ok(Self { document, has_crlf })
    }

    /// Returns the text without rules.
    pub(super) fn empty() -> Self {
        Self { document: DocumentMut::new(), has_crlf: false }
    }

    /// Returns the text, with the ends of lines that it had.
    pub(super) fn write(&self) -> String {
        let text = self.document.to_string();
        if self.has_crlf { text.replace('\n', "\r\n") } else { text }
    }

    /// The text as a document.
    pub(super) fn document(&self) -> &DocumentMut {
        &self.document
    }

    /// Returns the names of the rules and their settings, in the order of the text.
    pub(super) fn rules(&self) -> Vec<(&str, &dyn TableLike)> {
        self.tables(RULES)
    }

    /// Returns the names of the plans and their settings, in the order of the text.
    pub(super) fn plans(&self) -> Vec<(&str, &dyn TableLike)> {
        self.tables(PLANS)
    }

    fn tables(&self, name: &str) -> Vec<(&str, &dyn TableLike)> {
        let tables = self.document.get(name).and_then(Item::as_table_like);
        let tables = tables.into_iter().flat_map(TableLike::iter);
        tables.filter_map(|(name, table)| Some((name, table.as_table_like()?))).collect()
    }

    /// Returns the settings of a rule.
    pub(super) fn rule(&self, name: &str) -> Option<&dyn TableLike> {
        self.document.get(RULES)?.as_table_like()?.get(name)?.as_table_like()
    }

    /// Returns the settings of a rule.
    ///
    /// # Errors
    /// A wrong usage, with a suggestion, for a rule that the text lacks.
    pub(super) fn expect_rule(&self, name: &str) -> Result<&dyn TableLike, Failure> {
        self.rule(name).ok_or_else(|| {
            let remedy = match self.similar_rule(name) {
                Some(name) => format!("write `{name}`"),
                None if self.rules().is_empty() => "there are none".to_owned(),
                None => "`limiter rules list` shows them".to_owned(),
            };
            Failure::usage(format!("`RULE` must be one of the shared rules, got `{}`: {remedy}", visible(name)))
        })
    }

    /// Returns the rule that a misspelt name probably means.
    pub(super) fn similar_rule(&self, name: &str) -> Option<&str> {
        suggestion::nearest(name, self.rules().into_iter().map(|(name, _)| name))
    }

    /// Returns the settings of a rule for a change, and adds the rule if the text lacks it.
    pub(super) fn rule_mut(&mut self, name: &str) -> Result<&mut dyn TableLike, Failure> {
        let is_new = self.rule(name).is_none();
        let mut positions = Vec::new();
        collect_positions(self.document.as_table(), &mut positions);
        let end = positions.into_iter().max().unwrap_or(0) + 1;
        let is_empty = self.document.is_empty();
        let comments = self.document.trailing().as_str().unwrap_or_default().to_owned();
        let rules = self.document.entry(RULES).or_insert_with(|| {
            let mut rules = Table::new();
            rules.set_implicit(true);
            Item::Table(rules)
        });
        let is_table = rules.is_table();
        let rules = rules.as_table_like_mut().ok_or_else(not_a_table)?;
        if is_new && is_table {
            // Below all others, and below the comments at the end.
            let mut rule = Table::new();
            rule.set_position(Some(end));
            let separator = if is_empty && comments.is_empty() { "" } else { "\n" };
            rule.decor_mut().set_prefix(format!("{comments}{separator}"));
            rules.insert(name, Item::Table(rule));
            self.document.set_trailing("");
        } else if is_new {
            rules.insert(name, toml_edit::value(toml_edit::InlineTable::new()));
        }
        let rules = self.document.get_mut(RULES).and_then(Item::as_table_like_mut).ok_or_else(not_a_table)?;
        rules.get_mut(name).and_then(Item::as_table_like_mut).ok_or_else(not_a_table)
    }

    /// Leaves the header of a table out that has nothing but overrides.
    pub(super) fn hide_empty(&mut self, name: &str) {
        let rule = self.document.get_mut(RULES).and_then(|rules| rules.get_mut(name)).and_then(Item::as_table_mut);
        let Some(rule) = rule.filter(|rule| rule.iter().all(|(_, item)| item.is_array_of_tables())) else { return };
        rule.set_implicit(true);
        let prefix = rule.decor().prefix().cloned().unwrap_or_default();
        let overrides = rule.get_mut(OVERRIDE).and_then(Item::as_array_of_tables_mut);
        if let Some(first) = overrides.and_then(|overrides| overrides.get_mut(0)) {
            first.decor_mut().set_prefix(prefix);
        }
    }

    /// Removes a rule with its overrides. A comment above it that an empty line sets apart stays.
    pub(super) fn remove_rule(&mut self, name: &str) {
        let Some(rules) = self.document.get_mut(RULES).and_then(Item::as_table_like_mut) else { return };
        let Some(removed) = rules.remove(name) else { return };
        let Some(table) = removed.as_table().filter(|table| !table.is_implicit() && !table.is_dotted()) else { return };
        let prefix = table.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
        let Some(apart) = prefix.rfind("\n\n").map(|at| &prefix[..at + 1]).filter(|text| text.contains('#')) else {
            return;
        };
        let position = table.position().unwrap_or(isize::MAX);
        match next_table(self.document.as_table_mut(), position) {
            Some(next) => {
                let own = next.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
                let separator = if own.starts_with('\n') { "" } else { "\n" };
                let joined = format!("{apart}{separator}{own}");
                next.decor_mut().set_prefix(joined);
            }
            None => {
                let own = self.document.trailing().as_str().unwrap_or_default();
                let joined = format!("{apart}{own}");
                self.document.set_trailing(joined);
            }
        }
    }

    /// Returns the text of one rule: its table, with comments, and its overrides.
    pub(super) fn excerpt(&self, name: &str) -> String {
        let mut excerpt = DocumentMut::new();
        let rule = self.document.get(RULES).and_then(|rules| rules.get(name)).cloned();
        let mut rules = Table::new();
        rules.set_implicit(true);
        rules.insert(name, rule.unwrap_or_default());
        excerpt.insert(RULES, Item::Table(rules));
        format!("{}\n", excerpt.to_string().trim())
    }
}

/// Returns the first table of the text below a position.
fn next_table(table: &mut Table, position: isize) -> Option<&mut Table> {
    fn find(table: &mut Table, position: isize) -> Option<&mut Table> {
        if table.position() == Some(position) && !table.is_implicit() && !table.is_dotted() {
            return Some(table);
        }
        table.iter_mut().find_map(|(_, item)| match item {
            Item::Table(table) => find(table, position),
            Item::ArrayOfTables(tables) => tables.iter_mut().find_map(|table| find(table, position)),
            _ => None,
        })
    }
    let mut all = Vec::new();
    collect_positions(table, &mut all);
    let next = all.into_iter().filter(|other| *other > position).min()?;
    find(table, next)
}

/// Collects the positions of the tables below a table that have a header.
fn collect_positions(table: &Table, found: &mut Vec<isize>) {
    let mut collect = |table: &Table| {
        found.extend(table.position().filter(|_| !table.is_implicit() && !table.is_dotted()));
        collect_positions(table, found);
    };
    for (_, item) in table {
        match item {
            Item::Table(table) => collect(table),
            Item::ArrayOfTables(tables) => tables.iter().for_each(&mut collect),
            _ => {}
        }
    }
}

fn not_a_table() -> Failure {
    Failure::usage("the rules of the text must be tables, got another value: correct it with `limiter rules edit`")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Quotas of the shop.\n# Owner: payments.\n\n# The ids.\n[rules.getId]\nlimit = \"5/10s\" # agreed\n\n\
        [rules.search]\nlimit = \"10/s\"\n";

    #[test]
    fn a_rule_is_added_below_the_others() {
        let mut text = RuleText::parse(TEXT).expect("valid");
        text.rule_mut("user:{user_id}").expect("a table").insert("limit", toml_edit::value("1/s"));
        assert_eq!(text.write(), format!("{TEXT}\n[rules.\"user:{{user_id}}\"]\nlimit = \"1/s\"\n"));
        let mut text = RuleText::parse("").expect("valid");
        text.rule_mut("a").expect("a table").insert("limit", toml_edit::value("1/s"));
        assert_eq!(text.write(), "[rules.a]\nlimit = \"1/s\"\n");
        let mut text = RuleText::parse("rules = { a = { limit = \"1/s\" } }\n").expect("valid");
        text.rule_mut("b").expect("a table").insert("limit", toml_edit::value("2/s"));
        assert_eq!(text.write(), "rules = { a = { limit = \"1/s\" } , b = { limit = \"2/s\" } }\n");
    }

    #[test]
    fn a_new_rule_is_below_the_comments_at_the_end() {
        let add = |text: &str| {
            let mut text = RuleText::parse(text).expect("valid");
            text.rule_mut("b").expect("a table").insert("mode", toml_edit::value("off"));
            text.write()
        };
        assert_eq!(add("# Quotas.\n"), "# Quotas.\n\n[rules.b]\nmode = \"off\"\n");
        let text = "[rules.a]\nlimit = \"1/s\"\n\n[defaults]\nmode = \"shadow\"\n# More to come.\n";
        assert_eq!(add(text), format!("{text}\n[rules.b]\nmode = \"off\"\n"));
        let windows = text.replace('\n', "\r\n");
        assert_eq!(add(&windows), format!("{windows}\r\n[rules.b]\r\nmode = \"off\"\r\n"));
    }

    #[test]
    fn a_removed_rule_leaves_the_comments_that_are_not_its_own() {
        let mut text = RuleText::parse(TEXT).expect("valid");
        text.remove_rule("getId");
        assert_eq!(text.write(), "# Quotas of the shop.\n# Owner: payments.\n\n[rules.search]\nlimit = \"10/s\"\n");
        text.remove_rule("search");
        assert_eq!(text.write(), "# Quotas of the shop.\n# Owner: payments.\n");
    }

    #[test]
    fn an_excerpt_has_one_rule_with_its_comments() {
        let text = RuleText::parse(TEXT).expect("valid");
        let excerpt =
            "# Quotas of the shop.\n# Owner: payments.\n\n# The ids.\n[rules.getId]\nlimit = \"5/10s\" # agreed\n";
        assert_eq!(text.excerpt("getId"), excerpt);
        assert_eq!(text.excerpt("search"), "[rules.search]\nlimit = \"10/s\"\n");
    }
}

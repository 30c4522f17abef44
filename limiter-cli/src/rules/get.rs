//! `limiter rules get`.

use rate_limited::Published;

use super::list::rule_json;
use super::rule_text::RuleText;
use crate::arguments::NameArguments;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

/// Writes one rule: its part of the text, or its settings as JSON.
pub(super) fn run(arguments: &NameArguments, published: &Published, output: &Output) -> Result<Exit, Failure> {
    let text = RuleText::parse(&published.toml)?;
    let rule = text.expect_rule(&arguments.rule)?;
    if output.is_json() {
        output.json(&rule_json(&arguments.rule, rule))?;
    } else {
        output.text(&text.excerpt(&arguments.rule))?;
    }
    Ok(Exit::SUCCESS)
}

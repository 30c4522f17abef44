//! `limiter rules lint`.

use serde_json::json;

use super::rule_text::RuleText;
use super::{idle_overrides, validity};
use crate::arguments::FileArguments;
use crate::bounded_input::{self, MAX_FILE_BYTES};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use limiter_inspect::overrides;

/// Checks a file of rules without a store.
pub(super) fn run(arguments: &FileArguments, output: &Output) -> Result<Exit, Failure> {
    let name = bounded_input::name(&arguments.file);
    let text = bounded_input::read_text(&arguments.file, MAX_FILE_BYTES)?;
    validity::check_file(&text).map_err(|failure| Failure::usage(format!("{name}: {failure}")))?;
    if let Err(failure) = validity::check(&text) {
        output.warn(format_args!("{name}: as shared rules it is rejected: {failure}"));
    }
    let parsed = RuleText::parse(&text)?;
    let rules = parsed.rules();
    for (rule, settings) in &rules {
        let all = [*settings].into_iter().chain(overrides(*settings));
        for settings in all {
            let warnings = [validity::warning(rule, settings), validity::postpaid_warning(rule, settings)];
            for warning in warnings.into_iter().flatten() {
                output.warn(format_args!("{name}: {warning}"));
            }
        }
    }
    for warning in idle_overrides::warnings(&text) {
        output.warn(format_args!("{name}: {warning}"));
    }
    let of_keys: usize = rules.iter().map(|(_, rule)| overrides(*rule).len()).sum();
    if output.is_json() {
        output.json(&json!({ "file": name, "rules": rules.len(), "overrides": of_keys }))?;
    } else {
        let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        output.line(format_args!(
            "{name}: correct, {}, {}",
            plural(rules.len(), "rule"),
            plural(of_keys, "override")
        ))?;
    }
    Ok(Exit::SUCCESS)
}

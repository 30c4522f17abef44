//! Checks of a text before it is published.

use limiter_inspect::{FILE_SETTINGS, check_text, shared_count};
use rate_limited::{Error, Limiter, RuleSet};
use toml_edit::{DocumentMut, TableLike};

use crate::failure::Failure;
use crate::output::visible;

/// Checks a text of shared rules.
///
/// # Errors
/// A wrong usage with line and column.
pub(super) fn check(text: &str) -> Result<(), Failure> {
    check_text(text).map_err(Failure::Usage)
}

/// Checks a text of shared rules that a file or an editor has.
///
/// # Errors
/// As for [`check`], and for an empty text: its writer may have failed.
pub(super) fn check_written(text: &str) -> Result<(), Failure> {
    require_text(text)?;
    check(text)
}

fn require_text(text: &str) -> Result<(), Failure> {
    if text.trim().is_empty() {
        return Err(Failure::usage("the text must have rules, got an empty one: write `#` to have none"));
    }
    Ok(())
}

/// Checks a text of rules, which may be the file of one program.
///
/// # Errors
/// As for [`check_written`], without the bound of shared rules and without their settings that must be left out.
pub(super) fn check_file(text: &str) -> Result<(), Failure> {
    require_text(text)?;
    let usage = |error: Error| Failure::Usage(error.to_string());
    let mut rules: RuleSet = text.parse().map_err(usage)?;
    if let Ok(mut document) = text.parse::<DocumentMut>() {
        for setting in FILE_SETTINGS {
            document.remove(setting);
        }
        // The lines of the rules, which have no mistake of their own, may differ from here on.
        rules = document.to_string().parse().map_err(usage)?;
    }
    Limiter::memory().set_rules(rules).map_err(usage)
}

/// Returns the warning about a rule or an override of it whose limits are probably not those that were meant.
pub(super) fn warning(name: &str, settings: &dyn TableLike) -> Option<String> {
    let (first, second) = shared_count(settings)?;
    let why = match first.is_concurrent() {
        true => "which count the same calls: write the smaller one alone",
        false => "which have one window and so one count: write the smaller one alone, or another window",
    };
    Some(format!("`{}` has `{first}` and `{second}`, {why}", visible(name)))
}

/// Returns the warning about a rule or an override of it whose calls are charged afterwards.
pub(super) fn postpaid_warning(name: &str, settings: &dyn TableLike) -> Option<String> {
    settings.get("postpaid")?.as_bool().filter(|postpaid| *postpaid)?;
    Some(format!(
        "`{}` has `postpaid`, which does not bound what starts at once: take an estimate by `cost` where a budget must \
         hold, or bound the calls that run at once",
        visible(name)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::rule_text::RuleText;

    #[test]
    fn settings_of_a_file_are_errors_in_shared_rules() {
        let message = |text: &str| check(text).expect_err(text).to_string();
        let strict = "line 2, column 2: `strict` must be left out of shared rules, got it: set it for each program, in \
                      its own file of rules or its builder";
        assert_eq!(message("\n strict = true\n"), strict);
        assert!(message("shared = true\n").starts_with("line 1, column 1: `shared` must be left out of shared rules"));
        assert!(message("[rules.a]\nlimt = '5/s'\n").starts_with("line 2, column 1: `limt` must be"));
        assert!(message(&"#".repeat((1 << 20) + 1)).contains("at most 1 MB"));
        assert!(check("[rules.a]\nlimit = '5/s'\n").is_ok());
        assert!(check(&"#".repeat(1 << 20)).is_ok());
    }

    #[test]
    fn limits_of_one_count_are_a_warning() {
        let warning = |limits: &str| {
            let text = RuleText::parse(&format!("[rules.a]\nlimits = {limits}\n")).expect("valid");
            warning("a", text.rule("a").expect("a table"))
        };
        let expected =
            "`a` has `5 concurrent` and `9 concurrent`, which count the same calls: write the smaller one alone";
        assert_eq!(warning("['5 concurrent', '9 concurrent']").as_deref(), Some(expected));
        assert!(warning("['5/s', '9/1s']").is_some_and(|warning| warning.contains("have one window")));
        assert_eq!(warning("['5 concurrent', '9/366d']"), None);
    }

    #[test]
    fn a_file_is_checked_as_shared_rules_apart_from_its_own_settings() {
        let wrong =
            "[rules.'user:{id}']\nlimit = '5/s'\n[[rules.'user:{id}'.override]]\nmatch = { di = 1 }\nlimit = '6/s'\n";
        let message = |text: &str| check_file(text).expect_err(text).to_string();
        let expected = check(wrong).expect_err("a wrong part").to_string();
        assert_eq!(message(wrong), expected);
        let of_file = format!("strict = true # all\nshared = true\n{wrong}");
        assert_eq!(message(&of_file), expected);
        for empty in ["", " \n"] {
            assert_eq!(message(empty), check_written(empty).expect_err("empty").to_string());
        }
        let right = of_file.replace("di = 1", "id = 1");
        assert!(check_file(&right).is_ok() && check_file("#").is_ok());
    }
}

//! The mistakes of a file of rules, all at once.

use rate_limited::RuleSet;

/// The most mistakes that are reported of one file.
const MAX_MISTAKES: usize = 100;

/// Returns the mistakes of a text of rules, each with its line and column. The rule or override with a mistake is left out,
/// and the rest is read again.
pub(crate) fn mistakes_of_rules(text: &str) -> Vec<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let mut mistakes = Vec::new();
    while mistakes.len() < MAX_MISTAKES {
        let Err(error) = lines.join("\n").parse::<RuleSet>() else { break };
        let mistake = error.to_string();
        let line = line_of(&mistake);
        mistakes.push(mistake);
        // One without a place is of the whole text.
        if !line.is_some_and(|line| leave_out(&mut lines, line)) {
            break;
        }
    }
    mistakes
}

/// Returns the line of a mistake, counted from 0.
fn line_of(mistake: &str) -> Option<usize> {
    let (number, _) = mistake.split_once("line ")?.1.split_once(',')?;
    number.parse::<usize>().ok()?.checked_sub(1)
}

/// Replaces the section with a line by empty lines, and those of its rule if it is the rule's own. Returns false if there is
/// none.
fn leave_out(lines: &mut [&str], line: usize) -> bool {
    let Some(start) = lines.iter().take(line + 1).rposition(|line| header(line).is_some()) else { return false };
    let Some(section) = header(lines[start]) else { return false };
    let is_rule = !lines[start].trim_start().starts_with("[[");
    let mut is_left_out = false;
    for (index, line) in lines.iter_mut().enumerate() {
        if let Some(other) = header(line) {
            let is_part = other.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            is_left_out = index == start || is_rule && is_part;
        }
        if is_left_out {
            *line = "";
        }
    }
    true
}

/// The name of the section that a line begins.
fn header(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let name = line.strip_prefix("[[").or_else(|| line.strip_prefix('['))?;
    name.split(']').next().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mistakes_of_all_rules_are_found_and_no_others() {
        let text = r#"
[rules.search]
limt = "5/10s"

[[rules.search.override]]
match = { user_id = "7" }
limit = "50/10s"

[rules."log in"]
key = "log-in:{ip}"
limit = "3/1m"

[[rules."log in".override]]
match = { ip = "10.0.0.1" }
limit = "many"

[rules.upload]
key = "upload:{user}"
limit = 7
"#;
        let found = mistakes_of_rules(text);
        let lines: Vec<_> = found.iter().map(|mistake| line_of(mistake).map(|line| line + 1)).collect();
        assert_eq!(lines, [Some(3), Some(15), Some(19)], "{found:#?}");
        assert_eq!(mistakes_of_rules("[rules.a]\nkey = \"a:{b}\"\nlimit = \"5/10s\"\n"), Vec::<String>::new());
        assert_eq!(mistakes_of_rules("rules = 7").len(), 1, "it is in no section");
        assert_eq!(
            mistakes_of_rules(&"[rules.a]\nlimit = 7\n".repeat(3)).len(),
            1,
            "of one section twice nothing is left"
        );
    }
}

//! The name of a limit in the fields: a string of structured fields.

use std::fmt::{self, Display, Write};

use crate::Decision;
use crate::decision::LimitState;
use crate::limit::WindowName;

/// The name of a limit as the content of a string of RFC 9651, and of JSON.
///
/// It is the name of the rule. If a decision has several limits of one rule, the window follows, as in `api-1s` and
/// `api-1d`. If that is the name of an earlier one too, a number follows, as in `api-1s-2`.
///
/// Printable ASCII stays as it is. Other characters and `%` are percent-encoded, so two rules never have one text. The
/// quote and the backslash get a backslash, as both grammars want it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicyName {
    rule: &'static str,
    /// `None` for the only limit of the rule.
    window: Option<WindowName>,
    /// The number among the limits of the rule with this window, from 1 on.
    number: usize,
}

impl PolicyName {
    /// Returns the name of the limit with this index in a decision.
    pub(super) fn new(decision: &Decision, index: usize, state: &LimitState<'_>) -> Self {
        let rule = state.static_name();
        let of_rule = || decision.limits().enumerate().filter(|(_, other)| other.static_name() == rule);
        if of_rule().all(|(other, _)| other == index) {
            return Self { rule, window: None, number: 1 };
        }
        let window = |state: &LimitState<'_>| state.limit().window_name();
        let is_earlier = |(other, state_of_other): &(usize, LimitState<'_>)| {
            *other < index && window(state_of_other) == window(state)
        };
        Self { rule, window: Some(window(state)), number: 1 + of_rule().filter(is_earlier).count() }
    }

    /// The name of the rule.
    pub(crate) fn rule(&self) -> &'static str {
        self.rule
    }

    /// Returns the name of the limit that a decision describes.
    pub(super) fn of_described(decision: &Decision) -> Self {
        let described = decision.limits().enumerate().nth(decision.request_index());
        // A decision that has not all of its limits has one.
        let described = described.or_else(|| decision.limits().enumerate().next());
        described
            .map_or(Self { rule: "", window: None, number: 1 }, |(index, state)| Self::new(decision, index, &state))
    }
}

impl Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.rule.bytes() {
            match byte {
                b'"' | b'\\' => {
                    f.write_char('\\')?;
                    f.write_char(char::from(byte))?;
                }
                b' '..=b'~' if byte != b'%' => f.write_char(char::from(byte))?,
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        if let Some(window) = self.window {
            write!(f, "-{window}")?;
        }
        if self.number > 1 {
            write!(f, "-{}", self.number)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limit;

    #[test]
    fn other_characters_than_printable_ascii_are_encoded() {
        let cases = [
            ("api", "api"),
            ("user:{id}", "user:{id}"),
            (r#"a "quoted" \ name"#, r#"a \"quoted\" \\ name"#),
            ("größe", "gr%C3%B6%C3%9Fe"),
            ("100%", "100%25"),
            ("%C3", "%25C3"),
            ("a\r\nb\u{7f}", "a%0D%0Ab%7F"),
            ("", ""),
        ];
        for (rule, text) in cases {
            assert_eq!(PolicyName { rule, window: None, number: 1 }.to_string(), text);
        }
    }

    #[test]
    fn the_name_of_several_limits_ends_with_the_window() {
        for (limit, text) in [("5/min", "api-1m"), ("5/366d", "api-366d"), ("5 concurrent", "api-concurrent")] {
            let limit: Limit = limit.parse().expect("a limit");
            let window = Some(limit.window_name());
            assert_eq!(PolicyName { rule: "api", window, number: 1 }.to_string(), text);
        }
    }
}

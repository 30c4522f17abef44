//! The template in a key's string, as the grammar of templates has it, with format specs that `format!` has.

use limiter_syntax::{Piece, TemplateProblem, pieces};

/// Parses a template, or returns the message for its first mistake.
pub(crate) fn parse(template: &str) -> Result<Vec<Piece<'_>>, String> {
    let checked = |piece| match piece {
        Ok(Piece::Value { spec: Some(spec), .. }) if !has_known_type(spec) => Err(format!(
            "`:{spec}` in `key` is no format of `format!`: leave it out, or write one such as `:?` or `:08x`"
        )),
        piece => piece.map_err(message),
    };
    pieces(template).map(checked).collect()
}

fn message(problem: TemplateProblem<'_>) -> String {
    match problem {
        TemplateProblem::Empty => "`{}` in `key` names nothing: write a value, as in `{user_id}`".to_owned(),
        TemplateProblem::Positional { number } => {
            format!("`{{{number}}}` in `key` names nothing: write a value, as in `{{user_id}}`")
        }
        TemplateProblem::Unclosed { inside } => {
            format!("`{{{inside}` in `key` is not closed: add a `}}`, or write `{{{{` for a brace")
        }
        TemplateProblem::Stray => "`}` in `key` closes nothing: write `}}` for a brace".to_owned(),
    }
}

/// Returns whether the last part of a format spec is a type of `format!`. rustc would report others at the wrong place.
fn has_known_type(spec: &str) -> bool {
    let end_of_rest = spec.rfind(|c: char| c.is_ascii_digit() || "<^>+-#.*$".contains(c)).map_or(0, |at| at + 1);
    ["", "?", "x?", "X?", "x", "X", "o", "b", "e", "E", "p"].contains(&spec[end_of_rest..].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_specs_have_types_of_format() {
        for template in ["{id}", "{id:}", "{id:?}", "{id:>08.3}!", "{id:\">5}", "{id:é^+#w$.*x?}", "{f::<u8>(a):x}"] {
            assert!(parse(template).is_ok(), "{template}");
        }
        for (template, spec) in [("{id:spec}", "spec"), ("{id:>08q}", ">08q"), ("{id:spec}}", "spec")] {
            let message = parse(template).expect_err(template);
            assert!(message.starts_with(&format!("`:{spec}` in `key` is no format")), "{template}: {message}");
        }
    }

    #[test]
    fn messages_show_the_mistake() {
        let cases = [
            ("user:{}", "`{}` in `key` names nothing"),
            ("{0}", "`{0}` in `key` names nothing"),
            ("user:{id", "`{id` in `key` is not closed"),
            ("user}", "`}` in `key` closes nothing"),
        ];
        for (template, start) in cases {
            let message = parse(template).expect_err(template);
            assert!(message.starts_with(start), "{template}: {message}");
        }
    }
}

//! Templates of keys: static text and `{expression}`, as in `format!`, but with any expression.

/// A piece of a template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece<'t> {
    /// Static text that is not empty, its `{{` and `}}` resolved.
    Text(String),
    /// A placeholder, `{expression}` or `{expression:spec}`.
    Value {
        /// The expression, without spaces around it. It is not empty and no number.
        expression: &'t str,
        /// The text after the colon, unless it is empty.
        spec: Option<&'t str>,
    },
}

/// The reason why a text is no template.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TemplateProblem<'t> {
    /// A placeholder is empty.
    Empty,
    /// A placeholder is a number, as in the positional arguments of `format!`.
    Positional {
        /// The number.
        number: &'t str,
    },
    /// A placeholder has no end.
    Unclosed {
        /// The rest of the template after the `{`.
        inside: &'t str,
    },
    /// A `}` closes nothing.
    Stray,
}

/// The pieces of a template, in order. No two texts follow each other, and nothing follows a problem.
#[derive(Clone, Debug)]
pub struct Pieces<'t> {
    rest: &'t str,
}

/// Parses a template.
///
/// ```
/// use limiter_syntax::{Piece, pieces};
///
/// let pieces: Vec<_> = pieces("user:{user_id}").map(|piece| piece.expect("a template")).collect();
/// assert_eq!(pieces, [Piece::Text("user:".to_owned()), Piece::Value { expression: "user_id", spec: None }]);
/// ```
#[must_use]
pub fn pieces(template: &str) -> Pieces<'_> {
    Pieces { rest: template }
}

impl<'t> Iterator for Pieces<'t> {
    type Item = Result<Piece<'t>, TemplateProblem<'t>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut text = String::new();
        while let Some(at) = self.rest.find(['{', '}']) {
            let (before, brace) = self.rest.split_at(at);
            text.push_str(before);
            if brace.starts_with("{{") || brace.starts_with("}}") {
                text.push_str(&brace[..1]);
                self.rest = &brace[2..];
                continue;
            }
            self.rest = brace;
            return Some(if text.is_empty() { self.placeholder() } else { Ok(Piece::Text(text)) });
        }
        text.push_str(self.rest);
        self.rest = "";
        (!text.is_empty()).then_some(Ok(Piece::Text(text)))
    }
}

impl<'t> Pieces<'t> {
    /// Parses the placeholder with which the rest begins.
    fn placeholder(&mut self) -> Result<Piece<'t>, TemplateProblem<'t>> {
        let rest = std::mem::take(&mut self.rest);
        let inside = rest.strip_prefix('{').ok_or(TemplateProblem::Stray)?;
        let ends = find_ends(inside).ok_or(TemplateProblem::Unclosed { inside })?;
        let (expression, spec) = match ends.colon {
            Some(colon) => (&inside[..colon], Some(&inside[colon + 1..ends.brace])),
            None => (&inside[..ends.brace], None),
        };
        let expression = expression.trim();
        if expression.is_empty() {
            return Err(TemplateProblem::Empty);
        }
        if expression.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(TemplateProblem::Positional { number: expression });
        }
        self.rest = &inside[ends.brace + 1..];
        Ok(Piece::Value { expression, spec: spec.filter(|spec| !spec.is_empty()) })
    }
}

/// The ends of a placeholder.
struct Ends {
    /// The first `:` outside all brackets that is not part of a `::`.
    colon: Option<usize>,
    /// The `}` that closes the placeholder.
    brace: usize,
}

/// Finds the ends of a placeholder, from the text after its `{`. Brackets nest, and the contents of literals do not
/// count.
fn find_ends(inside: &str) -> Option<Ends> {
    let bytes = inside.as_bytes();
    let mut colon = None;
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'}' if depth == 0 => return Some(Ends { colon, brace: at }),
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => depth = depth.saturating_sub(1),
            b':' if bytes.get(at + 1) == Some(&b':') => at += 1,
            b':' if depth == 0 && colon.is_none() => colon = Some(at),
            // After the colon there is a format spec, in which a quote is a fill character.
            b'"' if colon.is_none() => at += closing_quote(&bytes[at..], b'"')?,
            b'\'' if colon.is_none() => at += closing_char_quote(&inside[at..]),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the offset of the closing quote of a literal.
fn closing_quote(literal: &[u8], quote: u8) -> Option<usize> {
    let mut at = 1;
    while *literal.get(at)? != quote {
        at += if literal[at] == b'\\' { 2 } else { 1 };
    }
    Some(at)
}

/// Returns the offset of the closing quote of a character literal, or 0 for a lifetime.
fn closing_char_quote(literal: &str) -> usize {
    let mut characters = literal.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), _) => closing_quote(literal.as_bytes(), b'\'').unwrap_or(0),
        (Some(_), Some((end, '\''))) => end,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Piece<'_> {
        Piece::Text(text.to_owned())
    }

    fn value(expression: &str) -> Piece<'_> {
        Piece::Value { expression, spec: None }
    }

    fn formatted<'t>(expression: &'t str, spec: &'t str) -> Piece<'t> {
        Piece::Value { expression, spec: Some(spec) }
    }

    #[test]
    fn parses_text_and_values() {
        let cases = [
            ("", vec![]),
            ("getId", vec![text("getId")]),
            ("user:{id}", vec![text("user:"), value("id")]),
            ("{a}{b}", vec![value("a"), value("b")]),
            ("{req.tenant}/{user.id}", vec![value("req.tenant"), text("/"), value("user.id")]),
            ("a{{b}}c", vec![text("a{b}c")]),
            ("{{{a}}}", vec![text("{"), value("a"), text("}")]),
            ("{ id }", vec![value("id")]),
            ("{id:}", vec![value("id")]),
            ("{id:?}", vec![formatted("id", "?")]),
            ("{id:>08.3}!", vec![formatted("id", ">08.3"), text("!")]),
            ("{id:\">5}", vec![formatted("id", "\">5")]),
            ("{id:é^+#w$.*x?}", vec![formatted("id", "é^+#w$.*x?")]),
            ("{u8::MAX}", vec![value("u8::MAX")]),
            ("{f::<u8>(a):x}", vec![formatted("f::<u8>(a)", "x")]),
            ("{(a as u8, S { b: 1 }.b).0}", vec![value("(a as u8, S { b: 1 }.b).0")]),
            ("{m[\"}:\"]}", vec![value("m[\"}:\"]")]),
            ("{s.split('}').next()}", vec![value("s.split('}').next()")]),
            ("{s.find('\\'')}", vec![value("s.find('\\'')")]),
            ("{id::<'a>()}", vec![value("id::<'a>()")]),
            ("é{ü}é", vec![text("é"), value("ü"), text("é")]),
        ];
        for (template, expected) in cases {
            assert_eq!(pieces(template).collect::<Result<Vec<_>, _>>(), Ok(expected), "{template}");
        }
    }

    #[test]
    fn rejects_invalid_templates() {
        let cases = [
            ("user:{}", TemplateProblem::Empty),
            ("{:?}", TemplateProblem::Empty),
            ("{ }", TemplateProblem::Empty),
            ("{0}", TemplateProblem::Positional { number: "0" }),
            ("user:{id", TemplateProblem::Unclosed { inside: "id" }),
            ("user:{", TemplateProblem::Unclosed { inside: "" }),
            ("{f(}", TemplateProblem::Unclosed { inside: "f(}" }),
            ("{\"}", TemplateProblem::Unclosed { inside: "\"}" }),
            ("user}", TemplateProblem::Stray),
            ("{id}}", TemplateProblem::Stray),
        ];
        for (template, problem) in cases {
            let mut pieces = pieces(template);
            assert_eq!(pieces.find_map(Result::err), Some(problem), "{template}");
            assert_eq!(pieces.next(), None, "{template}");
        }
    }
}

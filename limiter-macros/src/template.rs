//! The template in a key's string: static text and `{expression}`, as in `format!`, but with any expression.

use std::fmt;

/// Parses a template. No text is empty, and no two texts follow each other.
pub(crate) fn parse(template: &str) -> Result<Vec<Piece>, TemplateProblem> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, brace) = rest.split_at(at);
        text.push_str(before);
        if brace.starts_with("{{") || brace.starts_with("}}") {
            text.push_str(&brace[..1]);
            rest = &brace[2..];
            continue;
        }
        let Some(inside) = brace.strip_prefix('{') else { return Err(TemplateProblem::Stray) };
        let ends = find_ends(inside).ok_or_else(|| TemplateProblem::Unclosed(inside.to_owned()))?;
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        pieces.push(placeholder(&inside[..ends.brace], ends.colon)?);
        rest = &inside[ends.brace + 1..];
    }
    text.push_str(rest);
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Piece {
    /// Static text, its `{{` and `}}` resolved.
    Text(String),
    /// The expression and the format spec of `{expression:spec}`.
    Value { expression: String, spec: Option<String> },
}

/// An error in a template.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum TemplateProblem {
    Empty,
    Positional(String),
    Unclosed(String),
    Stray,
    Spec(String),
}

impl fmt::Display for TemplateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("`{}` in `key` names nothing: write a value, as in `{user_id}`"),
            Self::Positional(number) => {
                write!(f, "`{{{number}}}` in `key` names nothing: write a value, as in `{{user_id}}`")
            }
            Self::Unclosed(inside) => {
                write!(f, "`{{{inside}` in `key` is not closed: add a `}}`, or write `{{{{` for a brace")
            }
            Self::Spec(spec) => {
                write!(
                    f,
                    "`:{spec}` in `key` is no format of `format!`: leave it out, or write one such as `:?` or `:08x`"
                )
            }
            Self::Stray => f.write_str("`}` in `key` closes nothing: write `}}` for a brace"),
        }
    }
}

fn placeholder(inside: &str, colon: Option<usize>) -> Result<Piece, TemplateProblem> {
    let (expression, spec) = match colon {
        Some(colon) => (&inside[..colon], Some(&inside[colon + 1..])),
        None => (inside, None),
    };
    let expression = expression.trim();
    if expression.is_empty() {
        return Err(TemplateProblem::Empty);
    }
    if expression.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(TemplateProblem::Positional(expression.to_owned()));
    }
    let spec = spec.filter(|spec| !spec.is_empty()).map(str::to_owned);
    if let Some(spec) = spec.as_deref().filter(|spec| !has_known_type(spec)) {
        return Err(TemplateProblem::Spec(spec.to_owned()));
    }
    Ok(Piece::Value { expression: expression.to_owned(), spec })
}

/// Returns whether the last part of a format spec is a type of `format!`. rustc would report others at the wrong place.
fn has_known_type(spec: &str) -> bool {
    let end_of_rest = spec.rfind(|c: char| c.is_ascii_digit() || "<^>+-#.*$".contains(c)).map_or(0, |at| at + 1);
    ["", "?", "x?", "X?", "x", "X", "o", "b", "e", "E", "p"].contains(&spec[end_of_rest..].trim_end())
}

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

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    fn value(expression: &str) -> Piece {
        Piece::Value { expression: expression.to_owned(), spec: None }
    }

    fn formatted(expression: &str, spec: &str) -> Piece {
        Piece::Value { expression: expression.to_owned(), spec: Some(spec.to_owned()) }
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
            assert_eq!(parse(template), Ok(expected), "{template}");
        }
    }

    #[test]
    fn rejects_invalid_templates() {
        let cases = [
            ("user:{}", TemplateProblem::Empty),
            ("{:?}", TemplateProblem::Empty),
            ("{ }", TemplateProblem::Empty),
            ("{0}", TemplateProblem::Positional("0".to_owned())),
            ("user:{id", TemplateProblem::Unclosed("id".to_owned())),
            ("user:{", TemplateProblem::Unclosed(String::new())),
            ("{f(}", TemplateProblem::Unclosed("f(}".to_owned())),
            ("{\"}", TemplateProblem::Unclosed("\"}".to_owned())),
            ("{id:spec}", TemplateProblem::Spec("spec".to_owned())),
            ("{id:>08q}", TemplateProblem::Spec(">08q".to_owned())),
            ("user}", TemplateProblem::Stray),
            ("{id}}", TemplateProblem::Stray),
        ];
        for (template, problem) in cases {
            assert_eq!(parse(template), Err(problem), "{template}");
        }
    }
}

//! The template of an attribute's key, such as `user:{user_id}`: texts, and the names of the parts between them.
//!
//! A test of the workspace compares the keys with those of the attribute.

use std::fmt::Display;

use limiter_syntax::{Piece, pieces};

use crate::{Error, ErrorKind, Key};

/// A template of a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeyTemplate {
    /// The texts before each part, and the text at the end.
    pub(crate) texts: Vec<String>,
    pub(crate) parts: Vec<TemplatePart>,
}

/// A part of a template: the text between two braces.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TemplatePart {
    /// The expression, without the format spec.
    pub(crate) expression: String,
    /// The format spec after the colon.
    pub(crate) spec: Option<String>,
    pub(crate) kind: PartKind,
}

/// The kind of a part's values. A layer's template has it in place of a format spec, as in `{ip:/32/64}` and
/// `{method:/method}`, which no attribute has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PartKind {
    /// Any texts.
    #[default]
    Any,
    /// Networks of at most these prefixes.
    Addresses(AddressPrefixes),
    /// The texts by which layers count methods.
    Methods,
}

impl PartKind {
    fn parse(spec: &str) -> Option<Self> {
        if spec == "/method" { Some(Self::Methods) } else { AddressPrefixes::parse(spec).map(Self::Addresses) }
    }
}

/// The longest prefixes of the networks that a part has as values, in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressPrefixes {
    pub(crate) ipv4: u8,
    pub(crate) ipv6: u8,
}

impl AddressPrefixes {
    fn parse(spec: &str) -> Option<Self> {
        let (ipv4, ipv6) = spec.strip_prefix('/')?.split_once('/')?;
        Some(Self { ipv4: ipv4.parse().ok()?, ipv6: ipv6.parse().ok()? })
    }
}

impl KeyTemplate {
    /// Parses a template. Returns `None` for a text that the attribute rejects as a template.
    pub(crate) fn parse(template: &str) -> Option<Self> {
        let (mut texts, mut parts) = (Vec::new(), Vec::new());
        let mut text = String::new();
        for piece in pieces(template) {
            match piece.ok()? {
                Piece::Text(of_piece) => text = of_piece,
                Piece::Value { expression, spec } => {
                    texts.push(std::mem::take(&mut text));
                    parts.push(TemplatePart::new(expression, spec));
                }
            }
        }
        texts.push(text);
        Some(Self { texts, parts })
    }

    /// Returns the template as users write it, without the kinds of its parts' values.
    pub(crate) fn without_kinds(mut self) -> Self {
        self.parts.iter_mut().for_each(|part| part.kind = PartKind::Any);
        self
    }

    /// Returns the key with these parts.
    pub(crate) fn key<V: Display>(&self, parts: impl IntoIterator<Item = V>) -> Key {
        let mut texts = self.texts.iter();
        let first = Key::new(texts.next().map_or("", String::as_str));
        parts.into_iter().zip(texts).fold(first, |key, (part, text)| key.part(part).text(text))
    }
}

impl TemplatePart {
    fn new(expression: &str, spec: Option<&str>) -> Self {
        let kind = spec.and_then(PartKind::parse);
        let spec = spec.filter(|_| kind.is_none()).map(str::to_owned);
        Self { expression: expression.to_owned(), spec, kind: kind.unwrap_or_default() }
    }

    /// Returns whether the part is a variable or a field, such as `user.id`, in its `Display` form.
    fn is_name(&self) -> bool {
        let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || c == '_');
        self.spec.is_none()
            && self.kind == PartKind::Any
            && self.expression.split('.').all(|word| is_word(word.strip_prefix("r#").unwrap_or(word)))
    }
}

impl Key {
    /// Creates the key of an attribute with a template, `key = "user:{user_id}"`, for code outside of its function.
    ///
    /// `parts` has a value for each name between braces, in any order. A name is that of a variable or of a field, as
    /// in `{user.id}`. If the template has a name twice, both parts have the value. `{{` is a brace, as in the
    /// attribute.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Key;
    ///
    /// let key = Key::from_template("user:{user_id}", [("user_id", 42)])?;
    /// assert_eq!(key, Key::new("user:").part(42));
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a text that is no template, a template with another expression or a format spec, and a
    /// name that is missing, unknown or given twice.
    pub fn from_template<N, V>(template: &str, parts: impl IntoIterator<Item = (N, V)>) -> Result<Self, Error>
    where
        N: AsRef<str>,
        V: Display,
    {
        let error = |problem| Err(Error::new(ErrorKind::Config, template_problem(template, &problem)));
        let Some(parsed) = KeyTemplate::parse(template).filter(|_| !template.is_empty()) else {
            return error(TemplateProblem::Syntax);
        };
        if let Some(part) = parsed.parts.iter().find(|part| !part.is_name()) {
            return error(TemplateProblem::Expression(part));
        }
        let mut values: Vec<Option<V>> = parsed.parts.iter().map(|_| None).collect();
        let place = |name: &str| parsed.parts.iter().position(|part| part.expression == name);
        for (name, value) in parts {
            match place(name.as_ref()).map(|place| &mut values[place]) {
                None => return error(TemplateProblem::Unknown(name.as_ref())),
                Some(Some(_)) => return error(TemplateProblem::Doubled(name.as_ref())),
                Some(free) => *free = Some(value),
            }
        }
        let value = |part: &TemplatePart| values[place(&part.expression)?].as_ref();
        match parsed.parts.iter().find(|part| value(part).is_none()) {
            Some(part) => error(TemplateProblem::Missing(&part.expression)),
            None => Ok(parsed.key(parsed.parts.iter().filter_map(value))),
        }
    }
}

/// The reason why a template and parts make no key.
enum TemplateProblem<'a> {
    Syntax,
    Expression(&'a TemplatePart),
    Unknown(&'a str),
    Doubled(&'a str),
    Missing(&'a str),
}

/// Returns the message for a template and parts that make no key.
fn template_problem(template: &str, problem: &TemplateProblem<'_>) -> String {
    match problem {
        TemplateProblem::Syntax => {
            format!(
                "`template` must be the key of an attribute, got {template:?}: write one such as `user:{{user_id}}`"
            )
        }
        TemplateProblem::Expression(TemplatePart { expression, .. }) => format!(
            "`template` must have names alone between its braces, got `{{{expression}}}` with more than a name: write \
             `Key::new` and its parts"
        ),
        TemplateProblem::Unknown(name) => format!(
            "`parts` must name parts of the template `{template}`, got `{name}`: write the names between its braces"
        ),
        TemplateProblem::Doubled(name) => {
            format!("`parts` must have one value for each name, got `{name}` twice: remove one")
        }
        TemplateProblem::Missing(name) => {
            format!("`parts` must have a value for each name in `{template}`, got none for `{name}`: add one")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases are those of the attribute's parser.
    #[test]
    fn parses_texts_and_parts() {
        let cases: [(&str, &[&str], &[&str]); 17] = [
            ("", &[""], &[]),
            ("getId", &["getId"], &[]),
            ("user:{id}", &["user:", ""], &["id"]),
            ("{a}{b}", &["", "", ""], &["a", "b"]),
            ("{req.tenant}/{user.id}", &["", "/", ""], &["req.tenant", "user.id"]),
            ("a{{b}}c", &["a{b}c"], &[]),
            ("{{{a}}}", &["{", "}"], &["a"]),
            ("{ id }", &["", ""], &["id"]),
            ("{id:}", &["", ""], &["id"]),
            ("{id:?}", &["", ""], &["id|?"]),
            ("{id:>08.3}!", &["", "!"], &["id|>08.3"]),
            ("{u8::MAX}", &["", ""], &["u8::MAX"]),
            ("{f::<u8>(a):x}", &["", ""], &["f::<u8>(a)|x"]),
            ("{m[\"}:\"]}", &["", ""], &["m[\"}:\"]"]),
            ("{s.split('}').next()}", &["", ""], &["s.split('}').next()"]),
            ("{id::<'a>()}", &["", ""], &["id::<'a>()"]),
            ("é{ü}é", &["é", "é"], &["ü"]),
        ];
        for (template, texts, parts) in cases {
            let parsed = KeyTemplate::parse(template).expect(template);
            let shown = |part: &TemplatePart| match &part.spec {
                None => part.expression.clone(),
                Some(spec) => format!("{}|{spec}", part.expression),
            };
            assert_eq!(parsed.texts, texts, "{template}");
            assert_eq!(parsed.parts.iter().map(shown).collect::<Vec<_>>(), parts, "{template}");
        }
        for template in ["user:{}", "{:?}", "{ }", "{0}", "user:{id", "user:{", "{f(}", "{\"}", "user}", "{id}}"] {
            assert!(KeyTemplate::parse(template).is_none(), "{template}");
        }
    }

    #[test]
    fn a_key_from_a_template_has_the_values_as_parts() {
        let names = [("b", "2@"), ("a.x", "1")];
        let key = |template| Key::from_template(template, names).expect("a key");
        assert_eq!(key("{a.x}{b}").encoded(), "@1@@2%40");
        assert_eq!(key("{{{a.x}}}/{b}!").encoded(), "%7B@1@%7D/@2%40@%21");
        assert_eq!(key("{a.x}:{b}:{a.x}").encoded(), "@1@:@2%40@:@1");
        assert_eq!(Key::from_template("getId", [("", ""); 0]).expect("a key"), Key::new("getId"));
        assert_eq!(Key::from_template("{r#type}", [("r#type", 1)]).expect("a key"), Key::new("").part(1));
    }

    #[test]
    fn names_that_do_not_match_the_template_are_rejected() {
        type Parts = &'static [(&'static str, &'static str)];
        let cases: [(&str, Parts, &str); 11] = [
            ("", &[], "must be the key of an attribute"),
            ("user:{}", &[], "must be the key of an attribute"),
            ("user:{id", &[("id", "1")], "must be the key of an attribute"),
            ("{id:08}", &[("id", "1")], "`{id}` with more than a name"),
            ("{f(id)}", &[("id", "1")], "`{f(id)}` with more than a name"),
            ("{a::b}", &[("a::b", "1")], "`{a::b}` with more than a name"),
            ("{a..b}", &[("a..b", "1")], "`{a..b}` with more than a name"),
            ("user:{id}", &[], "none for `id`"),
            ("user:{id}", &[("id", "1"), ("tenant", "2")], "got `tenant`"),
            ("user:{id}", &[("id", "1"), ("id", "1")], "got `id` twice"),
            ("getId", &[("id", "1")], "got `id`"),
        ];
        for (template, parts, expected) in cases {
            let error = Key::from_template(template, parts.iter().copied()).expect_err(template);
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(expected), "{template}: {error}");
            assert!(!error.to_string().contains("42"), "{error}");
        }
    }
}

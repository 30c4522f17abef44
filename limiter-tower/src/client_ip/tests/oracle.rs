//! A naive reading of both lists: it joins the lines and reads them from the left, by the grammar.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const WHITESPACE: [char; 2] = [' ', '\t'];

/// Returns the address in `X-Forwarded-For` at this position from the right.
pub(super) fn x_forwarded_for(lines: &[Vec<u8>], hops: usize) -> Option<IpAddr> {
    let text = joined(lines)?;
    let entries: Vec<_> = text.split(',').map(|entry| entry.trim_matches(WHITESPACE)).collect();
    node(entries[entries.len().checked_sub(hops)?])
}

/// Returns the address in `Forwarded` at this position from the right; `None` in `Err` if the list is malformed.
pub(super) fn forwarded(lines: &[Vec<u8>], hops: usize) -> Result<Option<IpAddr>, Malformed> {
    let Some(text) = joined(lines) else { return Ok(None) };
    let elements = Reader { rest: &text }.list().ok_or(Malformed)?;
    let Some(index) = elements.len().checked_sub(hops) else { return Ok(None) };
    let is_for = |(name, _): &&(String, String)| name.to_lowercase() == "for";
    let found: Vec<_> = elements[index].iter().filter(is_for).collect();
    Ok(if let [(_, value)] = found[..] { node(value) } else { None })
}

/// The list is not one of the grammar.
#[derive(Debug)]
pub(super) struct Malformed;

/// Joins lines as in RFC 9110, section 5.2, with one character for each byte; `None` without lines.
fn joined(lines: &[Vec<u8>]) -> Option<String> {
    let text = |line: &Vec<u8>| line.iter().map(|byte| char::from(*byte)).collect::<String>();
    (!lines.is_empty()).then(|| lines.iter().map(text).collect::<Vec<_>>().join(", "))
}

fn node(text: &str) -> Option<IpAddr> {
    let host = match text.rsplit_once(':') {
        Some((host, port)) if is_port(port) && (host.ends_with(']') || host.parse::<Ipv4Addr>().is_ok()) => host,
        _ => text,
    };
    let address = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inside) => IpAddr::V6(inside.parse::<Ipv6Addr>().ok()?),
        None => host.parse().ok()?,
    };
    match address {
        IpAddr::V6(mapped) => Some(mapped.to_ipv4_mapped().map_or(address, IpAddr::V4)),
        IpAddr::V4(_) => Some(address),
    }
}

fn is_port(text: &str) -> bool {
    let is_obfuscated = |name: &str| {
        !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter))
    };
    let is_number =
        |digits: &str| (1..=5).contains(&digits.len()) && digits.chars().all(|digit| digit.is_ascii_digit());
    text.strip_prefix('_').map_or_else(|| is_number(text), is_obfuscated)
}

/// The rest of a text.
struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn take(&mut self, is_next: impl Fn(char) -> bool) -> Option<char> {
        let letter = self.rest.chars().next().filter(|letter| is_next(*letter))?;
        self.rest = &self.rest[letter.len_utf8()..];
        Some(letter)
    }

    fn skip_whitespace(&mut self) {
        self.rest = self.rest.trim_start_matches(WHITESPACE);
    }

    fn list(mut self) -> Option<Vec<Vec<(String, String)>>> {
        let mut elements = Vec::new();
        loop {
            self.skip_whitespace();
            elements.push(self.element()?);
            self.skip_whitespace();
            if self.rest.is_empty() {
                return Some(elements);
            }
            self.take(|letter| letter == ',')?;
        }
    }

    fn element(&mut self) -> Option<Vec<(String, String)>> {
        let mut pairs = Vec::new();
        loop {
            if let Some(name) = self.token() {
                self.take(|letter| letter == '=')?;
                let value = if self.rest.starts_with('"') { self.quoted()? } else { self.token()? };
                pairs.push((name, value));
            }
            if self.take(|letter| letter == ';').is_none() {
                return Some(pairs);
            }
        }
    }

    fn token(&mut self) -> Option<String> {
        let mut token = String::new();
        while let Some(letter) =
            self.take(|letter| letter.is_ascii_graphic() && !"\"(),/:;<=>?@[\\]{}".contains(letter))
        {
            token.push(letter);
        }
        (!token.is_empty()).then_some(token)
    }

    fn quoted(&mut self) -> Option<String> {
        self.take(|letter| letter == '"')?;
        let mut value = String::new();
        loop {
            match self.take(|_| true)? {
                '"' => return Some(value),
                '\\' => value.push(self.take(|_| true)?),
                letter => value.push(letter),
            }
        }
    }
}

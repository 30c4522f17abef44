//! Quotas by the value of a header.

use http::HeaderName;
use http::request::Parts;

use super::{Internal, PartialKey, RequestKey};
use crate::header_name::header_name;
use crate::missing::Lack;
use crate::piece_name::{PieceName, PieceNames};

/// Counts by the value of a header, such as an API key.
///
/// A request lacks it if the header is absent or empty, comes more than once, or is no UTF-8. Its part in overrides has
/// the header's name, in lower case.
///
/// The client chooses the value. Each new value has a fresh quota, so use it for values that an earlier layer has
/// authenticated, or add a second layer by [`ClientIp`](crate::ClientIp).
#[derive(Clone, Debug)]
pub struct Header {
    header: HeaderName,
    name: PieceName,
}

impl Header {
    /// Counts by the header of this name.
    ///
    /// # Panics
    /// If `name` cannot be the name of a header. Create the value at the program's start.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let header = header_name(name);
        Self { name: PieceName::new(header.as_str()), header }
    }
}

impl RequestKey for Header {}

impl Internal for Header {
    fn name_pieces(&mut self, names: &mut PieceNames) {
        names.assign_header(&mut self.name);
    }

    fn forms(&self) -> Vec<Vec<String>> {
        self.name.only_form()
    }

    fn add_to(&self, key: PartialKey, parts: &Parts) -> Result<PartialKey, Lack> {
        let mut lines = parts.headers.get_all(&self.header).iter();
        let line = lines.next().filter(|line| !line.is_empty()).ok_or_else(|| Lack::NoHeader(self.header.clone()))?;
        // Another layer may read another line.
        if lines.next().is_some() {
            return Err(Lack::SeveralLines(self.header.clone()));
        }
        let value = std::str::from_utf8(line.as_bytes()).map_err(|_| Lack::NoText(self.header.clone()))?;
        Ok(key.add(self.name.text(), value))
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    #[test]
    fn a_missing_value_has_its_reason_with_the_name_of_the_header() {
        let header = Header::new("X-Api-Key");
        let reason = |lines: &[&[u8]]| {
            let (mut parts, ()) = Request::new(()).into_parts();
            for line in lines {
                parts.headers.append("x-api-key", HeaderValue::from_bytes(line).expect("a value"));
            }
            header.add_to(PartialKey::new("api"), &parts).expect_err("no value").to_string()
        };
        for (lines, expected) in [
            (&[][..], "the header `x-api-key` is absent or empty: "),
            (&[&b""[..]], "the header `x-api-key` is absent or empty: "),
            (&[b"a", b"b"], "the header `x-api-key` has several lines: "),
            (&[b"\xff"], "the header `x-api-key` is no UTF-8: "),
        ] {
            let reason = reason(lines);
            assert!(reason.starts_with(expected), "{lines:?}: {reason}");
        }
    }
}

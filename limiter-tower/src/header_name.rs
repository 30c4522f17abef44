//! Names of headers that the program chooses.

use http::HeaderName;

/// Returns the header of this name.
///
/// # Panics
/// If `name` cannot be the name of a header.
pub(crate) fn header_name(name: &str) -> HeaderName {
    match HeaderName::try_from(name) {
        Ok(header) => header,
        Err(_) => panic!("`name` must be the name of a header, got {name:?}: write one such as `x-real-ip`"),
    }
}

//! The errors of a dashboard that cannot be built or served.

use std::{error, fmt};

/// The reason why a dashboard cannot be built or served: an option, or an address that cannot be used.
#[derive(Debug)]
pub struct Error {
    message: String,
}

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl error::Error for Error {}

impl From<rate_limited::Error> for Error {
    fn from(error: rate_limited::Error) -> Self {
        Self::new(error.to_string())
    }
}

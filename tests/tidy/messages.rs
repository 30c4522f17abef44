//! The form of `ErrorKind::Config` messages.

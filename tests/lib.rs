//! The tests of `rate-limited`: a package of their own, so that its examples build without what they need.

//! Tests of `rate-limited`, in a separate package so that the facade's examples build without the test dependencies.

//! The check that leases are in the build, at compile time.

/// Does nothing: leases are in the build.
#[cfg(feature = "leases")]
#[doc(hidden)]
#[macro_export]
macro_rules! __require_leases {
    () => {};
}

/// Fails to compile: leases are not in the build.
#[cfg(not(feature = "leases"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __require_leases {
    () => {
        ::core::compile_error!(
            "`leases = true` needs the feature `leases` of `rate-limited`: turn it on, or remove the argument"
        );
    };
}

#[cfg(all(test, feature = "leases", not(limiter_loom)))]
mod tests;

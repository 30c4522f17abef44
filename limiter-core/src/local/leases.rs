//! Leases.

/// The lease of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseId {
    /// The mark of the log.
    pub(crate) mark: u32,
    /// The end of the lease, in milliseconds of the store's clock.
    pub(crate) end: u64,
}

//! The names of the keys.

/// The names of the keys of one run. All share a hash tag, so a script may use them together in a cluster too.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn new(run: &str) -> Self {
        Self { prefix: format!("flash-sale:{{{run}}}") }
    }

    /// A sorted set of the sales by their opening times, in milliseconds since 1970.
    pub(crate) fn openings(&self) -> String {
        format!("{}:openings", self.prefix)
    }

    /// The number of items that are left.
    pub(crate) fn stock(&self, sale: &str) -> String {
        format!("{}:{sale}:stock", self.prefix)
    }

    /// A hash of the items by their buyers.
    pub(crate) fn buyers(&self, sale: &str) -> String {
        format!("{}:{sale}:buyers", self.prefix)
    }

    /// A sorted set of the clubs by their packed medals.
    pub(crate) fn clubs(&self, sale: &str) -> String {
        format!("{}:{sale}:clubs", self.prefix)
    }
}

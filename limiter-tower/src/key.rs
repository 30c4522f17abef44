//! Keys of requests: the pieces that a layer counts by.

use std::fmt::Display;
use std::pin::Pin;

use http::request::Parts;
use limiter_core::Key;

mod either;
mod everyone;
mod extension;
mod function;
mod header;
#[cfg(feature = "axum")]
mod matched_path;
mod method;
#[cfg(feature = "axum")]
mod path_param;
mod tuple;

pub use either::Or;
pub use everyone::Everyone;
pub use extension::Extension;
pub use function::{KeyAsync, KeyFn, key_async, key_fn};
pub use header::Header;
#[cfg(feature = "axum")]
pub use matched_path::MatchedPath;
pub use method::Method;
#[cfg(feature = "axum")]
pub use path_param::PathParam;

use crate::client_ip::ClientIp;
use crate::missing::Lack;
use crate::piece_name::PieceNames;

/// The identity that a layer counts a request by: a piece, or several.
///
/// | key | counts by | part in overrides |
/// |---|---|---|
/// | [`ClientIp`] | the client's address | `ip` |
/// | [`Header`] | the value of a header | the header's name |
/// | [`Extension`] | a value that an earlier layer put into the request, such as the user | `extension` |
/// | [`Method`], `MatchedPath` | the method, the route | `method`, `path` |
/// | `PathParam` | a parameter of the path, such as the tenant | the parameter's name |
/// | [`key_fn`], [`key_async`] | the result of a function | `key` |
/// | [`Everyone`] | nothing: all requests share one quota | – |
/// | a tuple `(a, b, …)` | all of its pieces | those of the pieces |
/// | [`a.or(b)`](RequestKey::or) | `a`, or `b` where `a` finds nothing | those of the piece that is found |
///
/// If a key has several parts of one name, the second one has the name with a 2, such as `key2`, and so on. The headers
/// `method` and `path` have a number always. A request without one of the pieces [lacks its key](crate::Missing).
///
/// No value can make one key equal to another: each piece has its own text in the key. In `a.or(b)` two addresses have
/// one text, and count together wherever they were found. Two functions have two, and so have an address and the value
/// of a header named `ip`.
///
/// A key has a form for each combination of alternatives, at most 1 000: a tuple of two keys of two alternatives has four.
///
/// The trait is implemented by the types of this crate alone. Use [`key_fn`] for any other key.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key of requests",
    note = "write `key_fn(|parts| …)` for a function that returns an `Option` of a value with `Display`"
)]
pub trait RequestKey: Internal + Send + Sync + 'static {
    /// Counts by `other` where this key finds nothing.
    ///
    /// ```
    /// use limiter_tower::{ClientIp, Header, RequestKey};
    ///
    /// // An API key, or the address of a client without one.
    /// let key = Header::new("x-api-key").or(ClientIp::peer());
    /// # let _ = key;
    /// ```
    fn or<B: RequestKey>(self, other: B) -> Or<Self, B>
    where
        Self: Sized,
    {
        Or::new(self, other)
    }
}

/// The most forms of a key.
pub(crate) const MAX_FORMS: usize = 1_000;

/// A key of a request while its pieces are added.
#[derive(Clone, Debug)]
pub struct PartialKey {
    pub(crate) key: Key,
    /// The index of the key's form: the choices of all `or` so far.
    pub(crate) form: usize,
}

impl PartialKey {
    pub(crate) fn new(rule: &str) -> Self {
        Self { key: Key::new(rule), form: 0 }
    }

    /// Adds a piece after its text.
    pub(crate) fn add(self, text: &str, value: impl Display) -> Self {
        Self { key: self.key.text(text).part(value), form: self.form }
    }
}

pub(crate) type KeyFuture<'a> = Pin<Box<dyn Future<Output = Result<PartialKey, Lack>> + Send + 'a>>;

/// The methods of keys that the layer calls.
pub trait Internal {
    /// Gives each piece a name of its own.
    fn name_pieces(&mut self, names: &mut PieceNames);

    /// Returns the names of the pieces of each form, with the kinds of values other than any text, as in `ip:/32/64`.
    fn forms(&self) -> Vec<Vec<String>>;

    /// Returns the number of forms.
    fn form_count(&self) -> usize {
        1
    }

    /// Returns whether the key is known only after a wait.
    fn is_async(&self) -> bool {
        false
    }

    /// Adds the pieces of a request, or returns why it lacks one.
    fn add_to(&self, key: PartialKey, parts: &Parts) -> Result<PartialKey, Lack>;

    /// Adds the pieces of a request after a wait.
    fn add_later<'a>(&'a self, key: PartialKey, parts: &'a Parts) -> KeyFuture<'a> {
        let added = self.add_to(key, parts);
        Box::pin(std::future::ready(added))
    }
}

impl RequestKey for ClientIp {}

impl Internal for ClientIp {
    fn name_pieces(&mut self, names: &mut PieceNames) {
        names.assign_address(&mut self.name);
    }

    fn forms(&self) -> Vec<Vec<String>> {
        self.name.only_form_of_addresses(self.ipv4_prefix, self.ipv6_prefix)
    }

    fn add_to(&self, key: PartialKey, parts: &Parts) -> Result<PartialKey, Lack> {
        Ok(key.add(self.name.text(), self.find(parts)?))
    }
}

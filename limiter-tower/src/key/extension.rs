//! Quotas by a value of the request's extensions.

use std::fmt::{self, Debug, Display};
use std::marker::PhantomData;

use http::request::Parts;

use super::{Internal, PartialKey, RequestKey};
use crate::missing::Lack;
use crate::piece_name::{PieceName, PieceNames};

/// Counts by a value that an earlier layer put into the request's extensions, such as the user.
///
/// A request without the value lacks it. Its part in overrides is `extension`.
///
/// ```
/// use limiter_tower::Extension;
///
/// #[derive(Clone)]
/// struct User {
///     id: u64,
/// }
///
/// let key = Extension::new(|user: &User| user.id);
/// # let _ = key;
/// ```
pub struct Extension<T, F> {
    read: F,
    name: PieceName,
    value: PhantomData<fn(&T)>,
}

impl<T, F, R> Extension<T, F>
where
    T: Clone + Send + Sync + 'static,
    F: Fn(&T) -> R,
    R: Display,
{
    /// Counts by the text of what `read` returns for the extension of type `T`.
    #[must_use]
    pub fn new(read: F) -> Self {
        Self { read, name: PieceName::new("extension"), value: PhantomData }
    }
}

impl<T, F: Clone> Clone for Extension<T, F> {
    fn clone(&self) -> Self {
        Self { read: self.read.clone(), name: self.name.clone(), value: PhantomData }
    }
}

impl<T, F> Debug for Extension<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extension").field("type", &std::any::type_name::<T>()).finish_non_exhaustive()
    }
}

impl<T, F, R> RequestKey for Extension<T, F>
where
    T: Clone + Send + Sync + 'static,
    F: Fn(&T) -> R + Send + Sync + 'static,
    R: Display,
{
}

impl<T, F, R> Internal for Extension<T, F>
where
    T: Clone + Send + Sync + 'static,
    F: Fn(&T) -> R,
    R: Display,
{
    fn name_pieces(&mut self, names: &mut PieceNames) {
        names.assign_function(&mut self.name);
    }

    fn forms(&self) -> Vec<Vec<String>> {
        self.name.only_form()
    }

    fn add_to(&self, key: PartialKey, parts: &Parts) -> Result<PartialKey, Lack> {
        Ok(key.add(self.name.text(), (self.read)(parts.extensions.get().ok_or(Lack::NoValue)?)))
    }
}

//! Quotas by the result of a function.

use std::fmt::{self, Debug, Display};

use http::request::Parts;

use super::{Internal, KeyFuture, PartialKey, RequestKey};
use crate::missing::Lack;
use crate::piece_name::{PieceName, PieceNames};

const NAME: &str = "key";

/// Counts by the result of a function: see [`key_fn`].
#[derive(Clone)]
pub struct KeyFn<F> {
    function: F,
    name: PieceName,
}

/// Counts by the result of an async function: see [`key_async`].
#[derive(Clone)]
pub struct KeyAsync<F> {
    function: F,
    name: PieceName,
}

/// Counts by the text that a function returns for the request. `None` is a request that lacks its key.
///
/// A panic of the function is that of the service: no permit is taken. Its part in overrides is `key`.
///
/// ```
/// use limiter_tower::key_fn;
///
/// // The version of the API, as few values as the service knows.
/// let key = key_fn(|parts| match parts.headers.get("x-api-version")?.to_str().ok()? {
///     version @ ("1" | "2") => Some(version.to_owned()),
///     _ => Some("other".to_owned()),
/// });
/// # let _ = key;
/// ```
///
/// # Paths
/// **Do not count by a piece of `uri.path()`.** That is the text as the client wrote it: `/%61cme/data` is the tenant
/// `acme` to axum's `Path`, and a tenant of its own to a function that splits the path. So each spelling has a fresh
/// quota. With the feature `axum`, `PathParam` counts by what `Path` returns.
#[must_use]
pub fn key_fn<F, R>(function: F) -> KeyFn<F>
where
    F: Fn(&Parts) -> Option<R>,
    R: Display,
{
    KeyFn { function, name: PieceName::new(NAME) }
}

/// Counts by the text that an async function returns for the request, such as a session's user from a database. `None`
/// is a request that lacks its key.
///
/// The future cannot borrow from the request: copy what it needs first. A panic of the function or of its future is that
/// of the service: no permit is taken. Its part in overrides is `key`.
///
/// ```
/// use limiter_tower::key_async;
///
/// async fn user_of(session: String) -> Option<String> {
///     Some(format!("user of {session}"))
/// }
///
/// let key = key_async(|parts| {
///     let session = parts.headers.get("cookie").and_then(|cookie| cookie.to_str().ok()).map(str::to_owned);
///     async move { user_of(session?).await }
/// });
/// # let _ = key;
/// ```
#[must_use]
pub fn key_async<F, U, R>(function: F) -> KeyAsync<F>
where
    F: Fn(&Parts) -> U,
    U: Future<Output = Option<R>> + Send + 'static,
    R: Display,
{
    KeyAsync { function, name: PieceName::new(NAME) }
}

impl<F, R> RequestKey for KeyFn<F>
where
    F: Fn(&Parts) -> Option<R> + Send + Sync + 'static,
    R: Display,
{
}

impl<F, R> Internal for KeyFn<F>
where
    F: Fn(&Parts) -> Option<R>,
    R: Display,
{
    fn name_pieces(&mut self, names: &mut PieceNames) {
        names.assign_function(&mut self.name);
    }

    fn forms(&self) -> Vec<Vec<String>> {
        self.name.only_form()
    }

    fn add_to(&self, key: PartialKey, parts: &Parts) -> Result<PartialKey, Lack> {
        Ok(key.add(self.name.text(), (self.function)(parts).ok_or(Lack::NoValue)?))
    }
}

impl<F, U, R> RequestKey for KeyAsync<F>
where
    F: Fn(&Parts) -> U + Send + Sync + 'static,
    U: Future<Output = Option<R>> + Send + 'static,
    R: Display,
{
}

impl<F, U, R> Internal for KeyAsync<F>
where
    F: Fn(&Parts) -> U,
    U: Future<Output = Option<R>> + Send + 'static,
    R: Display,
{
    fn name_pieces(&mut self, names: &mut PieceNames) {
        names.assign_function(&mut self.name);
    }

    fn forms(&self) -> Vec<Vec<String>> {
        self.name.only_form()
    }

    fn is_async(&self) -> bool {
        true
    }

    /// Returns a lack: the layer adds this key by [`add_later`](Internal::add_later).
    fn add_to(&self, _: PartialKey, _: &Parts) -> Result<PartialKey, Lack> {
        Err(Lack::NoValue)
    }

    fn add_later<'a>(&'a self, key: PartialKey, parts: &'a Parts) -> KeyFuture<'a> {
        let value = (self.function)(parts);
        let name = &self.name;
        Box::pin(async move { Ok(key.add(name.text(), value.await.ok_or(Lack::NoValue)?)) })
    }
}

impl<F> Debug for KeyFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFn").finish_non_exhaustive()
    }
}

impl<F> Debug for KeyAsync<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyAsync").finish_non_exhaustive()
    }
}

//! The layer that adds the limits of a handler's own decisions to its answers.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{HeaderMap, HeaderName, Request, Response};
use limiter_core::http::Fields;
use limiter_core::service::CollectedQuotas;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::quota_fields::FieldText;

/// A layer of `tower` that adds fields about the limits which decide inside of the service: those of annotated handlers,
/// and of direct calls in them.
///
/// A handler needs no other type and no argument for them. An answer has a member for each limit that decided about its
/// request, whether the call was allowed or denied, and whatever the handler made of it. A redirect has no fields.
///
/// ```
/// use limiter_core::http::Fields;
/// use limiter_tower::RateLimitFieldsLayer;
///
/// let layer = RateLimitFieldsLayer::new();
/// let of_two_rules = RateLimitFieldsLayer::new().only(["search", "export"]).fields(Fields::Draft11);
/// # let _ = (layer, of_two_rules);
/// ```
///
/// # Decisions
/// The layer has the decisions that are made while it calls the service or polls the future of the answer: in the
/// handler's task. It has not:
///
/// - those of tasks and threads that the handler starts, as by `tokio::spawn` and `spawn_blocking`
/// - those of a body that is sent after its head, as a stream
/// - those of a [`RateLimitLayer`](crate::RateLimitLayer), which adds its own fields, and of an
///   [`OutgoingLayer`](crate::OutgoingLayer), which are about another service
/// - those that counted nothing: of rules in shadow mode or without a limit, and of failure policies
///
/// Of several decisions about one limit, such as calls of one rule in a loop, the last one is in the fields. Direct calls
/// without a [name](limiter_core::Limiter::named) are one rule, `check`.
///
/// Also a decision about several limits then returns [all of them](limiter_core::Decision::limits).
///
/// # Nested layers
/// A decision is that of the innermost of these layers. A limit that an answer has already, as one that the handler itself
/// has written, is not added.
#[derive(Clone, Debug, Default)]
#[must_use = "a layer has no effect until it is added to a service"]
pub struct RateLimitFieldsLayer {
    shown: Shown,
}

/// The fields that a layer adds, and the rules that it adds them for.
#[derive(Clone, Debug, Default)]
struct Shown {
    fields: Fields,
    /// `None` for all rules.
    only: Option<Arc<[String]>>,
}

impl RateLimitFieldsLayer {
    /// Creates a layer that adds the fields of the draft for all rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the fields. [`Fields::Legacy`] describe one limit: one that denied, or the one with the least permits left.
    pub fn fields(mut self, fields: Fields) -> Self {
        self.shown.fields = fields;
        self
    }

    /// Leaves out all rules but those with these names, so that clients do not see limits of internal calls.
    pub fn only<N: Into<String>>(mut self, rules: impl IntoIterator<Item = N>) -> Self {
        self.shown.only = Some(rules.into_iter().map(Into::into).collect());
        self
    }
}

impl<S> Layer<S> for RateLimitFieldsLayer {
    type Service = RateLimitFields<S>;

    fn layer(&self, inner: S) -> RateLimitFields<S> {
        RateLimitFields { inner, shown: self.shown.clone() }
    }
}

/// A service that adds fields about the limits which decide inside of another one: see [`RateLimitFieldsLayer`].
#[derive(Clone, Debug)]
pub struct RateLimitFields<S> {
    inner: S,
    shown: Shown,
}

impl<S, B, C> Service<Request<B>> for RateLimitFields<S>
where
    S: Service<Request<B>, Response = Response<C>>,
{
    type Response = Response<C>;
    type Error = S::Error;
    type Future = FieldsFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> FieldsFuture<S::Future> {
        let mut collected = CollectedQuotas::default();
        // A service may decide before it returns its future.
        let future = collected.collect(|| self.inner.call(request));
        FieldsFuture { future, collected, shown: self.shown.clone() }
    }
}

pin_project! {
    /// The future of an answer of [`RateLimitFields`].
    pub struct FieldsFuture<F> {
        #[pin]
        future: F,
        collected: CollectedQuotas,
        shown: Shown,
    }
}

impl<F: Future<Output = Result<Response<C>, E>>, C, E> Future for FieldsFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let mut answer = ready!(this.collected.collect(|| this.future.poll(context)))?;
        if !answer.status().is_redirection() {
            this.shown.add_fields(this.collected, answer.headers_mut());
        }
        Poll::Ready(Ok(answer))
    }
}

impl<F> fmt::Debug for FieldsFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FieldsFuture").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl Shown {
    /// Adds the fields to those of an answer. The lists of the draft get the limits that they lack. Of other fields the
    /// first value stays.
    fn add_fields(&self, collected: &CollectedQuotas, headers: &mut HeaderMap) {
        let is_of_shown_rule =
            |rule: &str| self.only.as_ref().is_none_or(|only| only.iter().any(|shown| shown == rule));
        let present = Members::of(headers);
        let is_shown = |rule: &str, name: &dyn fmt::Display| is_of_shown_rule(rule) && !present.have(name);
        collected.write_fields(self.fields, is_shown, |name, text| {
            let is_list = name.starts_with("ratelimit");
            if let Some(value) = FieldText::of(text).to_value() {
                let name = HeaderName::from_static(name);
                if is_list {
                    headers.append(name, value);
                } else {
                    headers.entry(name).or_insert(value);
                }
            }
        });
    }
}

/// The lists of limits that an answer has already, one for each line.
struct Members(Vec<String>);

impl Members {
    fn of(headers: &HeaderMap) -> Self {
        let lines = headers.get_all("ratelimit").into_iter().filter_map(|line| line.to_str().ok());
        Self(lines.map(str::to_owned).collect())
    }

    /// Returns whether one of the lists has a member of this name.
    fn have(&self, name: &dyn fmt::Display) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let name = format!("\"{name}\"");
        self.0.iter().any(|line| members(line).any(|member| member.trim_start().starts_with(&name)))
    }
}

/// The members of a list of structured fields. A comma within a string separates none.
fn members(list: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    list.split(move |next| {
        match next {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = is_quoted,
            '"' => is_quoted = !is_quoted,
            _ => {}
        }
        next == ',' && !is_quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_found_by_its_whole_name() {
        let lists = Members(vec![r#""a, \"b\", c";r=1;t=2, "d";r=3"#.to_owned(), r#""e,";r=1"#.to_owned()]);
        let has = [r#"a, \"b\", c"#, "d", "e,"].map(|name| lists.have(&name));
        let lacks = [r#"b\"#, "c", "a", "e", ";r=1", "", "f"].map(|name| lists.have(&name));
        assert_eq!((has, lacks), ([true; 3], [false; 7]));
        assert_eq!(members(r#""a, \"b\", c";r=1;t=2, "d";r=3"#).count(), 2);
    }
}

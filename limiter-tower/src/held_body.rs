//! The body of a response whose request holds slots of limits of concurrent calls until it has ended.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use limiter_core::service::HeldSlots;
use pin_project_lite::pin_project;

/// The slots that a request holds, of all its limits of [concurrent calls](limiter_core::Limit::concurrent). Dropped, they
/// are free. Most requests have none.
#[must_use = "the slots are free again at once when this is dropped"]
#[derive(Debug, Default)]
pub struct CallSlots {
    #[expect(dead_code, reason = "its drop frees the slots")]
    held: HeldSlots,
}

impl CallSlots {
    pub(crate) fn new(held: HeldSlots) -> Self {
        Self { held }
    }
}

pin_project! {
    /// The body of a response. It holds the slots of its request until it has ended, has failed or is dropped.
    ///
    /// Frames, trailers and the size are those of the body inside. A request without slots costs no allocation.
    #[derive(Debug, Default)]
    pub struct HeldBody<B> {
        #[pin]
        body: B,
        slots: CallSlots,
    }
}

impl<B> HeldBody<B> {
    /// Creates a body that holds slots, such as those of [`OutgoingLayer::hold_by`](crate::OutgoingLayer::hold_by).
    pub fn new(body: B, slots: CallSlots) -> Self {
        Self { body, slots }
    }

    /// Returns the body inside.
    pub fn get_ref(&self) -> &B {
        &self.body
    }

    /// Returns the body inside.
    pub fn get_mut(&mut self) -> &mut B {
        &mut self.body
    }

    /// Returns the body inside, and frees the slots.
    pub fn into_inner(self) -> B {
        self.body
    }
}

/// A text without slots: a layer around another one answers denied requests with it.
impl<B: From<String>> From<String> for HeldBody<B> {
    fn from(text: String) -> Self {
        Self::new(text.into(), CallSlots::default())
    }
}

impl<B: Body> Body for HeldBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            *this.slots = CallSlots::default();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

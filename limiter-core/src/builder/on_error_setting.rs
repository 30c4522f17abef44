//! The argument of `Builder::on_error`.

use crate::Error;
use crate::builder::Builder;
use crate::on_error::OnError;

/// An argument of [`Builder::on_error`]: a policy, or an observer of failures.
#[diagnostic::on_unimplemented(
    message = "`on_error` takes a policy or an observer of failures",
    note = "a policy: `OnError::Open`, `Closed`, `Standby` or `Raise`",
    note = "an observer: `|error: &Error| …` with the type written out, or use `on_failure`"
)]
pub trait OnErrorSetting: sealed::Sealed {
    #[doc(hidden)]
    fn apply(self, builder: &mut Builder);
}

impl OnErrorSetting for OnError {
    fn apply(self, builder: &mut Builder) {
        builder.on_error = self;
    }
}

impl<F: Fn(&Error) + Send + Sync + 'static> OnErrorSetting for F {
    fn apply(self, builder: &mut Builder) {
        builder.observers.on_failed(self);
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::OnError {}
    impl<F: Fn(&crate::Error) + Send + Sync + 'static> Sealed for F {}
}

//! The script calls in flight to one server.

use std::cell::RefCell;
use std::ptr;
use std::rc::{Rc, Weak};

use crate::store::redis::connection::attempt::Attempt;

/// Attempts that have no reply yet. Calls in the queue wait for them.
#[derive(Default)]
pub(crate) struct Attempts(RefCell<Vec<Weak<Attempt>>>);

impl Attempts {
    pub(crate) fn add(&self, attempt: &Rc<Attempt>) {
        self.0.borrow_mut().push(Rc::downgrade(attempt));
    }

    pub(crate) fn remove(&self, attempt: &Rc<Attempt>) {
        self.0.borrow_mut().retain(|other| !ptr::eq(other.as_ptr(), Rc::as_ptr(attempt)));
    }

    /// Reports that a call in the queue timed out: the attempts have used up its time.
    pub(crate) fn report_timeout(&self) {
        self.0.borrow().iter().filter_map(Weak::upgrade).for_each(|attempt| attempt.report_timeout());
    }
}

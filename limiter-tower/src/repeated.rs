//! Two layers of one name in one request.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use http::request::Parts;
use limiter_core::Allowed;
use limiter_core::service::rule_name;

/// The rules with a warning.
static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The rules of a request's earlier layers, except for the last of them. Its permit is in the extensions.
#[derive(Clone, Debug, Default)]
struct EarlierRules(Vec<&'static str>);

/// Adds the permit of a layer to a request. The permit of the layer before it is replaced, and its rule is kept.
pub(crate) fn add_permit(allowed: Allowed, parts: &mut Parts) {
    if let Some(earlier) = parts.extensions.insert(allowed) {
        parts.extensions.get_or_insert_default::<EarlierRules>().0.push(rule_name(&earlier));
    }
}

/// Warns once of each name that two layers of a request have.
#[derive(Debug, Default)]
pub(crate) struct RepeatedLog {
    /// True once this layer needs no further check of its name.
    is_done: AtomicBool,
}

impl RepeatedLog {
    /// Logs a warning if an earlier layer of the same rule has taken permits of the request.
    pub(crate) fn check(&self, rule: &str, parts: &Parts) {
        if self.take_due(rule, parts) {
            tracing::warn!(
                target: "rate_limited",
                rule,
                "a request passes two layers of this name, and takes the permits of both: add the layer once, or give \
                 the layers two names"
            );
        }
    }

    /// Returns whether the warning of a rule is due for a request. It is due once in this process.
    fn take_due(&self, rule: &str, parts: &Parts) -> bool {
        let earlier = || {
            let before_last = parts.extensions.get::<EarlierRules>().into_iter().flat_map(|rules| &rules.0).copied();
            parts.extensions.get().map(Allowed::name).into_iter().chain(before_last)
        };
        // No code of the program runs under the lock.
        !self.is_done.load(Ordering::Relaxed)
            && earlier().any(|earlier| earlier == rule)
            // While another thread has the lock, the next request tries again. After a fork it may never be released.
            && WARNED.try_lock().is_ok_and(|mut warned| {
                !self.is_done.swap(true, Ordering::Relaxed) && warned.insert(rule.to_owned())
            })
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use limiter_core::{Key, Limiter};

    use super::*;

    #[test]
    fn a_name_that_two_layers_of_a_request_have_is_due_once() {
        let passed = |rules: &[&str]| {
            let (limit, mut parts) = ("1/1m".parse().expect("a limit"), Request::new(()).into_parts().0);
            for rule in rules {
                let decision = Limiter::memory().named(rule).check_blocking(&Key::new("a"), &limit).expect("decides");
                add_permit(decision.into_result().expect("allowed"), &mut parts);
            }
            parts
        };
        let (first, second) = (RepeatedLog::default(), RepeatedLog::default());
        assert!(!first.take_due("twice", &passed(&[])));
        assert!(!first.take_due("twice", &passed(&["another", "a third", "another"])));
        assert_eq!([(); 2].map(|()| first.take_due("twice", &passed(&["twice"]))), [true, false]);
        assert!(!second.take_due("twice", &passed(&["twice"])), "another layer of this name");
        assert!(second.is_done.load(Ordering::Relaxed));
        let before_another = passed(&["far", "another", "a third"]);
        assert!(RepeatedLog::default().take_due("far", &before_another), "not the layer before this one");
    }
}

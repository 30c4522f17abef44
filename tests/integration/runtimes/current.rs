//! Tests of `Limiter::current`, scopes and the installed limiter.

use rate_limited::{Limiter, OnError};

use super::{current_thread, multi_thread};
use crate::child_process;
use crate::support::{key, limit};

/// Returns a limiter that tests identify by the policy in its `Debug` form.
fn limiter_with_mark(policy: OnError) -> Limiter {
    Limiter::builder().on_error(policy).build().expect("no URL")
}

fn current_mark() -> String {
    mark(&Limiter::current())
}

fn mark(limiter: &Limiter) -> String {
    let shown = format!("{limiter:?}");
    let (_, current_mark) = shown.split_once("on_error: ").expect("a policy");
    current_mark.split(',').next().expect("a word").to_owned()
}

#[tokio::test]
async fn inner_scope_shadows_the_outer_one() {
    let (open, closed) = (limiter_with_mark(OnError::Open), limiter_with_mark(OnError::Closed));
    let outside = current_mark();
    open.scope(async {
        assert_eq!(current_mark(), "Open");
        closed.scope(async { assert_eq!(current_mark(), "Closed") }).await;
        assert_eq!(current_mark(), "Open");
        closed.scope_sync(|| {
            assert_eq!(current_mark(), "Closed");
            open.scope_sync(|| assert_eq!(current_mark(), "Open"));
            assert_eq!(current_mark(), "Closed");
        });
        tokio::task::yield_now().await;
        assert_eq!(current_mark(), "Open");
    })
    .await;
    assert_eq!(current_mark(), outside);
}

#[tokio::test]
async fn interleaved_tasks_keep_their_scopes() {
    let scoped = |policy, name: &'static str| async move {
        let run = async {
            for _ in 0..10 {
                assert_eq!(current_mark(), name);
                tokio::task::yield_now().await;
            }
        };
        limiter_with_mark(policy).scope(run).await;
    };
    tokio::join!(scoped(OnError::Open, "Open"), scoped(OnError::Closed, "Closed"), scoped(OnError::Raise, "Raise"));
}

#[test]
fn spawned_tasks_and_threads_are_outside_the_scope() {
    multi_thread().block_on(limiter_with_mark(OnError::Closed).scope(async {
        let mark_in_task = tokio::spawn(async { current_mark() }).await.expect("no panic");
        let mark_in_thread = std::thread::spawn(current_mark).join().expect("no panic");
        assert_ne!(mark_in_task, "Closed");
        assert_eq!(mark_in_task, mark_in_thread);
    }));
}

#[test]
fn panic_ends_a_scope() {
    let outside = current_mark();
    let panicked = std::panic::catch_unwind(|| limiter_with_mark(OnError::Closed).scope_sync(|| panic!("in a scope")));
    assert!(panicked.is_err());
    assert_eq!(current_mark(), outside);
}

#[test]
fn limiter_is_installed_once_per_process() {
    child_process::run("runtimes::current::install_limiter", &[("", ""); 0]);
}

#[test]
#[ignore = "needs a process of its own, since a process has one limiter for all"]
fn install_limiter() {
    if !child_process::is_child() {
        return;
    }
    limiter_with_mark(OnError::Closed).install().expect("the first");
    let error = limiter_with_mark(OnError::Open).install().expect_err("the second");
    assert_eq!(
        error.to_string(),
        "`Limiter::install` must be called at most once in a process, got a second call: \
         use `Limiter::scope` for another default, or `InstallError::into_limiter` to keep the limiter"
    );
    assert_eq!(mark(&error.into_limiter()), "Open");
    // One quota for all runtimes.
    for admitted in [true, true, false, false] {
        for runtime in [multi_thread(), current_thread()] {
            let decision = runtime.block_on(async {
                assert_eq!(current_mark(), "Closed");
                tokio::spawn(async { Limiter::current().check(&key("a"), &limit("4/h")).await }).await
            });
            assert_eq!(decision.expect("no panic").expect("a decision").is_allowed(), admitted);
        }
    }
    limiter_with_mark(OnError::Raise).scope_sync(|| assert_eq!(current_mark(), "Raise"));
}

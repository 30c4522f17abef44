//! Which limiter is the current one.

use rate_limited::{Limiter, OnError};

use super::{current_thread, multi_thread};
use crate::child;
use crate::support::{key, limit};

/// One to tell from others: by the policy in its `Debug` form, which is of no use to it otherwise.
fn marked(policy: OnError) -> Limiter {
    Limiter::builder().on_error(policy).build().expect("no URL")
}

fn mark() -> String {
    mark_of(&Limiter::current())
}

fn mark_of(limiter: &Limiter) -> String {
    let shown = format!("{limiter:?}");
    let (_, mark) = shown.split_once("on_error: ").expect("a policy");
    mark.split(',').next().expect("a word").to_owned()
}

#[tokio::test]
async fn a_scope_shadows_what_is_around_it() {
    let (open, closed) = (marked(OnError::Open), marked(OnError::Closed));
    let outside = mark();
    open.scope(async {
        assert_eq!(mark(), "Open");
        closed.scope(async { assert_eq!(mark(), "Closed") }).await;
        assert_eq!(mark(), "Open");
        closed.scope_sync(|| {
            assert_eq!(mark(), "Closed");
            open.scope_sync(|| assert_eq!(mark(), "Open"));
            assert_eq!(mark(), "Closed");
        });
        tokio::task::yield_now().await;
        assert_eq!(mark(), "Open");
    })
    .await;
    assert_eq!(mark(), outside);
}

#[tokio::test]
async fn tasks_that_take_turns_keep_their_scopes() {
    let scoped = |policy, name: &'static str| async move {
        let run = async {
            for _ in 0..10 {
                assert_eq!(mark(), name);
                tokio::task::yield_now().await;
            }
        };
        marked(policy).scope(run).await;
    };
    tokio::join!(scoped(OnError::Open, "Open"), scoped(OnError::Closed, "Closed"), scoped(OnError::Raise, "Raise"));
}

#[test]
fn a_spawned_task_and_a_thread_have_no_scope() {
    multi_thread().block_on(marked(OnError::Closed).scope(async {
        let mark_in_task = tokio::spawn(async { mark() }).await.expect("no panic");
        let mark_in_thread = std::thread::spawn(mark).join().expect("no panic");
        assert_ne!(mark_in_task, "Closed");
        assert_eq!(mark_in_task, mark_in_thread);
    }));
}

#[test]
fn a_panic_ends_a_scope() {
    let outside = mark();
    let panicked = std::panic::catch_unwind(|| marked(OnError::Closed).scope_sync(|| panic!("in a scope")));
    assert!(panicked.is_err());
    assert_eq!(mark(), outside);
}

#[test]
fn one_limiter_is_installed_for_the_process() {
    child::run("runtimes::current::installs", &[("", ""); 0]);
}

#[test]
#[ignore = "needs a process of its own, since a process has one limiter for all"]
fn installs() {
    if !child::is_one() {
        return;
    }
    marked(OnError::Closed).install().expect("the first");
    let error = marked(OnError::Open).install().expect_err("the second");
    assert_eq!(
        error.to_string(),
        "`Limiter::install` must be called at most once in a process, got a second call: \
         use `Limiter::scope` for another default, or `InstallError::into_limiter` to keep the limiter"
    );
    assert_eq!(mark_of(&error.into_limiter()), "Open");
    // One quota for all runtimes, whichever there are.
    for admitted in [true, true, false, false] {
        for runtime in [multi_thread(), current_thread()] {
            let decision = runtime.block_on(async {
                assert_eq!(mark(), "Closed");
                tokio::spawn(async { Limiter::current().check(&key("a"), &limit("4/h")).await }).await
            });
            assert_eq!(decision.expect("no panic").expect("a decision").is_allowed(), admitted);
        }
    }
    marked(OnError::Raise).scope_sync(|| assert_eq!(mark(), "Raise"));
}

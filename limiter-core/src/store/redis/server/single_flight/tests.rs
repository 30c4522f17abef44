use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Waker};

use super::*;

const LONG: Duration = Duration::from_secs(3600);

/// Jobs that end on command, and are counted.
struct Jobs {
    flights: SingleFlight<&'static str, usize>,
    started: Arc<AtomicUsize>,
}

impl Jobs {
    fn new(kept: Duration) -> Self {
        Self { flights: SingleFlight::new("test-job", kept), started: Arc::default() }
    }

    /// Runs a job that gives its number, from 1 on, once it is told to.
    async fn run(&self, key: &'static str, end: Receiver<()>) -> Result<usize, JobError> {
        let started = Arc::clone(&self.started);
        let job = move || {
            let number = started.fetch_add(1, Ordering::SeqCst) + 1;
            end.recv().expect("told to end");
            number
        };
        self.flights.run(key, job).await
    }

    fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }

    /// Starts a job whose caller goes away, and ends it.
    async fn end_without_a_caller(&self) {
        let (end, ends) = channel();
        assert!(!is_ready(pin!(self.run("a", ends))));
        let mut result = self.flights.flights.lock().expect("no panic")["a"].result.clone();
        end.send(()).expect("it waits");
        result.wait_for(Option::is_some).await.expect("a result");
    }
}

fn is_ready(future: Pin<&mut impl Future>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// A job that is not told to end until the test is over.
fn hanging() -> (Sender<()>, Receiver<()>) {
    channel()
}

/// The end of a job that ends at once.
fn at_once() -> Receiver<()> {
    let (end, ends) = channel();
    end.send(()).expect("an open channel");
    ends
}

#[tokio::test]
async fn callers_that_come_while_a_job_runs_get_its_result() {
    let jobs = Jobs::new(LONG);
    let (end, ends) = channel();
    let mut first = pin!(jobs.run("a", ends));
    assert!(!is_ready(first.as_mut()));
    let mut others: Vec<_> = (0..40).map(|_| Box::pin(jobs.run("a", at_once()))).collect();
    others.iter_mut().for_each(|other| assert!(!is_ready(other.as_mut())));
    others.truncate(20);
    end.send(()).expect("it waits");
    for other in others {
        assert_eq!(other.await.expect("a result"), 1);
    }
    assert_eq!(first.await.expect("a result"), 1);
    assert_eq!(jobs.started(), 1);
    assert_eq!(jobs.run("a", at_once()).await.expect("a result"), 2, "a result is not used again");
}

#[tokio::test]
async fn a_job_that_hangs_delays_no_other_key() {
    let jobs = Jobs::new(LONG);
    let (_end, ends) = hanging();
    assert!(!is_ready(pin!(jobs.run("a", ends))));
    for _ in 0..3 {
        assert!(jobs.run("b", at_once()).await.is_ok());
    }
}

#[tokio::test]
async fn a_result_that_came_late_goes_to_the_next_caller() {
    let jobs = Jobs::new(LONG);
    jobs.end_without_a_caller().await;
    assert_eq!(jobs.run("a", at_once()).await.expect("a result"), 1);
    assert_eq!(jobs.run("a", at_once()).await.expect("a result"), 2);
}

#[tokio::test]
async fn a_result_that_came_long_ago_is_not_used() {
    let jobs = Jobs::new(Duration::ZERO);
    jobs.end_without_a_caller().await;
    assert_eq!(jobs.run("a", at_once()).await.expect("a result"), 2);
}

#[tokio::test]
async fn a_panic_is_an_error_and_the_next_caller_starts_another_job() {
    let jobs = Jobs::new(LONG);
    let panicked = jobs.flights.run("a", || panic!("the job's own fault")).await;
    assert!(matches!(panicked, Err(JobError::Ended)), "{panicked:?}");
    assert_eq!(jobs.run("a", at_once()).await.expect("a result"), 1);
}

#[tokio::test]
async fn a_child_process_does_not_wait_for_a_job_of_its_parent() {
    let jobs = Jobs::new(LONG);
    let (_end, ends) = hanging();
    assert!(!is_ready(pin!(jobs.run("a", ends))));
    jobs.flights.flights.lock().expect("no panic").get_mut("a").expect("under way").process += 1;
    assert!(jobs.run("a", at_once()).await.is_ok());
}

#[test]
fn a_lock_that_stays_taken_holds_nobody_up() {
    let jobs = Jobs::new(LONG);
    let _taken = jobs.flights.flights.lock().expect("no panic");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    assert!(runtime.block_on(jobs.run("a", at_once())).is_ok());
}

#[tokio::test]
async fn jobs_under_way_are_bounded() {
    let flights = SingleFlight::<usize, ()>::new("test-job", LONG);
    let senders: Vec<_> = (0..MAX_JOBS)
        .map(|key| {
            let (sender, result) = watch::channel(None);
            flights.flights.lock().expect("no panic").insert(key, Flight { process: process::id(), result });
            sender
        })
        .collect();
    let refused = flights.run(MAX_JOBS, || ()).await;
    assert!(matches!(&refused, Err(JobError::NotStarted(error)) if error.to_string().contains("256")), "{refused:?}");
    drop(senders);
    assert!(flights.run(MAX_JOBS, || ()).await.is_ok());
}

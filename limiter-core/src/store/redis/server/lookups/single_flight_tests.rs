use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Waker};

use crate::store::redis::server::lookups::*;

const LONG: Duration = Duration::from_secs(3600);

/// Jobs that end when the test releases them, and a count of those started.
struct Jobs {
    flights: SingleFlight<&'static str, usize>,
    started: Arc<AtomicUsize>,
}

impl Jobs {
    fn new(result_ttl: Duration) -> Self {
        Self { flights: SingleFlight::new("test-job", result_ttl), started: Arc::default() }
    }

    /// Runs a job that waits for `released`, then returns its number. The first job has number 1.
    async fn run(&self, key: &'static str, released: Receiver<()>) -> Result<usize, JobError> {
        let started = Arc::clone(&self.started);
        let job = move || {
            let number = started.fetch_add(1, Ordering::SeqCst) + 1;
            released.recv().expect("released");
            number
        };
        self.flights.run(key, job).await
    }

    fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }

    /// Starts a job, drops its caller, and waits until the job has ended.
    async fn end_without_a_caller(&self) {
        let (release, released) = channel();
        assert!(!is_ready(pin!(self.run("a", released))));
        let mut result = self.flights.flights.lock().expect("no panic")["a"].clone();
        release.send(()).expect("it waits");
        result.wait_for(Option::is_some).await.expect("a result");
    }
}

fn is_ready(future: Pin<&mut impl Future>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// A channel for a job that hangs until the sender is dropped.
fn hanging() -> (Sender<()>, Receiver<()>) {
    channel()
}

/// A channel for a job that ends at once.
fn released() -> Receiver<()> {
    let (release, released) = channel();
    release.send(()).expect("an open channel");
    released
}

#[tokio::test]
async fn callers_share_the_result_of_a_running_job() {
    let jobs = Jobs::new(LONG);
    let (release, job_released) = channel();
    let mut first = pin!(jobs.run("a", job_released));
    assert!(!is_ready(first.as_mut()));
    let mut others: Vec<_> = (0..40).map(|_| Box::pin(jobs.run("a", released()))).collect();
    others.iter_mut().for_each(|other| assert!(!is_ready(other.as_mut())));
    others.truncate(20);
    release.send(()).expect("it waits");
    for other in others {
        assert_eq!(other.await.expect("a result"), 1);
    }
    assert_eq!(first.await.expect("a result"), 1);
    assert_eq!(jobs.started(), 1);
    assert_eq!(jobs.run("a", released()).await.expect("a result"), 2, "a result is not used again");
}

#[tokio::test]
async fn a_hanging_job_delays_no_other_key() {
    let jobs = Jobs::new(LONG);
    let (_release, never_released) = hanging();
    assert!(!is_ready(pin!(jobs.run("a", never_released))));
    for _ in 0..3 {
        assert!(jobs.run("b", released()).await.is_ok());
    }
}

#[tokio::test]
async fn a_result_without_a_caller_goes_to_the_next_caller() {
    let jobs = Jobs::new(LONG);
    jobs.end_without_a_caller().await;
    assert_eq!(jobs.run("a", released()).await.expect("a result"), 1);
    assert_eq!(jobs.run("a", released()).await.expect("a result"), 2);
}

#[tokio::test]
async fn a_result_older_than_its_ttl_is_not_used() {
    let jobs = Jobs::new(Duration::ZERO);
    jobs.end_without_a_caller().await;
    assert_eq!(jobs.run("a", released()).await.expect("a result"), 2);
}

#[tokio::test]
async fn after_a_panic_the_next_caller_starts_another_job() {
    let jobs = Jobs::new(LONG);
    let panicked = jobs.flights.run("a", || panic!("the job's own fault")).await;
    assert!(matches!(panicked, Err(JobError::NoResult)), "{panicked:?}");
    assert_eq!(jobs.run("a", released()).await.expect("a result"), 1);
}

#[tokio::test]
async fn jobs_in_flight_are_bounded() {
    let flights = SingleFlight::<usize, ()>::new("test-job", LONG);
    let senders: Vec<_> = (0..MAX_JOBS)
        .map(|key| {
            let (sender, result) = watch::channel(None);
            flights.flights.lock().expect("no panic").insert(key, result);
            sender
        })
        .collect();
    let refused = flights.run(MAX_JOBS, || ()).await;
    assert!(matches!(&refused, Err(JobError::NotStarted(error)) if error.to_string().contains("256")), "{refused:?}");
    drop(senders);
    assert!(flights.run(MAX_JOBS, || ()).await.is_ok());
}

//! A worker: its tasks send jobs to the API of a partner, and together they stay within the partner's limit.
//!
//! ```text
//! cargo run -p worker                                       # a partner of its own, in memory; ends by itself
//! cargo run -p worker -- --redis redis://127.0.0.1:6379     # several such processes share the limit
//! ```
//!
//! A call waits up to a second for its permit. Without one it is not sent: the job goes back into the queue, and its task
//! sleeps for the time that the denial names, and a random time more, so that tasks and processes do not return at once.
//! After a 429 or 503 with `Retry-After` no call is sent before that time. Ctrl-C ends the worker at once: jobs under way
//! are back in the queue, and all of it counts as left.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rate_limited::tower::{Outgoing, OutgoingError, OutgoingLayer};
use rate_limited::{Limiter, OnError};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower::{Layer, ServiceExt};

use crate::options::Options;
use crate::queue::{Job, Queue};

mod options;
mod partner;
mod queue;

type PartnerClient = Outgoing<Client<HttpConnector, Body>>;

/// The longest random time that is added to a retry.
const SPREAD: Duration = Duration::from_millis(250);

#[tokio::main]
async fn main() -> ExitCode {
    match run(options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), Box<dyn Error>> {
    // Without the store a call is not sent: each process alone could pass the partner's limit.
    let limiter = Limiter::builder().url(&options.redis).deadline(Duration::from_secs(5)).on_error(OnError::Closed);
    limiter.connect().await?.install()?;
    let partner: Uri = match options.partner {
        Some(uri) => uri,
        None => partner::start().await?,
    };
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let client = OutgoingLayer::new("partner", options.limit).wait(Duration::from_secs(1)).layer(client);

    let queue = Arc::new(Queue::new(options.jobs));
    let mut tasks = JoinSet::new();
    for _ in 0..options.tasks {
        tasks.spawn(work(client.clone(), partner.clone(), Arc::clone(&queue)));
    }
    tokio::select! {
        () = async { while tasks.join_next().await.is_some() {} } => {}
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            tasks.shutdown().await;
        }
    }
    println!("{}", queue.summary());
    Ok(())
}

/// Sends jobs until none is left.
async fn work(client: PartnerClient, partner: Uri, queue: Arc<Queue>) {
    while let Some(job) = queue.take().await {
        let request = Request::post(&partner).body(Body::from(job.number().to_string())).expect("a request");
        let pause = match client.clone().oneshot(request).await {
            Ok(response) if response.status().is_success() => {
                job.done();
                continue;
            }
            // The layer has read `Retry-After`.
            Ok(response) => refused(&job, response.status()),
            Err(OutgoingError::Denied(denied)) => {
                queue.count_denied();
                let pause = denied.retry_after_spread(SPREAD);
                println!("job {} has no permit: its task returns in {:.2} s", job.number(), pause.as_secs_f64());
                pause
            }
            // The partner may have the job. It is sent again: each job has a number, by which the partner can see that.
            Err(error) => {
                eprintln!("job {}: {error}", job.number());
                Duration::from_secs(1)
            }
        };
        // Back into the queue before the pause: another task may have a permit for it.
        drop(job);
        sleep(pause).await;
    }
}

fn refused(job: &Job<'_>, status: StatusCode) -> Duration {
    println!("the partner refuses job {}: {status}", job.number());
    Duration::ZERO
}

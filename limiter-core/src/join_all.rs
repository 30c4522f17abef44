//! Several futures at a time.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Waits for all futures, and returns their outputs in order.
pub(crate) async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in &mut running {
            if output.is_none() {
                match Pin::new(future).poll(context) {
                    Poll::Ready(ready) => *output = Some(ready),
                    Poll::Pending => is_done = false,
                }
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}

//! The gateway: it takes an estimate of tokens from two budgets, streams the answer, and settles what it took.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::{get, post};
use futures_util::stream::unfold;
use rate_limited::{Denied, Error, Key, Limiter, Permit, rate_limited};

use crate::model::{Answer, tokens};

/// The most tokens of an answer. With those of its prompt it is the estimate, which no answer exceeds.
pub(crate) const MAX_TOKENS: u32 = 500;

/// Answers a prompt within the budgets of an organisation and of its user. Both count one receipt.
#[rate_limited(key = "org:{org}", name = "org", limit = "4000/min", cost = estimate, permit = budget)]
#[rate_limited(key = "user:{org}:{user}", name = "user", limit = "1500/min", cost = estimate)]
async fn answer(org: &str, user: &str, prompt: &str, estimate: u32) -> Result<Body, Denied> {
    let meter = Meter { budget, tokens: tokens(prompt) };
    let answer = Answer::begin(prompt, MAX_TOKENS);
    Ok(Body::from_stream(unfold((answer, meter), async |(mut answer, mut meter)| {
        let token = answer.next_token().await?;
        meter.tokens += 1;
        Some((Ok::<_, Infallible>(token), (answer, meter)))
    })))
}

/// The tokens of an answer. It is dropped at the end of the stream, or when the client leaves: the call then counts what was
/// used, and not the estimate.
struct Meter {
    budget: Permit,
    tokens: u32,
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.budget.settle_in_background(self.tokens);
    }
}

async fn post_prompt(Path((org, user)): Path<(String, String)>, prompt: String) -> Result<Body, Denied> {
    let estimate = MAX_TOKENS.saturating_add(tokens(&prompt));
    answer(&org, &user, &prompt, estimate).await
}

/// Tells what is left of an organisation's budget.
async fn get_budget(Path(org): Path<String>) -> Result<String, Error> {
    let budget = "4000/min".parse()?;
    let peeked = Limiter::current().peek(&Key::new("org:").part(org), &budget).await?;
    Ok(format!("{} of {} tokens are left\n", peeked.remaining(), budget.max()))
}

pub(crate) fn router() -> Router {
    Router::new().route("/prompt/{org}/{user}", post(post_prompt)).route("/budget/{org}", get(get_budget))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::{Request, StatusCode};
    use axum::response::Response;
    use http_body_util::BodyExt;
    use limiter_testkit::{RedisServer, unique};
    use tower::ServiceExt;

    use super::*;

    async fn prompt(user: &str, prompt: &str) -> Response {
        let request = Request::post(format!("/prompt/acme/{user}")).body(Body::from(prompt.to_owned())).expect("valid");
        router().oneshot(request).await.expect("a response")
    }

    async fn read(response: Response) -> String {
        let bytes = response.into_body().collect().await.expect("an answer").to_bytes();
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    /// The tokens that are left of the budget of the organisation.
    async fn left() -> u32 {
        let request = Request::get("/budget/acme").body(Body::empty()).expect("valid");
        let text = read(router().oneshot(request).await.expect("a response")).await;
        text.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
    }

    async fn wait_until_left(expected: u32) {
        while left().await != expected {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn budgets_count_what_was_used(limiter: Limiter) {
        limiter
            .scope(async {
                let response = prompt("ann", "count to 7").await;
                assert_eq!(left().await, 4000 - MAX_TOKENS - 3, "the estimate is taken while the answer is written");
                assert_eq!(read(response).await, "1 2 3 4 5 6 7 ");
                wait_until_left(4000 - 10).await;
                // A client that leaves after two tokens.
                let mut body = prompt("ann", "count to 400").await.into_body();
                for _ in 0..2 {
                    body.frame().await.expect("a frame").expect("a token");
                }
                drop(body);
                wait_until_left(4000 - 15).await;
                // Three estimates do not fit into the budget of the user at once.
                let answers = [prompt("ann", "count to 3").await, prompt("ann", "count to 3").await];
                let denied = prompt("ann", "count to 3").await;
                assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
                assert!(denied.headers().contains_key("retry-after"));
                for answer in answers {
                    read(answer).await;
                }
                wait_until_left(4000 - 27).await;
                assert_eq!(prompt("ann", "count to 3").await.status(), StatusCode::OK);
            })
            .await;
    }

    #[tokio::test]
    async fn budgets_in_memory_count_what_was_used() {
        budgets_count_what_was_used(Limiter::memory()).await;
    }

    #[tokio::test]
    async fn budgets_on_redis_count_what_was_used() {
        let builder = Limiter::builder().url(RedisServer::shared().url()).prefix(unique("llm"));
        let limiter = builder.deadline(Duration::from_secs(30)).connect().await.expect("a server");
        budgets_count_what_was_used(limiter).await;
    }
}

//! Calls that show what clients of the service see.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Instant;

use tonic::transport::Endpoint;
use tonic::{Request, Response, Status};
use tonic_types::StatusExt;

use crate::client::limited;
use crate::shop::quotes_client::QuotesClient;
use crate::shop::{Answer, Goods};

/// Calls the service at this address, and prints the results.
///
/// # Errors
/// The service cannot be reached.
pub(crate) async fn run(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let channel = Endpoint::try_from(format!("http://{address}"))?.connect().await?;

    let mut client = QuotesClient::new(channel.clone());
    println!("\n# a user has three quotes a minute");
    for _ in 0..4 {
        show("Quote", client.quote(of_user("7", "bread")).await);
    }
    println!("\n# another user's quote");
    show("Quote", client.quote(of_user("8", "bread")).await);

    let mut client = limited(channel, "4/s".parse()?);
    println!("\n# a client with a limit of its own, of 4 calls in any second: the others wait");
    let began = Instant::now();
    let mut answered = 0;
    for _ in 0..9 {
        answered += u32::from(client.stock(of_user("7", "bread")).await.is_ok());
    }
    println!("Stock: {answered} of 9 calls were answered, in {:.3} s", began.elapsed().as_secs_f64());
    println!("\n# after `RetryInfo` the next call of the method is not sent");
    show("Quote", client.quote(of_user("7", "bread")).await);
    show("Quote", client.quote(of_user("7", "bread")).await);
    show("Stock", client.stock(of_user("7", "bread")).await);
    Ok(())
}

fn of_user(user: &'static str, name: &str) -> Request<Goods> {
    let mut request = Request::new(Goods { name: name.to_owned() });
    request.metadata_mut().insert("user", user.parse().expect("a number is ASCII"));
    request
}

fn show(method: &str, result: Result<Response<Answer>, Status>) {
    match result {
        Ok(answer) => println!("{method}: {}", answer.get_ref().text),
        Err(status) => {
            let retry_info = status.get_details_retry_info().and_then(|info| info.retry_delay);
            println!(
                "{method}: {:?}, RetryInfo {:.3?}: {}",
                status.code(),
                retry_info.unwrap_or_default(),
                status.message()
            );
        }
    }
}

//! The configurations in the pages of docs/gateways.

use std::net::SocketAddr;

/// The addresses in the pages: of the gateway, of the service, and of the program behind them.
const GATEWAY: &str = "127.0.0.1:8000";
const SERVICE: &str = "127.0.0.1:8080";
const PROGRAM: &str = "127.0.0.1:3000";

/// The addresses of a test.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    pub(super) gateway: SocketAddr,
    pub(super) service: SocketAddr,
    pub(super) program: SocketAddr,
}

/// Returns the configurations of a page in a language, with the addresses of a test.
pub(super) fn configurations(page: &str, language: &str, addresses: Addresses) -> Vec<String> {
    let opening = format!("```{language}\n");
    let blocks = page.split(&*opening).skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    let with_addresses = |block: &str| {
        let Addresses { gateway, service, program } = addresses;
        let texts = [(GATEWAY, gateway), (SERVICE, service), (PROGRAM, program)];
        texts.iter().fold(block.to_owned(), |text, (of_page, own)| text.replace(of_page, &own.to_string()))
    };
    blocks.map(with_addresses).collect()
}

//! docs/gateways/envoy.md.

use std::ffi::OsString;
use std::fs;
use std::future::pending;
use std::net::SocketAddr;
use std::path::Path;

use limiter_server::{ListenAddress, Server};
use rate_limited::Limiter;

use super::page::{Addresses, configurations};
use super::process::{Gateway, program_of};
use super::{ask, service};

const PAGE: &str = include_str!("../../../../docs/gateways/envoy.md");

/// The two texts in the page, by their place.
const LIMITS: usize = 0;
const ENVOY: usize = 1;

/// Starts Envoy with a longer time for an answer than 100 ms, which is short on a busy machine.
async fn start(program: &Path, service: SocketAddr, is_open: bool) -> Gateway {
    let behind = service::program().await;
    let prepare = |directory: &Path, addresses: Addresses| -> Vec<OsString> {
        let text = configurations(PAGE, "yaml", addresses).remove(ENVOY);
        let Addresses { gateway, service, program } = addresses;
        let ports = [(8_000, gateway), (8_081, service), (3_000, program)];
        let text = ports.iter().fold(text, |text, (of_page, own)| {
            text.replace(&format!("port_value: {of_page}}}"), &format!("port_value: {}}}", own.port()))
        });
        let text = text.replace("timeout: 0.1s", "timeout: 60s");
        let text = if is_open { text } else { text.replace("failure_mode_deny: false", "failure_mode_deny: true") };
        fs::write(directory.join("envoy.yaml"), text).expect("written");
        ["--disable-hot-restart", "--concurrency", "1", "-c", "envoy.yaml"].map(OsString::from).into()
    };
    Gateway::start(program, service, behind, prepare).await
}

#[tokio::test]
async fn requests_are_limited_by_the_address_of_the_connection() {
    let Some(program) = program_of("envoy") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let unused = Addresses { gateway: any, service: any, program: any };
    let limits = configurations(PAGE, "yaml", unused).remove(LIMITS).replace("per_unit: 100}", "per_unit: 2}");
    let file = directory.path().join("limits.yaml");
    fs::write(&file, limits).expect("written");
    let limiter = Limiter::builder().url("memory:").report_limits(true).build().expect("valid");
    let server = Server::new(limiter).envoy_config([file]).expect("no mistakes");
    let server = server.bind(&ListenAddress::Tcp(any)).await.expect("a free port");
    let server = server.bind_grpc(&ListenAddress::Tcp(any)).await.expect("a free port");
    let Some(ListenAddress::Tcp(address)) = server.grpc_address() else { panic!("a port") };
    tokio::spawn(server.run(pending()));
    let envoy = start(&program, address, false).await;
    for remaining in ["r=1", "r=0"] {
        let admitted = ask(&envoy).await;
        assert_eq!((admitted.status, &*admitted.body), (200, "app"), "{admitted:?}");
        assert!(admitted.field("ratelimit").contains(remaining), "{admitted:?}");
    }
    let denied = envoy.ask("GET / HTTP/1.1\r\nx-forwarded-for: 192.0.2.1").await;
    assert_eq!(denied.status, 429, "an address that a client chose: {denied:?}");
    assert!(!denied.field("retry-after").is_empty(), "{denied:?}");
}

#[tokio::test]
async fn a_stopped_service_lets_all_in_or_none() {
    let Some(program) = program_of("envoy") else { return };
    let (stopped, _socket) = service::refusing();
    assert_eq!(ask(&start(&program, stopped, true).await).await.status, 200);
    assert_eq!(ask(&start(&program, stopped, false).await).await.status, 500);
}

//! docs/gateways/haproxy.md.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::page::{Addresses, configurations};
use super::process::{Gateway, program_of};
use super::{Service, ask, has_fields, limits, service, timed};

const PAGE: &str = include_str!("../../../../docs/gateways/haproxy.md");

/// Starts the gateway. `timeout` is that of the script, in place of 100 ms, which is short on a busy machine.
async fn start(program: &Path, service: SocketAddr, timeout: &str) -> Gateway {
    let behind = service::program().await;
    let prepare = |directory: &Path, addresses: Addresses| -> Vec<OsString> {
        let script = configurations(PAGE, "lua", addresses).remove(0);
        let script = script.replace("timeout = 100,", &format!("timeout = {timeout},"));
        assert!(script.contains(timeout), "{script}");
        fs::write(directory.join("limit.lua"), script).expect("written");
        let configuration = configurations(PAGE, "haproxy", addresses).remove(0);
        fs::write(directory.join("haproxy.cfg"), configuration).expect("written");
        ["-db", "-f", "haproxy.cfg"].map(OsString::from).into()
    };
    Gateway::start(program, service, behind, prepare).await
}

#[tokio::test]
async fn requests_are_limited_and_every_answer_has_the_fields() {
    let Some(program) = program_of("haproxy") else { return };
    let service = Service::start("x-client-ip").await;
    let [first, second, denied] = limits(&start(&program, service.address, "60000").await, &service).await;
    has_fields(&first, 1);
    has_fields(&second, 0);
    assert_eq!(denied.field("content-type"), "application/problem+json");
    assert_eq!(service.remaining("192.0.2.1").await, 2, "an address that a client chose");
}

#[tokio::test]
async fn a_service_that_is_stopped_or_hangs_lets_all_in() {
    let Some(program) = program_of("haproxy") else { return };
    let (stopped, _socket) = service::refusing();
    assert_eq!(ask(&start(&program, stopped, "100").await).await.status, 200);
    let hanging = service::hanging().await;
    let (received, took) = timed(&start(&program, hanging, "100").await).await;
    assert_eq!(received.status, 200);
    assert!(took >= Duration::from_millis(390), "four times `timeout`: {took:?}");
}

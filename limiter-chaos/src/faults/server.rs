//! Faults of one server and of its network.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use limiter_testkit::{Proxy, RedisServer};

use super::Scene;
use crate::transport::Transport;

/// The user of the limiter.
const USER: &str = "app";
const PASSWORD: &str = "s3cret";
const OTHER_PASSWORD_RULE: &str = ">another";

/// A fault of a server behind a proxy, and its repair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    pub(super) inject: fn(&mut RedisServer, &Proxy),
    pub(super) repair: fn(&mut RedisServer, &Proxy),
}

#[derive(Debug)]
struct OneServer {
    proxy: Proxy, // the first field, so that it ends before its server
    server: RedisServer,
    fault: Fault,
}

impl Fault {
    /// Starts an empty server behind a proxy, for this fault.
    pub(super) fn start_scene(self, transport: Transport) -> Box<dyn Scene> {
        let server = transport.server().user(USER, PASSWORD).start();
        let proxy = Proxy::start(&server);
        Box::new(OneServer { proxy, server, fault: self })
    }
}

impl Scene for OneServer {
    fn url(&self) -> String {
        self.proxy.url().to_owned()
    }

    fn ca_certificate(&self) -> Option<PathBuf> {
        self.server.ca_certificate()
    }

    fn inject(&mut self, _lasting: Duration) {
        self.proxy.reset_counts();
        (self.fault.inject)(&mut self.server, &self.proxy);
    }

    fn repair(&mut self) -> Instant {
        (self.fault.repair)(&mut self.server, &self.proxy);
        Instant::now()
    }

    fn connection_attempts(&self) -> Option<(u64, usize)> {
        Some((self.proxy.connections(), self.proxy.max_concurrent_attempts()))
    }
}

const fn network_fault(inject: fn(&mut RedisServer, &Proxy)) -> Fault {
    Fault { inject, repair: |_, proxy| proxy.pass() }
}

pub(super) const KILL: Fault = Fault { inject: |server, _| server.kill(), repair: |server, _| server.restart() };

pub(super) const STOP: Fault = Fault { inject: |server, _| server.pause(), repair: |server, _| server.resume() };

pub(super) const CUT: Fault = network_fault(|_, proxy| proxy.cut());
pub(super) const HALF_OPEN: Fault = network_fault(|_, proxy| proxy.half_open());
pub(super) const STALL: Fault = network_fault(|_, proxy| proxy.stall());
pub(super) const DELAY: Fault = network_fault(|_, proxy| proxy.delay(Duration::from_millis(300)));
pub(super) const GARBLE: Fault = network_fault(|_, proxy| proxy.garble());
pub(super) const CUT_REPLY: Fault = network_fault(|_, proxy| proxy.cut_replies());

/// The limiter's next calls load the script again, so no repair is needed; the second flush takes its place.
pub(super) const SCRIPT_FLUSH: Fault =
    Fault { inject: |server, _| server.flush_scripts(), repair: |server, _| server.flush_scripts() };

/// The fault is the flush itself, so it happens at the repair.
pub(super) const FLUSHALL: Fault = Fault { inject: |_, _| {}, repair: |server, _| drop(server.command(&["FLUSHALL"])) };

pub(super) const MAXMEMORY: Fault = Fault {
    inject: |server, _| drop(server.command(&["CONFIG", "SET", "maxmemory", "1"])),
    repair: |server, _| drop(server.command(&["CONFIG", "SET", "maxmemory", "0"])),
};

pub(super) const ACL: Fault = Fault {
    inject: |server, _| drop(server.command(&["ACL", "SETUSER", USER, "-@all"])),
    repair: |server, _| drop(server.command(&["ACL", "SETUSER", USER, "+@all"])),
};

pub(super) const PASSWORD_CHANGED: Fault = Fault {
    inject: |server, _| {
        server.command(&["ACL", "SETUSER", USER, "resetpass", OTHER_PASSWORD_RULE]);
        server.command(&["CLIENT", "KILL", "USER", USER]);
    },
    repair: |server, _| drop(server.command(&["ACL", "SETUSER", USER, &format!(">{PASSWORD}")])),
};

//! Faults of one server, and of the network before it.

use std::time::{Duration, Instant};

use super::Scene;
use crate::proxy::Proxy;
use crate::server::RedisServer;

/// The user that the limiter is.
const USER: &str = "app";
const PASSWORD: &str = "s3cret";
const ANOTHER: &str = ">another";

/// What is done to a server behind a proxy, and how it is undone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    pub(super) breaks: fn(&mut RedisServer, &Proxy),
    pub(super) mends: fn(&mut RedisServer, &Proxy),
}

#[derive(Debug)]
struct OneServer {
    proxy: Proxy, // first, so that nothing is passed on to a server that is gone
    server: RedisServer,
    fault: Fault,
}

impl Fault {
    /// A server with nothing in it, and this in store for it.
    pub(super) fn scene(self) -> Box<dyn Scene> {
        let server = RedisServer::builder().user(USER, PASSWORD).start();
        let proxy = Proxy::before(&server);
        Box::new(OneServer { proxy, server, fault: self })
    }
}

impl Scene for OneServer {
    fn url(&self) -> String {
        self.proxy.url().to_owned()
    }

    fn breaks(&mut self, _lasting: Duration) {
        self.proxy.forget_counts();
        (self.fault.breaks)(&mut self.server, &self.proxy);
    }

    fn mends(&mut self) -> Instant {
        (self.fault.mends)(&mut self.server, &self.proxy);
        Instant::now()
    }

    fn attempts(&self) -> Option<(u64, usize)> {
        Some((self.proxy.connections(), self.proxy.most_attempts()))
    }
}

const fn of_network(breaks: fn(&mut RedisServer, &Proxy)) -> Fault {
    Fault { breaks, mends: |_, proxy| proxy.pass() }
}

pub(super) const KILL: Fault = Fault { breaks: |server, _| server.kill(), mends: |server, _| server.restart() };

pub(super) const STOP: Fault = Fault { breaks: |server, _| server.pause(), mends: |server, _| server.resume() };

pub(super) const CUT: Fault = of_network(|_, proxy| proxy.cut());
pub(super) const HALF_OPEN: Fault = of_network(|_, proxy| proxy.half_open());
pub(super) const STALL: Fault = of_network(|_, proxy| proxy.stall());
pub(super) const DELAY: Fault = of_network(|_, proxy| proxy.delay(Duration::from_millis(300)));
pub(super) const GARBLE: Fault = of_network(|_, proxy| proxy.garble());
pub(super) const CUT_REPLY: Fault = of_network(|_, proxy| proxy.cut_replies());

/// With the limiter's next calls the server has it again, so nothing is left to mend.
pub(super) const SCRIPT_FLUSH: Fault =
    Fault { breaks: |server, _| server.flush_scripts(), mends: |server, _| server.flush_scripts() };

/// Mended as soon as it has happened: what is gone is gone.
pub(super) const FLUSHALL: Fault = Fault { breaks: |_, _| {}, mends: |server, _| drop(server.command(&["FLUSHALL"])) };

pub(super) const MAXMEMORY: Fault = Fault {
    breaks: |server, _| drop(server.command(&["CONFIG", "SET", "maxmemory", "1"])),
    mends: |server, _| drop(server.command(&["CONFIG", "SET", "maxmemory", "0"])),
};

pub(super) const ACL: Fault = Fault {
    breaks: |server, _| drop(server.command(&["ACL", "SETUSER", USER, "-@all"])),
    mends: |server, _| drop(server.command(&["ACL", "SETUSER", USER, "+@all"])),
};

pub(super) const PASSWORD_CHANGED: Fault = Fault {
    breaks: |server, _| {
        server.command(&["ACL", "SETUSER", USER, "resetpass", ANOTHER]);
        server.command(&["CLIENT", "KILL", "USER", USER]);
    },
    mends: |server, _| drop(server.command(&["ACL", "SETUSER", USER, &format!(">{PASSWORD}")])),
};

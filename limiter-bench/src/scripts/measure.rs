//! One script in one case: a connection sends its calls, and the server's own counters show the time that they took.

use std::time::Instant;

use redis::{Connection, Pipeline, Script};

use super::cases::{ScriptCase, WarmUp};
use super::subjects::ScriptSubject;
use crate::contestant::{Failure, failed};
use crate::server::Server;

/// The most decisions of one pipeline.
const MAX_PIPELINE_DECISIONS: usize = 512;
/// The most keys whose size is measured.
const MAX_SIZED_KEYS: usize = 200;
/// The distance from one key to the next. Any order serves in which every key is used once before the first is
/// repeated.
const KEY_STRIDE: usize = 79_901;
/// Commands that write a counter. Each script calls one of them for each permit that it takes.
const WRITES: [&str; 3] = ["set", "setrange", "zadd"];

/// The cost of a decision, in the mean of one round.
#[derive(Debug, Clone)]
pub struct ScriptSample {
    /// The server's own time in microseconds.
    pub micros: f64,
    /// Commands that the script called, by name.
    pub calls: Vec<(String, f64)>,
    /// Bytes of a key by `MEMORY USAGE`.
    pub bytes: f64,
}

impl ScriptSample {
    /// Returns the number of commands that the script called.
    #[must_use]
    pub fn total_calls(&self) -> f64 {
        self.calls.iter().fold(0.0, |sum, (_, calls)| sum + calls)
    }
}

/// A connection that sends the calls of one script in one case.
pub(super) struct Driver<'a> {
    server: &'a Server,
    case: &'a ScriptCase,
    subject: &'a ScriptSubject,
    connection: Connection,
    sha: String,
    sent: usize,
}

impl<'a> Driver<'a> {
    /// Connects to a server, removes its keys and scripts, and loads the script.
    ///
    /// # Errors
    ///
    /// The server is unavailable or rejects the script.
    pub(super) fn connect(
        server: &'a Server,
        case: &'a ScriptCase,
        subject: &'a ScriptSubject,
    ) -> Result<Self, Failure> {
        server.remove_scripts()?; // Lua's collector would visit all of them
        server.clear()?;
        let client = redis::Client::open(server.url()).map_err(failed)?;
        let mut connection = client.get_connection().map_err(failed)?;
        let script = Script::new(subject.source);
        script.load(&mut connection).map_err(failed)?;
        Ok(Self { server, case, subject, connection, sha: script.get_hash().to_owned(), sent: 0 })
    }

    /// Warms up, and then measures at least this many decisions.
    ///
    /// # Errors
    ///
    /// A call fails, or the script takes more or fewer permits than it should: a wrong script is easily fast.
    pub(super) fn sample(mut self, decisions: usize) -> Result<ScriptSample, Failure> {
        match self.case.warm_up {
            WarmUp::PerKey(times) => drop(self.send(times * self.case.keys)?),
            WarmUp::For(time) => {
                let began = Instant::now();
                while began.elapsed() < time {
                    self.send(MAX_PIPELINE_DECISIONS)?;
                }
            }
        }
        self.server.reset_counts()?;
        let decided = self.send(decisions)? as f64;

        let (mut micros, mut calls) = (0.0, Vec::new());
        for used in self.server.used_commands()? {
            match used.name.as_str() {
                "evalsha" => micros = used.micros as f64 / decided,
                "info" | "config|resetstat" => {}
                _ => calls.push((used.name, used.calls as f64 / decided)),
            }
        }
        calls.sort_by(|a, b| a.0.cmp(&b.0));
        let taken: f64 = calls.iter().filter(|(name, _)| WRITES.contains(&name.as_str())).map(|(_, calls)| calls).sum();
        let expected = if self.case.denied { 0.0 } else { 1.0 };
        if self.subject.is_limiter() && (taken - expected).abs() > 1e-9 {
            return Err(format!("takes {taken:.3} permits a decision instead of {expected}"));
        }
        let sized: Vec<_> = (0..self.case.keys.min(MAX_SIZED_KEYS)).map(key_name).collect();
        let bytes = self.server.size_of(&sized)? as f64 / sized.len() as f64;
        Ok(ScriptSample { micros, calls, bytes })
    }

    /// Sends at least this many decisions on the next keys, and returns how many.
    fn send(&mut self, decisions: usize) -> Result<usize, Failure> {
        let keys_per_call = self.subject.keys_per_call(self.case);
        let first = self.sent;
        let end = first + decisions;
        while self.sent < end {
            let calls_left = (end - self.sent).div_ceil(keys_per_call);
            let mut pipeline = Pipeline::new();
            for _ in 0..calls_left.min(MAX_PIPELINE_DECISIONS / keys_per_call) {
                let keys: Vec<_> = (self.sent..self.sent + keys_per_call).map(|decision| self.key(decision)).collect();
                pipeline.cmd("EVALSHA").arg(&self.sha).arg(keys_per_call).arg(keys);
                pipeline.arg(self.subject.arguments(self.case.rate, self.sent)).ignore();
                self.sent += keys_per_call;
            }
            pipeline.exec(&mut self.connection).map_err(failed)?;
        }
        Ok(self.sent - first)
    }

    fn key(&self, decision: usize) -> String {
        key_name(decision % self.case.keys * KEY_STRIDE % self.case.keys)
    }
}

/// Returns a name as long as the product's.
fn key_name(key: usize) -> String {
    format!("rl:{{user:{key}}}10s")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{cases, subjects};
    use super::*;

    #[test]
    fn every_script_takes_exactly_the_permits_that_fit() {
        let server = Server::start().expect("a server");
        for mut case in cases::all(500) {
            if let WarmUp::For(_) = case.warm_up {
                case.warm_up = WarmUp::For(Duration::from_millis(20));
            }
            for subject in subjects::all().iter().filter(|subject| subject.takes_part(&case)) {
                let driver = Driver::connect(&server, &case, subject).expect("connected");
                let sample = driver.sample(640).unwrap_or_else(|failure| panic!("{}: {failure}", subject.name));
                assert!(sample.micros > 0.0, "{}", subject.name);
                assert!(sample.bytes > 0.0 || !subject.is_limiter(), "{}", subject.name);
            }
        }
    }

    #[test]
    fn a_script_that_takes_too_many_permits_is_a_failure() {
        let server = Server::start().expect("a server");
        let mut case = cases::all(500).into_iter().find(|case| case.denied).expect("a case");
        case.rate.max = 1_000_000; // every call is allowed, in a case where every call should be denied
        let subject = subjects::all().into_iter().find(|subject| subject.name == subjects::SHIPPED).expect("a script");
        let failure =
            Driver::connect(&server, &case, &subject).expect("connected").sample(1_000).expect_err("too many");
        assert!(failure.starts_with("takes 1.000 permits"), "{failure}");
    }
}

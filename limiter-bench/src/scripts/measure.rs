//! One variant in one case: a connection sends its calls, many at a time, and the server's own counts tell what they took.

use std::time::Instant;

use redis::{Connection, Pipeline, Script};

use super::cases::{Before, Case};
use super::variants::Variant;
use crate::contestant::{Failure, failed};
use crate::server::Server;

/// Decisions that are sent at a time.
const AT_A_TIME: usize = 512;
/// Keys whose size is asked for.
const SIZED: usize = 200;
/// From one key to the next: any order will do in which every key is asked for once before the first comes again.
const STEP: usize = 79_901;
/// What writes a count, whichever way: once for each permit that is taken.
const WRITES: [&str; 4] = ["set", "append", "setrange", "zadd"];

/// What a decision took, in the mean of one round.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The server's own microseconds.
    pub micros: f64,
    /// Commands that the script called, by name.
    pub calls: Vec<(String, f64)>,
    /// What `MEMORY USAGE` says of a key.
    pub bytes: f64,
}

impl Sample {
    /// All commands that the script called.
    #[must_use]
    pub fn calls(&self) -> f64 {
        self.calls.iter().fold(0.0, |sum, (_, calls)| sum + calls)
    }
}

/// What sends the calls.
pub(super) struct Driver<'a> {
    server: &'a Server,
    case: &'a Case,
    variant: &'a Variant,
    connection: Connection,
    sha: String,
    asked: usize,
}

impl<'a> Driver<'a> {
    /// Connected to a server without keys that has the script.
    ///
    /// # Errors
    ///
    /// The server is away, or takes no such script.
    pub(super) fn connect(server: &'a Server, case: &'a Case, variant: &'a Variant) -> Result<Self, Failure> {
        server.forget_scripts()?; // Lua's collector would look through all of them
        server.clear()?;
        let client = redis::Client::open(server.url()).map_err(failed)?;
        let mut connection = client.get_connection().map_err(failed)?;
        let script = Script::new(&variant.source);
        script.load(&mut connection).map_err(failed)?;
        Ok(Self { server, case, variant, connection, sha: script.get_hash().to_owned(), asked: 0 })
    }

    /// So many decisions, or a few more, once the keys are as they shall be.
    ///
    /// # Errors
    ///
    /// A call failed, or the script does not decide as it should: what is wrong is easily fast.
    pub(super) fn sample(mut self, decisions: usize) -> Result<Sample, Failure> {
        match self.case.before {
            Before::Each(times) => drop(self.ask(times * self.case.keys)?),
            Before::For(time) => {
                let began = Instant::now();
                while began.elapsed() < time {
                    self.ask(AT_A_TIME)?;
                }
            }
        }
        self.server.count_anew()?;
        let decided = self.ask(decisions)? as f64;

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
        if self.variant.is_limiter() && (taken - expected).abs() > 1e-9 {
            return Err(format!("takes {taken:.3} permits a decision in place of {expected}"));
        }
        let sized: Vec<_> = (0..self.case.keys.min(SIZED)).map(name).collect();
        let bytes = self.server.size_of(&sized)? as f64 / sized.len() as f64;
        Ok(Sample { micros, calls, bytes })
    }

    /// At least so many decisions on the next keys; gives how many.
    fn ask(&mut self, decisions: usize) -> Result<usize, Failure> {
        let each = self.variant.keys_a_call(self.case);
        let until = self.asked + decisions;
        let began = self.asked;
        while self.asked < until {
            let left = (until - self.asked).div_ceil(each);
            let mut pipeline = Pipeline::new();
            for _ in 0..left.min(AT_A_TIME / each) {
                let keys: Vec<_> = (self.asked..self.asked + each).map(|call| self.key(call)).collect();
                pipeline.cmd("EVALSHA").arg(&self.sha).arg(each).arg(keys);
                pipeline.arg(self.variant.arguments(self.case.rate, self.asked)).ignore();
                self.asked += each;
            }
            pipeline.exec(&mut self.connection).map_err(failed)?;
        }
        Ok(self.asked - began)
    }

    fn key(&self, call: usize) -> String {
        name(call % self.case.keys * STEP % self.case.keys)
    }
}

/// As long as the product's names.
fn name(key: usize) -> String {
    format!("rl:{{user:{key}}}:sw:10000")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{cases, variants};
    use super::*;

    #[test]
    fn every_variant_takes_what_fits_and_no_more() {
        let server = Server::start().expect("a server");
        for mut case in cases::all(500) {
            if let Before::For(_) = case.before {
                case.before = Before::For(Duration::from_millis(20));
            }
            for variant in variants::all().expect("variants").iter().filter(|variant| variant.takes_part(&case)) {
                let driver = Driver::connect(&server, &case, variant).expect("connected");
                let sample = driver.sample(640).unwrap_or_else(|failure| panic!("{}: {failure}", variant.name));
                assert!(sample.micros > 0.0, "{}", variant.name);
                assert!(sample.bytes > 0.0 || !variant.is_limiter(), "{}", variant.name);
            }
        }
    }

    #[test]
    fn one_that_takes_too_much_is_told() {
        let server = Server::start().expect("a server");
        let variants = variants::all().expect("variants");
        let case = cases::all(500).into_iter().find(|case| case.denied).expect("a case");
        let mut lax = variants.into_iter().find(|variant| variant.name == variants::SMALL).expect("a variant");
        lax.source = lax.source.replace("limit = tonumber(ARGV[3]), tonumber(ARGV[4])", "limit = tonumber(ARGV[3]), 6");
        let failure = Driver::connect(&server, &case, &lax).expect("connected").sample(1_000).expect_err("it is lax");
        assert!(failure.starts_with("takes 1.000 permits"), "{failure}");
    }
}

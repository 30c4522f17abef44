//! `CL.THROTTLE`, by a clock that the test moves.

use super::*;

#[test]
fn a_throttle_decides_as_redis_cell() {
    let clock = ManualClock::new();
    let server = Setup { builder: Limiter::builder().url("memory:").clock(clock.clone()), ..Setup::default() }.start();
    let mut client = server.connect();
    // Five at once and one a second: the milliseconds since the start, the cost, and the reply.
    let cases: [(u64, u32, [i64; 5]); 15] = [
        (0, 6, [1, 5, 5, -1, 0]),
        (0, 1, [0, 5, 4, -1, 1]),
        (0, 1, [0, 5, 3, -1, 2]),
        (0, 1, [0, 5, 2, -1, 3]),
        (0, 1, [0, 5, 1, -1, 4]),
        (0, 1, [0, 5, 0, -1, 5]),
        (0, 1, [1, 5, 0, 1, 5]),
        (3_000, 1, [0, 5, 2, -1, 3]),
        (3_100, 1, [0, 5, 1, -1, 4]),
        (4_000, 1, [0, 5, 1, -1, 4]),
        (8_000, 1, [0, 5, 4, -1, 1]),
        (9_500, 1, [0, 5, 4, -1, 1]),
        (9_500, 0, [0, 5, 4, -1, 1]),
        (9_500, 2, [0, 5, 2, -1, 3]),
        (9_500, 5, [1, 5, 2, 3, 3]),
    ];
    let mut elapsed = 0;
    for (millis, cost, reply) in cases {
        clock.advance(Duration::from_millis(millis - elapsed));
        elapsed = millis;
        client.call(&format!("CL.THROTTLE user:42 4 1 1 {cost}"), &numbers(reply));
    }
    // A look at an unused key writes nothing, and one at an empty bucket is no denial.
    client.call("CL.THROTTLE other 4 1 1 0", &numbers([0, 5, 5, -1, 0]));
    client.call("cl.throttle other 0 1 60", &numbers([0, 1, 0, -1, 60]));
    client.call("CL.THROTTLE other 0 1 60 0", &numbers([0, 1, 0, -1, 60]));
    client.call("CL.THROTTLE other 0 1 60", &numbers([1, 1, 0, 60, 60]));
    // The state stays with another burst and count, and begins anew with another period.
    client.call("CL.THROTTLE other 2 2 60", &numbers([0, 3, 1, -1, 60]));
    client.call("CL.THROTTLE other 2 2 61 0", &numbers([0, 3, 3, -1, 0]));
}

#[test]
fn a_throttle_with_wrong_numbers_has_an_error() {
    let server = TestServer::start();
    let mut client = server.connect();
    let cases = [
        ("CL.THROTTLE", "ERR wrong number of arguments for 'cl.throttle' command"),
        ("CL.THROTTLE a 1 1", "ERR wrong number of arguments for 'cl.throttle' command"),
        ("CL.THROTTLE a 1 1 1 1 1", "ERR wrong number of arguments for 'cl.throttle' command"),
        ("CL.THROTTLE a x 1 1", "ERR max_burst must be a whole number of 0 to 4294967294, got 'x'"),
        ("CL.THROTTLE a -1 1 1", "ERR max_burst must be a whole number of 0 to 4294967294, got '-1'"),
        ("CL.THROTTLE a 1 0 1", "ERR count must be a whole number of 1 to 4294967295, got '0'"),
        ("CL.THROTTLE a 1 1 0", "ERR period must be a whole number of 1 to 31622400, got '0'"),
        ("CL.THROTTLE a 1 1 31622401", "ERR period must be a whole number of 1 to 31622400, got '31622401'"),
        ("CL.THROTTLE a 1 1 1.5", "ERR period must be a whole number of 1 to 31622400, got '1.5'"),
        ("CL.THROTTLE a 1 1 1 -1", "ERR n must be a whole number of 0 to 4294967295, got '-1'"),
    ];
    for (command, error) in cases {
        client.call(command, &format!("-{error}\r\n"));
    }
    let strict = Setup { policy: ServicePolicy::default(), ..Setup::default() }.start();
    strict.connect().call(
        "CL.THROTTLE a 1 1 1",
        "-NOPERM limits-not-allowed: this server decides by its rules alone: name a rule, or start the server with \
         `--allow-limits`\r\n",
    );
}

#[test]
fn the_widest_throttle_is_a_limit() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.call("CL.THROTTLE a 4294967294 4294967295 31622400", &numbers([0, 4_294_967_295, 4_294_967_294, -1, 1]));
    client.call("CL.THROTTLE b 0 4294967295 1", &numbers([0, 1, 0, -1, 1]));
}

fn numbers(numbers: [i64; 5]) -> String {
    let lines: String = numbers.iter().map(|number| format!(":{number}\r\n")).collect();
    format!("*5\r\n{lines}")
}

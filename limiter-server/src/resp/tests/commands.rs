//! Commands about the connection, as clients send them.

use metrics_exporter_prometheus::PrometheusBuilder;

use super::*;

const NO_AUTH: &str = "-NOAUTH Authentication required.\r\n";
const WRONG_PASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

fn hello(protocol: u8, id: u64) -> String {
    let start = if protocol == 3 { "%7" } else { "*14" };
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "{start}\r\n$6\r\nserver\r\n$14\r\nlimiter-server\r\n$7\r\nversion\r\n${}\r\n{version}\r\n$5\r\nproto\r\n:{protocol}\r\n\
         $2\r\nid\r\n:{id}\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
        version.len()
    )
}

#[test]
fn commands_of_connections_are_answered_as_by_redis() {
    let server = TestServer::start();
    let mut client = server.connect();
    let cases = [
        ("PING", "+PONG\r\n"),
        ("ping hello", "$5\r\nhello\r\n"),
        ("PING a b", "-ERR wrong number of arguments for 'ping' command\r\n"),
        ("ECHO", "-ERR wrong number of arguments for 'echo' command\r\n"),
        ("echo x", "$1\r\nx\r\n"),
        ("GET key", "-ERR unknown command 'GET'\r\n"),
        ("multi", "-ERR unknown command 'multi': there are no transactions here, use a pipeline without one\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 2", "-ERR DB index is out of range\r\n"),
        ("SELECT x", "-ERR value is not an integer or out of range\r\n"),
        ("client getname", "$-1\r\n"),
        ("CLIENT SETNAME me", "+OK\r\n"),
        ("CLIENT GETNAME", "$2\r\nme\r\n"),
        ("CLIENT SETNAME a\nb", "-ERR Client names cannot contain spaces, newlines or special characters.\r\n"),
        ("CLIENT SETINFO LIB-NAME x", "+OK\r\n"),
        ("client setinfo lib-ver 1.2", "+OK\r\n"),
        ("CLIENT SETINFO LIB-AGE 7", "-ERR Unrecognized option 'LIB-AGE'\r\n"),
        ("CLIENT SETINFO LIB-NAME", "-ERR wrong number of arguments for 'client|setinfo' command\r\n"),
        ("CLIENT ID", ":1\r\n"),
        ("CLIENT MAINT_NOTIFICATIONS ON", "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'\r\n"),
        ("CLIENT", "-ERR wrong number of arguments for 'client' command\r\n"),
        ("COMMAND", "*0\r\n"),
        ("COMMAND DOCS", "*0\r\n"),
        ("COMMAND COUNT", ":15\r\n"),
        ("COMMAND KEYS", "-ERR unknown subcommand 'KEYS'\r\n"),
        ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range\r\n"),
        ("HELLO 3 SETNAME", "-ERR Syntax error in HELLO option 'SETNAME'\r\n"),
        ("HELLO 3 AUTH default", "-ERR Syntax error in HELLO option 'AUTH'\r\n"),
        ("AUTH default any", "+OK\r\n"),
        ("RESET", "+RESET\r\n"),
        ("client getname", "$-1\r\n"),
    ];
    for (command, reply) in cases {
        client.call(command, reply);
    }
    client.call(
        "AUTH any",
        "-ERR AUTH <password> called without any password configured for the default user. Are you sure your \
         configuration is correct?\r\n",
    );
    client.call("HELLO", &hello(2, 1));
    client.call("hello 3 setname other", &hello(3, 1));
    client.call("CLIENT GETNAME", "$5\r\nother\r\n");
    client.call("COMMAND DOCS PING", "%0\r\n");
    client.call("RESET", "+RESET\r\n");
    client.call("HELLO 2", &hello(2, 1));
    client.call("QUIT", "+OK\r\n");
    client.expect_end();
}

#[test]
fn the_report_has_the_fields_that_clients_read() {
    let server = TestServer::start();
    let mut client = server.connect();
    for (hello, kind) in [("PING", b'$'), ("HELLO 3", b'=')] {
        client.send(array(hello));
        let _ = client.stream.read(&mut [0; 1024]).expect("a reply");
        client.send(array("info"));
        let mut reply = vec![0; 1024];
        let count = client.stream.read(&mut reply).expect("a report");
        let report = String::from_utf8_lossy(&reply[..count]);
        assert_eq!(report.as_bytes()[0], kind);
        for field in
            ["\r\nredis_version:7.0.0\r\n", "\r\nloading:0\r\n", "\r\nredis_mode:standalone\r\n", "\r\nrole:master\r\n"]
        {
            assert!(report.contains(field), "{field}: {report}");
        }
    }
}

#[test]
fn the_token_is_the_password() {
    let server = Setup { token: Some(TOKEN), ..Setup::default() }.start();
    let mut client = server.connect();
    for command in ["PING", "RL.CHECK getId", "CL.THROTTLE a 1 1 1", "CLIENT ID", "SELECT 0", "INFO", "COMMAND"] {
        client.call(command, NO_AUTH);
    }
    client.call("HELLO 3", "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time\r\n");
    for wrong in ["0123456789abcde", "0123456789abcdeg", "0123456789abcdef0", "x"] {
        client.call(&format!("AUTH {wrong}"), WRONG_PASS);
        client.call(&format!("HELLO 3 AUTH default {wrong}"), WRONG_PASS);
    }
    client.call("PING", NO_AUTH);
    client.call(&format!("HELLO 3 AUTH default {TOKEN} SETNAME me"), &hello(3, 1));
    client.call("CLIENT GETNAME", "$2\r\nme\r\n");
    // A wrong password changes nothing.
    client.call("AUTH x", WRONG_PASS);
    client.call("PING", "+PONG\r\n");
    client.call("RESET", "+RESET\r\n");
    client.call("PING", NO_AUTH);
    client.call(&format!("auth {TOKEN}"), "+OK\r\n");
    client.call(&format!("AUTH anyone {TOKEN}"), "+OK\r\n");
    client.call("PING", "+PONG\r\n");
    let mut other = server.connect();
    for _ in 0..10 {
        other.call("AUTH x", WRONG_PASS);
    }
    other.expect_end();
}

#[test]
fn a_rule_is_checked_by_the_values_of_its_key() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.call("RL.CHECK search 42 acme", "*5\r\n:1\r\n:2\r\n:1\r\n:0\r\n:10000\r\n");
    client.call("rl.check search 42 acme COST 2", "*5\r\n:0\r\n:2\r\n:1\r\n:10000\r\n:10000\r\n");
    client.call("RL.CHECK search 42 acme cost 3", "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:10000\r\n");
    client.call("RL.PEEK search 42 acme", "*5\r\n:1\r\n:2\r\n:1\r\n:0\r\n:10000\r\n");
    // Values that are words of options.
    client.call("RL.CHECK search COST PLAN COST 2", "*5\r\n:1\r\n:2\r\n:0\r\n:0\r\n:10000\r\n");
    client.call("RL.PEEK search COST PLAN", "*5\r\n:0\r\n:2\r\n:0\r\n:10000\r\n:10000\r\n");
    // The values of a bucket are its burst and what is left of it.
    client.call("RL.CHECK bucket 7 COST 3", "*5\r\n:1\r\n:4\r\n:1\r\n:0\r\n:15000\r\n");
    client.call("RL.CHECK off", "*5\r\n:1\r\n:-1\r\n:-1\r\n:0\r\n:0\r\n");
    client.call("RL.CHECK denied", "*5\r\n:0\r\n:-1\r\n:-1\r\n:-1\r\n:0\r\n");
    client.call("RL.CHECK plans", "*5\r\n:1\r\n:1\r\n:0\r\n:0\r\n:10000\r\n");
    client.call("RL.CHECK plans PLAN pro", "*5\r\n:1\r\n:100\r\n:98\r\n:0\r\n:10000\r\n");
    client.call("RL.CHARGE getId COST 7", "*5\r\n:5\r\n:0\r\n:2\r\n:0\r\n:10000\r\n");
    client.call("RL.CHARGE getId", "*5\r\n:5\r\n:0\r\n:3\r\n:0\r\n:10000\r\n");
    client.send(array("HELLO 3"));
    client.expect(hello(3, 1));
    client.call(
        "RL.CHECK search 42 acme",
        "%7\r\n$7\r\nallowed\r\n#t\r\n$4\r\nrule\r\n$6\r\nsearch\r\n$5\r\nlimit\r\n:2\r\n$9\r\nremaining\r\n:0\r\n\
         $14\r\nretry_after_ms\r\n:0\r\n$14\r\nreset_after_ms\r\n:10000\r\n$6\r\nsource\r\n$5\r\nstore\r\n",
    );
    client.call(
        "RL.CHECK denied",
        "%7\r\n$7\r\nallowed\r\n#f\r\n$4\r\nrule\r\n$6\r\ndenied\r\n$5\r\nlimit\r\n_\r\n$9\r\nremaining\r\n_\r\n\
         $14\r\nretry_after_ms\r\n_\r\n$14\r\nreset_after_ms\r\n:0\r\n$6\r\nsource\r\n$4\r\nmode\r\n",
    );
    client.call(
        "RL.CHARGE getId COST 0",
        "%6\r\n$5\r\nlimit\r\n:5\r\n$9\r\nremaining\r\n:0\r\n$9\r\noverdrawn\r\n:3\r\n$9\r\nuncounted\r\n:0\r\n\
         $14\r\nreset_after_ms\r\n:10000\r\n$6\r\nsource\r\n$5\r\nstore\r\n",
    );
}

#[test]
fn a_call_that_is_wrong_has_an_error_with_a_fix() {
    let server = TestServer::start();
    let mut client = server.connect();
    let cases = [
        ("RL.CHECK", "ERR wrong number of arguments for 'rl.check' command"),
        ("RL.CHECK serch 42", "ERR unknown-rule: no rule is named `serch`: write `search`"),
        (
            "RL.CHECK search 42",
            "ERR wrong-number-of-values: the key of the rule `search` has 2 parts, got 1 values: write a value for each of `user`, `tenant`",
        ),
        (
            "RL.CHECK search 1 2 3",
            "ERR unknown option '3' after 2 values of the rule 'search': write COST n, WAIT ms, PLAN name or nothing",
        ),
        (
            "RL.CHARGE getId WAIT 1",
            "ERR unknown option 'WAIT' after 0 values of the rule 'getId': write COST n, PLAN name or nothing",
        ),
        (
            "RL.PEEK getId COST 1",
            "ERR unknown option 'COST' after 0 values of the rule 'getId': write PLAN name or nothing",
        ),
        ("RL.CHECK getId COST", "ERR COST must have a value after it"),
        ("RL.CHECK getId COST 1 COST 2", "ERR COST must be there once, got it twice"),
        ("RL.CHECK getId COST -1", "ERR COST must be a whole number of 0 to 4294967295, got '-1'"),
        ("RL.CHECK getId COST 4294967296", "ERR COST must be a whole number of 0 to 4294967295, got '4294967296'"),
        ("RL.CHECK getId WAIT 1.5", "ERR WAIT must be a whole number of 0 to 4294967295, got '1.5'"),
        ("RL.CHECK getId WAIT 1001", "ERR wait-too-long: a call may wait for 1000 ms at most, got 1001 ms"),
        (
            "RL.CHECK erp",
            "ERR rule-holds-slots: the limit of the rule `erp` counts calls at once, and this call would hold no slot: enter, and leave when the call has ended",
        ),
        (
            "RL.RESET getId",
            "NOPERM RL.RESET is for callers with the token of the server, which has none: start the server with `--token-file`",
        ),
    ];
    for (command, error) in cases {
        client.call(command, &format!("-{error}\r\n"));
    }
    client.send(b"*3\r\n$8\r\nRL.CHECK\r\n$6\r\nbucket\r\n$1\r\n\xff\r\n");
    client.expect("-ERR arguments must be UTF-8\r\n");
    client.call("PING", "+PONG\r\n");
}

#[test]
fn a_reset_needs_the_token() {
    let server = Setup { token: Some(TOKEN), ..Setup::default() }.start();
    let mut client = server.connect();
    client.call("RL.RESET getId", NO_AUTH);
    client.call(&format!("AUTH {TOKEN}"), "+OK\r\n");
    client.call("RL.CHECK getId COST 5", "*5\r\n:1\r\n:5\r\n:0\r\n:0\r\n:10000\r\n");
    client.call("RL.RESET getId", "+OK\r\n");
    client.call("RL.CHECK getId", "*5\r\n:1\r\n:5\r\n:4\r\n:0\r\n:10000\r\n");
}

#[test]
fn a_failure_of_the_limiter_has_its_own_first_word() {
    let rules = "[rules.raise]\nlimit = \"1/10s\"\non_error = \"raise\"\n[rules.closed]\nlimit = \"1/10s\"\non_error = \"closed\"";
    let builder = Limiter::builder().failing(rate_limited::ErrorKind::Timeout);
    let server = Setup { builder, rules, ..Setup::default() }.start();
    let mut client = server.connect();
    client.send(array("RL.CHECK raise"));
    client.expect("-UNAVAILABLE undecided: the limiter failed, and the rule has no other policy: ");
    let _ = client.stream.read(&mut [0; 1024]);
    client.send(array("RL.CHECK closed"));
    client.expect("*5\r\n:0\r\n:1\r\n:0\r\n");
}

#[test]
fn each_call_of_a_pipeline_is_counted_by_its_outcome() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let server = metrics::with_local_recorder(&recorder, TestServer::start);
    let mut client = server.connect();
    let calls = ["RL.CHECK getId COST 5", "RL.CHECK getId", "RL.CHECK getId", "RL.PEEK getId", "RL.CHECK serch 42"];
    client.send(calls.map(array).concat());
    let denied = "*5\r\n:0\r\n:5\r\n:0\r\n:10000\r\n:10000\r\n";
    client.expect(format!(
        "*5\r\n:1\r\n:5\r\n:0\r\n:0\r\n:10000\r\n{denied}{denied}{denied}-ERR unknown-rule: no rule is named `serch`: \
         write `search`\r\n"
    ));
    let shown = recorder.handle().render();
    for (labels, number) in [
        (r#"requests_total{protocol="resp",command="RL.CHECK",outcome="ok"}"#, 1),
        (r#"requests_total{protocol="resp",command="RL.CHECK",outcome="denied"}"#, 2),
        (r#"requests_total{protocol="resp",command="RL.CHECK",outcome="invalid"}"#, 1),
        (r#"requests_total{protocol="resp",command="RL.PEEK",outcome="denied"}"#, 1),
        (r#"request_seconds_count{protocol="resp",command="RL.CHECK"}"#, 4),
    ] {
        assert!(shown.contains(&format!("limiter_server_{labels} {number}\n")), "{labels}: {shown}");
    }
}

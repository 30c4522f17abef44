use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::thread;

use redis::IntoConnectionInfo;

use super::*;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

/// A sentinel that replies with the address of a port, and with nothing at all while that port is 0.
struct FakeSentinel {
    info: ConnectionInfo,
    port: Arc<AtomicU16>,
    subscriptions: Arc<AtomicUsize>,
}

impl FakeSentinel {
    fn start(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let info = format!("redis://{}", listener.local_addr().expect("bound")).into_connection_info();
        let (port, subscriptions) = (Arc::new(AtomicU16::new(port)), Arc::new(AtomicUsize::new(0)));
        let (shared_port, shared_subscriptions) = (Arc::clone(&port), Arc::clone(&subscriptions));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (port, subscriptions) = (Arc::clone(&shared_port), Arc::clone(&shared_subscriptions));
                thread::spawn(move || serve(&stream, &port, &subscriptions));
            }
        });
        Self { info: info.expect("a URL"), port, subscriptions }
    }
}

/// Replies to each name of a command; the arguments are lines, too, and need no reply.
fn serve(mut stream: &TcpStream, port: &AtomicU16, subscriptions: &AtomicUsize) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let port = port.load(Ordering::SeqCst);
        let reply = match &*line {
            _ if port == 0 => continue,
            "HELLO" => "%0\r\n".to_owned(),
            "CLIENT" => "+OK\r\n".to_owned(),
            "SUBSCRIBE" => {
                subscriptions.fetch_add(1, Ordering::SeqCst);
                ">3\r\n+subscribe\r\n++switch-master\r\n:1\r\n".to_owned()
            }
            "SENTINEL" => format!("*2\r\n+127.0.0.1\r\n+{port}\r\n"),
            _ => continue,
        };
        if stream.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

fn watch(sentinels: &[&FakeSentinel], port: u16, lost: &Arc<Notify>) -> MasterWatch {
    let state = WatchState {
        master: "mymaster".to_owned(),
        reports: AddressReports::new(address(port), sentinels.len()),
        lost: Arc::clone(lost),
        check_interval: Duration::from_millis(20),
    };
    MasterWatch::spawn(sentinels.iter().map(|sentinel| sentinel.info.clone()).collect(), state)
}

async fn subscribed(sentinel: &FakeSentinel) {
    let subscribed = async {
        while sentinel.subscriptions.load(Ordering::SeqCst) == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, subscribed).await.expect("a subscription");
}

/// The message of the failover is lost.
#[tokio::test]
async fn a_check_finds_an_unpublished_failover() {
    let sentinel = FakeSentinel::start(2);
    let lost = Arc::new(Notify::new());
    let _watch = watch(&[&sentinel], 2, &lost);
    subscribed(&sentinel).await;
    assert!(timeout(Duration::from_millis(100), lost.notified()).await.is_err(), "nothing has changed");
    sentinel.port.store(3, Ordering::SeqCst);
    timeout(LONG, lost.notified()).await.expect("the failover is found");
}

/// The connection stays open, as if the host had vanished.
#[tokio::test]
async fn a_sentinel_that_stops_replying_is_left_for_the_next_one() {
    let (first, second) = (FakeSentinel::start(2), FakeSentinel::start(2));
    let lost = Arc::new(Notify::new());
    let _watch = watch(&[&first, &second], 2, &lost);
    subscribed(&first).await;
    assert_eq!(second.subscriptions.load(Ordering::SeqCst), 0);
    first.port.store(0, Ordering::SeqCst);
    subscribed(&second).await;
    assert!(timeout(Duration::from_millis(100), lost.notified()).await.is_err(), "nothing has changed");
    second.port.store(3, Ordering::SeqCst);
    timeout(LONG, lost.notified()).await.expect("the failover is found");
}

fn address(port: u16) -> MasterAddress {
    ("127.0.0.1".to_owned(), port)
}

#[test]
fn another_address_from_a_sentinel_that_reported_the_current_one_is_outdated() {
    let mut reports = AddressReports::new(address(2), 2);
    assert_eq!(reports.evaluate(0, &address(2)), Verdict::UpToDate);
    assert_eq!(reports.evaluate(0, &address(3)), Verdict::Outdated);
}

#[test]
fn another_address_from_a_sentinel_that_never_reported_the_current_one_is_unknown() {
    let mut reports = AddressReports::new(address(2), 2);
    assert_eq!(reports.evaluate(1, &address(1)), Verdict::Unknown);
    assert_eq!(reports.evaluate(1, &address(2)), Verdict::UpToDate);
    assert_eq!(reports.evaluate(1, &address(3)), Verdict::Outdated);
}

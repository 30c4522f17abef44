use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::thread;

use redis::IntoConnectionInfo;

use crate::store::redis::server::sentinels::*;

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
            SWITCH_CHANNEL => {
                subscriptions.fetch_add(1, Ordering::SeqCst);
                confirmation(SWITCH_CHANNEL)
            }
            channel if STEP_CHANNELS.contains(&channel) => confirmation(channel),
            "SENTINEL" => format!("*2\r\n+127.0.0.1\r\n+{port}\r\n"),
            _ => continue,
        };
        if stream.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

/// The reply to a subscription.
fn confirmation(channel: &str) -> String {
    format!(">3\r\n+subscribe\r\n+{channel}\r\n:1\r\n")
}

fn master(port: u16, lost: &Arc<Notify>) -> WatchedMaster {
    let (address, lost) = (("127.0.0.1".to_owned(), port), Arc::clone(lost));
    WatchedMaster { name: "mymaster".to_owned(), address, lost, failover: Arc::default() }
}

fn watch(sentinels: &[&FakeSentinel], port: u16, lost: &Arc<Notify>) -> MasterWatch {
    let sentinels = sentinels.iter().map(|sentinel| sentinel.info.clone()).collect();
    MasterWatch::start_with(sentinels, &master(port, lost), Duration::from_millis(20))
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

/// The connection of the first one stays open, as if its host had vanished.
#[tokio::test]
async fn any_sentinel_reports_a_failover_while_another_does_not_reply() {
    let (first, second) = (FakeSentinel::start(2), FakeSentinel::start(2));
    let lost = Arc::new(Notify::new());
    let _watch = watch(&[&first, &second], 2, &lost);
    subscribed(&first).await;
    subscribed(&second).await;
    first.port.store(0, Ordering::SeqCst);
    assert!(timeout(Duration::from_millis(100), lost.notified()).await.is_err(), "nothing has changed");
    second.port.store(3, Ordering::SeqCst);
    timeout(LONG, lost.notified()).await.expect("the failover is found");
}

fn sentinel_watch(has_reported: bool) -> SentinelWatch {
    let sentinel = "redis://127.0.0.1:1".into_connection_info().expect("a URL");
    SentinelWatch { sentinel, master: master(2, &Arc::default()), has_reported, check_interval: LONG }
}

fn address(port: u16) -> MasterAddress {
    ("127.0.0.1".to_owned(), port)
}

#[tokio::test]
async fn another_address_from_a_sentinel_that_reported_the_current_one_is_outdated() {
    let mut watch = sentinel_watch(true);
    assert_eq!(watch.evaluate(&address(2)), Verdict::UpToDate);
    assert_eq!(watch.evaluate(&address(3)), Verdict::Outdated);
}

#[tokio::test]
async fn another_address_from_a_sentinel_that_never_reported_the_current_one_is_unknown() {
    let mut watch = sentinel_watch(false);
    assert_eq!(watch.evaluate(&address(1)), Verdict::Unknown);
    assert_eq!(watch.evaluate(&address(2)), Verdict::UpToDate);
    assert_eq!(watch.evaluate(&address(3)), Verdict::Outdated);
}

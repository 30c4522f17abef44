use super::*;
use crate::cases;
use crate::contestant::{Commands, Contestant, Verdict, starting};

/// A contestant that decides, fails or panics.
enum Fake {
    Works,
    Fails,
    Panics,
}

impl Contestant for Fake {
    async fn decide(&self, _key: usize) -> Result<Verdict, Failure> {
        match self {
            Self::Works => Ok(Verdict::Denied),
            Self::Fails => Err("the peer's own message".to_owned()),
            Self::Panics => panic!("expected by a test"),
        }
    }
}

const FAKES: [Entry; 4] = [
    fake("works", |_| starting(async { Ok(Fake::Works) })),
    fake("fails", |_| starting(async { Ok(Fake::Fails) })),
    fake("panics", |_| starting(async { Ok(Fake::Panics) })),
    fake("never starts", |_| starting::<Fake>(async { Err("no server".to_owned()) })),
];

const fn fake(name: &'static str, start: fn(Setup) -> crate::contestant::Starting) -> Entry {
    Entry { name, kind: Kind::Peer, place: Place::Redis, commands: Commands::NONE, start }
}

const PACE: Pace = Pace {
    rounds: 2,
    sample: Duration::from_millis(20),
    fill: Duration::from_millis(20),
    time: None,
    few_bytes: true,
    ours_only: false,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_contestant_is_left_out_and_the_others_continue() {
    let server = Server::start().expect("a server");
    let progress = Progress::new(8, None);
    let stage = Stage { server: Some(&server), pace: PACE, progress: &progress };
    let rate = crate::contestant::Rate { max: 5, seconds: 1 };
    let loaded = loaded::Loaded { tasks: 2, spread: cases::Spread::Random(1), rate, server: &server };
    let sample = async |entry: &Entry, outcome: &mut Outcome| loaded.sample(&stage, entry, outcome).await;
    let outcomes = stage.run_rounds(&cases::EXACT, &FAKES, sample).await;

    let [works, fails, panics, absent] = outcomes.try_into().expect("all of them");
    assert_eq!((works.rounds.len(), works.failure), (2, None));
    assert_eq!(fails.failure.as_deref(), Some("the peer's own message"));
    assert!(panics.failure.is_some_and(|failure| failure.starts_with("a call panicked")));
    assert_eq!(absent.failure.as_deref(), Some("no server"));
}

#[tokio::test]
async fn a_late_run_leaves_out_rounds_after_the_first() {
    let progress = Progress::new(1_000, Some(Duration::ZERO));
    let stage = Stage { server: None, pace: PACE, progress: &progress };
    let spun = spun::Spun { threads: 1, keys: 1, rate: crate::contestant::Rate { max: 5, seconds: 1 }, history: true };
    let sample = async |entry: &Entry, outcome: &mut Outcome| spun.sample(&stage, entry, outcome).await;
    let outcomes = stage.run_rounds(&cases::EXACT, &FAKES[..1], sample).await;
    assert_eq!(outcomes[0].rounds.len(), 1);
}

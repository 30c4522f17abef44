//! A dashboard with limiters that have written to its store.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use limiter_dashboard::Dashboard;
use limiter_testkit::{LiveLimiters, RedisServer};
use rate_limited::{Activity, Key, Limit, Limiter};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::chromium::Chromium;

pub(crate) const TOKEN: &str = "7f1d8a02c7b94e35";
pub(crate) const HOSTILE: &str = "user:@<script>document.title='stolen'</script>";

/// A dashboard on a free port, and its store.
pub(crate) struct Served {
    pub(crate) server: RedisServer,
    pub(crate) url: String,
    task: JoinHandle<()>,
}

impl Served {
    pub(crate) async fn start() -> Self {
        let server = RedisServer::builder().tcp().start();
        let limiter = Limiter::builder().url(server.url()).presence(false).connect().await.expect("a server");
        let dashboard = Dashboard::new(limiter).token(TOKEN).operator(server.url());
        let bound = dashboard.bind("127.0.0.1:0".parse().expect("an address")).await.expect("a socket");
        let url = format!("http://{}", bound.address());
        Self { server, url, task: tokio::spawn(bound.run()) }
    }

    /// Opens the page in a browser of its own.
    pub(crate) async fn open(&self) -> Chromium {
        Chromium::launch(&format!("{}/", self.url), "document.documentElement.dataset.at > 0").await
    }

    /// Writes heartbeats of these versions of the shared rules, and an entry of activity.
    pub(crate) fn write_fleet(&self, versions: &[&str]) {
        let inventory = concat!(
            r#"{"rule":"user:{user_id}","keys":["user:{user_id}"],"limits":["50/10s"],"mode":"enforce","origin":"shared"}"#,
            "\n",
            r#"{"rule":"search","keys":["search:{tenant}"],"limits":["900/min"],"mode":"enforce","origin":"shared"}"#,
            "\n",
        );
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
        let member = |(number, version): (usize, &&str)| {
            let since = now - 260_000 * (number as u128 + 1);
            format!("9c1fb1a0e07d52{number:02x} web-{} {} 0.1.0 {since} {version} up", number + 1, 4711 + number)
        };
        let members: Vec<_> = versions.iter().enumerate().map(member).collect();
        LiveLimiters::on(&self.server).beat_as(inventory, &members);
    }

    /// Writes activity with a key that is a script.
    pub(crate) fn write_hostile(&self) {
        let escaped = HOSTILE.replace(' ', "%20");
        let entry = format!("1 00000000000000ff {escaped} 10 {escaped}\nr {escaped} 1000 d9+9\nd 0 {escaped} 9+9 0\n");
        LiveLimiters::on(&self.server).add_activity(&entry);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Makes calls of two rules until it is aborted: some customers are denied.
pub(crate) async fn load(url: String) {
    let limiter = Limiter::builder().url(url).presence(false).activity(Activity::new("checkout").top_keys(20));
    let limiter = limiter.connect().await.expect("a server");
    let limits: [Limit; 2] = ["50/10s".parse().expect("a limit"), "900/min".parse().expect("a limit")];
    for turn in 0_u64.. {
        let wave = 1 + (turn / 40) % 5;
        for call in 0..wave {
            let customer = [42, 7, 1, 1003, 9 + turn % 40][usize::try_from((turn + call) % 5).expect("small")];
            let key = Key::new("user:").part(customer);
            let _ = limiter.named("user:{user_id}").check(&key, &limits[0]).await;
            let key = Key::new("search:").part(format!("tenant-{}", turn % 3));
            let _ = limiter.named("search").check(&key, &limits[1]).await;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

impl Chromium {
    /// Enters the token as a person does.
    pub(crate) async fn enter_token(&self, token: &str) {
        self.evaluate("document.getElementById('token-button').click()").await;
        let enter = format!(
            "document.getElementById('token').value = {}; document.querySelector('#token-form button[type=submit]').click()",
            json!(token)
        );
        self.evaluate(&enter).await;
    }

    /// Waits until the page has the session of the token.
    pub(crate) async fn wait_for_trust(&self) {
        self.wait_until("document.getElementById('token-button').textContent === 'Forget token'").await;
    }

    /// Opens a view of the page.
    pub(crate) async fn view(&self, hash: &str, title: &str) {
        self.evaluate(&format!("location.hash = {}", json!(hash))).await;
        self.wait_until(&format!("document.querySelector('h1')?.textContent === {}", json!(title))).await;
    }

    /// Waits until a part of the page has this text.
    pub(crate) async fn wait_for_text(&self, selector: &str, text: &str) {
        let found = format!("document.querySelector({})?.textContent.includes({})", json!(selector), json!(text));
        self.wait_until(&format!("{found} === true")).await;
    }

    /// Writes who makes a change, and why.
    pub(crate) async fn sign(&self) {
        self.fill(".publish-panel input[placeholder=ana]", "ana").await;
        self.fill(".publish-panel input[placeholder^=INC]", "INC-731").await;
    }

    /// Clicks the button or the link of the view with this text.
    pub(crate) async fn click(&self, text: &str) {
        let text = json!(text);
        let found = format!(
            "[...document.querySelectorAll('main button, main a')].find((node) => node.textContent === {text})"
        );
        self.wait_until(&format!("{found} !== undefined")).await;
        self.evaluate(&format!("{found}.click()")).await;
    }

    /// Sets the value of a field, as a person types it.
    pub(crate) async fn fill(&self, selector: &str, text: &str) {
        let fill = format!(
            "(() => {{ const node = document.querySelector({}); node.value = {}; node.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()",
            json!(selector),
            json!(text)
        );
        self.evaluate(&fill).await;
    }
}

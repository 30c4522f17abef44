//! Chromium without a window, and the page in it.

use std::future::Future;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, fs, mem, thread};

use chromiumoxide::cdp::IntoEventKind;
use chromiumoxide::cdp::browser_protocol::emulation::{MediaFeature, SetDeviceMetricsOverrideParams};
use chromiumoxide::cdp::browser_protocol::log::{EventEntryAdded, LogEntryLevel};
use chromiumoxide::cdp::browser_protocol::network::EventRequestWillBeSent;
use chromiumoxide::cdp::js_protocol::runtime::{
    ConsoleApiCalledType, EvaluateParams, EventConsoleApiCalled, EventExceptionThrown,
};
use chromiumoxide::{Browser, BrowserConfig, Page};
use futures_util::StreamExt;
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The longest wait for a condition, and for an answer of the browser: far more than it takes on a machine under load.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A browser with one page. It records the page's requests and errors.
pub(crate) struct Chromium {
    browser: Browser,
    pub(crate) page: Page,
    requests: Arc<Mutex<Vec<String>>>,
    errors: Arc<Mutex<Vec<String>>>,
    tasks: Vec<JoinHandle<()>>,
    profile: TempDir,
}

impl Chromium {
    /// Starts a browser with a profile of its own, opens a page, and waits until an expression is true there.
    pub(crate) async fn launch(url: &str, ready: &str) -> Self {
        let profile = tempfile::Builder::new().prefix("limiter-chromium-").tempdir().expect("a directory");
        let (browser, mut events) = Browser::launch(config(&profile)).await.unwrap_or_else(|error| {
            panic!("Chromium does not start: {error}: install it, as by `scripts/test --browser`, or set RATE_LIMITED_BROWSER")
        });
        let handler = tokio::spawn(async move { while events.next().await.is_some() {} });
        let page = browser.new_page("about:blank").await.expect("a page");
        let (requests, errors) = (Arc::default(), Arc::default());
        let mut chromium = Self { browser, page, requests, errors, tasks: vec![handler], profile };
        chromium.record().await;
        chromium.resize(1280, 900).await;
        chromium.go_to(url, ready).await;
        chromium
    }

    /// Opens an address, and waits until an expression is true there.
    pub(crate) async fn go_to(&self, url: &str, ready: &str) {
        self.page.goto(url).await.expect("the page loads");
        self.wait_until(ready).await;
    }

    async fn record(&mut self) {
        self.page.enable_log().await.expect("a log");
        let (requests, errors) = (Arc::clone(&self.requests), Arc::clone(&self.errors));
        self.listen(&requests, |event: &EventRequestWillBeSent| Some(event.request.url.clone())).await;
        self.listen(&errors, |event: &EventExceptionThrown| Some(format!("{:?}", event.exception_details))).await;
        self.listen(&errors, |event: &EventConsoleApiCalled| {
            let is_error = matches!(event.r#type, ConsoleApiCalledType::Error | ConsoleApiCalledType::Assert);
            is_error.then(|| format!("{:?}", event.args))
        })
        .await;
        self.listen(&errors, |EventEntryAdded { entry }: &EventEntryAdded| {
            let url = entry.url.as_deref().unwrap_or_default();
            (entry.level == LogEntryLevel::Error).then(|| format!("{} {url}", entry.text))
        })
        .await;
    }

    /// Keeps a line of each event of a type, until the browser ends.
    async fn listen<T: IntoEventKind + Unpin>(
        &mut self,
        lines: &Arc<Mutex<Vec<String>>>,
        line: impl Fn(&T) -> Option<String> + Send + 'static,
    ) where
        Arc<T>: Send,
    {
        let mut events = self.page.event_listener::<T>().await.expect("events");
        let lines = Arc::clone(lines);
        self.tasks.push(tokio::spawn(async move {
            while let Some(event) = events.next().await {
                lines.lock().expect("a list").extend(line(&event));
            }
        }));
    }

    /// Returns the value of a JavaScript expression. A promise is awaited.
    pub(crate) async fn evaluate(&self, expression: &str) -> Value {
        let parameters = EvaluateParams::builder().expression(expression).build().expect("an expression");
        let result = self.page.evaluate_expression(parameters).await;
        let result = result.unwrap_or_else(|error| panic!("{error:?}: {expression}"));
        result.value().cloned().unwrap_or_default()
    }

    /// Waits until a JavaScript expression is true.
    pub(crate) async fn wait_until(&self, expression: &str) {
        eventually(expression, async || (self.evaluate(expression).await == true).then_some(())).await;
    }

    /// Sets the size of the window.
    pub(crate) async fn resize(&self, width: i64, height: i64) {
        let metrics = SetDeviceMetricsOverrideParams::new(width, height, 1.0, false);
        self.page.execute(metrics).await.expect("a size");
    }

    /// Sets what the user prefers: `light` or `dark`.
    pub(crate) async fn prefer(&self, scheme: &str) {
        let feature = MediaFeature::new("prefers-color-scheme", scheme);
        self.page.emulate_media_features(vec![feature]).await.expect("a scheme");
    }

    /// Closes the browser. Asserts that the page had no error, except on these paths, that it has read its stream, and that
    /// it has sent no request to another host.
    pub(crate) async fn close(mut self, url: &str, stream: &str, may_fail: &[&str]) {
        // The browser may end before it answers.
        let _ = self.browser.close().await;
        let end = timeout(WAIT_TIMEOUT, self.browser.wait()).await;
        end.expect("the browser closes").expect("the browser's status");
        for task in mem::take(&mut self.tasks) {
            task.await.expect("a task that records");
        }
        let errors = self.errors.lock().expect("a list");
        let unexpected: Vec<_> =
            errors.iter().filter(|error| !may_fail.iter().any(|path| error.ends_with(path))).collect();
        assert!(unexpected.is_empty(), "{unexpected:#?}");
        let requests = self.requests.lock().expect("a list");
        assert!(requests.iter().any(|request| request == &format!("{url}{stream}")), "{requests:?}");
        let foreign: Vec<_> = requests
            .iter()
            .filter(|request| !request.starts_with(&format!("{url}/")) && !request.starts_with("data:"))
            .collect();
        assert!(foreign.is_empty(), "{foreign:?}");
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let until = Instant::now() + WAIT_TIMEOUT;
        // A failed test has not closed its browser. At SIGTERM it ends its other processes, which write into the profile.
        let browser = self.browser.get_mut_child().map(|child| child.as_mut_inner());
        if let Some((browser, id)) = browser.and_then(|browser| browser.id().map(|id| (browser, id))) {
            let _ = Command::new("sh").args(["-c", r#"kill -s TERM "$1""#, "kill", &id.to_string()]).status();
            while matches!(browser.try_wait(), Ok(None)) && Instant::now() < until {
                thread::sleep(Duration::from_millis(20));
            }
        }
        while fs::remove_dir_all(self.profile.path()).is_err() && self.profile.path().exists() && Instant::now() < until
        {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Polls until there is a value, and panics after a minute.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut poll: impl FnMut() -> F) -> T {
    let until = Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Some(value) = poll().await {
            return value;
        }
        assert!(Instant::now() < until, "not within {WAIT_TIMEOUT:?}: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The browser runs as root too, and sends nothing by itself.
fn config(profile: &TempDir) -> BrowserConfig {
    let program = env::var_os("RATE_LIMITED_BROWSER").unwrap_or_else(|| "/usr/bin/chromium".into());
    let flags = [
        "disable-background-networking",
        "disable-component-update",
        "disable-dev-shm-usage",
        "disable-gpu",
        "disable-quic",
        "disable-sync",
        "force-color-profile=srgb",
        "lang=en-US",
        "no-first-run",
    ];
    let config = BrowserConfig::builder().chrome_executable(program).user_data_dir(profile.path()).viewport(None);
    let config = config.disable_default_args().no_sandbox().args(flags);
    config.launch_timeout(WAIT_TIMEOUT).request_timeout(WAIT_TIMEOUT).build().expect("a configuration")
}

//! A recorder that keeps every series with its value.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

/// The series of this process, by their text, such as `name{label="value"}`.
#[derive(Clone, Default)]
pub(crate) struct Collector {
    series: Arc<Mutex<BTreeMap<String, Arc<Series>>>>,
}

/// The values of one series, in order, with the names of the threads that recorded them.
#[derive(Default)]
struct Series {
    values: Mutex<Vec<f64>>,
    threads: Mutex<Vec<String>>,
}

/// Makes every recorded value panic.
pub(crate) static PANICS: AtomicBool = AtomicBool::new(false);

impl Series {
    fn record(&self, change: impl FnOnce(&mut Vec<f64>)) {
        change(&mut self.values.lock().expect("not poisoned"));
        let name = thread::current().name().unwrap_or_default().to_owned();
        self.threads.lock().expect("not poisoned").push(name);
        assert!(!PANICS.load(Ordering::SeqCst), "a panic of the recorder");
    }

    fn set(&self, change: impl FnOnce(f64) -> f64) {
        self.record(|values| *values = vec![change(values.first().copied().unwrap_or_default())]);
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        let value = u32::try_from(value).expect("small");
        self.set(|sum| sum + f64::from(value));
    }

    fn absolute(&self, _: u64) {
        panic!("the limiter never sets a counter");
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.set(|sum| sum + value);
    }

    fn decrement(&self, value: f64) {
        self.set(|sum| sum - value);
    }

    fn set(&self, value: f64) {
        Self::set(self, |_| value);
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        Self::record(self, |values| values.push(value));
    }
}

impl Collector {
    /// Installs the recorder of this process, once.
    pub(crate) fn installed() -> &'static Self {
        static INSTALLED: LazyLock<Collector> = LazyLock::new(|| {
            let collector = Collector::default();
            metrics::set_global_recorder(collector.clone()).expect("the first recorder");
            collector
        });
        &INSTALLED
    }

    fn register(&self, key: &Key) -> Arc<Series> {
        let mut text = key.name().to_owned();
        for (index, label) in key.labels().enumerate() {
            let start = if index == 0 { '{' } else { ',' };
            write!(text, "{start}{}={:?}", label.key(), label.value()).expect("a string");
        }
        if key.labels().len() > 0 {
            text.push('}');
        }
        Arc::clone(self.series.lock().expect("not poisoned").entry(text).or_default())
    }

    fn values(&self, series: &str) -> Option<Vec<f64>> {
        let series = Arc::clone(self.series.lock().expect("not poisoned").get(series)?);
        Some(series.values.lock().expect("not poisoned").clone())
    }

    /// Returns the value of a counter or a gauge. `None` without such a series.
    pub(crate) fn value(&self, series: &str) -> Option<f64> {
        Some(self.values(series)?.first().copied().unwrap_or_default())
    }

    /// Returns the values of a histogram.
    pub(crate) fn samples(&self, series: &str) -> Vec<f64> {
        self.values(series).unwrap_or_default()
    }

    /// Returns the text of each series.
    pub(crate) fn names(&self) -> Vec<String> {
        self.series.lock().expect("not poisoned").keys().cloned().collect()
    }

    /// Returns the names of all threads that recorded a value.
    pub(crate) fn threads(&self) -> Vec<String> {
        let series: Vec<_> = self.series.lock().expect("not poisoned").values().cloned().collect();
        series.iter().flat_map(|series| series.threads.lock().expect("not poisoned").clone()).collect()
    }
}

impl Recorder for Collector {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.register(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.register(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.register(key))
    }
}

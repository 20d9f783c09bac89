//! Numbers that many threads count, and their text for Prometheus (exposition format 0.0.4).
//!
//! A family's label values are fixed when it is made: nothing that a client sends can add a series, and each one is there
//! from the start with 0, so that its first increase is seen as one.

use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Only ever grows.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One counter for each value of one label.
pub struct Counters {
    label: &'static str,
    counters: Vec<(&'static str, Counter)>,
}

impl Counters {
    pub fn new(label: &'static str, values: impl IntoIterator<Item = &'static str>) -> Self {
        Self { label, counters: values.into_iter().map(|value| (value, Counter::default())).collect() }
    }

    /// Counts one more; a value that was not named at the start is not counted.
    pub fn count(&self, value: &str) {
        if let Some((_, counter)) = self.counters.iter().find(|(name, _)| *name == value) {
            counter.add(1);
        }
    }
}

/// How often something took how long.
pub struct Histogram {
    /// Upper bounds in seconds, each with how many fell between it and the one before.
    buckets: Vec<(f64, Counter)>,
    /// Longer than the last bound.
    longer: Counter,
    micros: Counter,
}

impl Histogram {
    pub fn new(bounds: &[f64]) -> Self {
        Self {
            buckets: bounds.iter().map(|bound| (*bound, Counter::default())).collect(),
            longer: Counter::default(),
            micros: Counter::default(),
        }
    }

    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = self.buckets.iter().find(|(bound, _)| seconds <= *bound);
        bucket.map_or(&self.longer, |(_, counter)| counter).add(1);
        self.micros.add(took.as_micros() as u64);
    }
}

/// What one scrape answers.
#[derive(Default)]
pub struct Page(String);

impl Page {
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.line(name, value);
    }

    pub fn counters(&mut self, name: &str, help: &str, counters: &Counters) {
        self.head(name, "counter", help);
        for (value, counter) in &counters.counters {
            self.labelled(name, counters.label, value, counter.get());
        }
    }

    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "gauge", help);
        self.line(name, value);
    }

    /// One gauge for each value of one label.
    pub fn gauges<V: Display>(&mut self, name: &str, help: &str, label: &str, values: &[(&str, V)]) {
        self.head(name, "gauge", help);
        for (value, number) in values {
            self.labelled(name, label, value, number);
        }
    }

    pub fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let mut count = 0;
        let bucket = format!("{name}_bucket");
        for (bound, counter) in &histogram.buckets {
            count += counter.get();
            self.labelled(&bucket, "le", &bound.to_string(), count);
        }
        count += histogram.longer.get();
        self.labelled(&bucket, "le", "+Inf", count);
        self.line(&format!("{name}_sum"), Duration::from_micros(histogram.micros.get()).as_secs_f64());
        self.line(&format!("{name}_count"), count);
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.0
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn line(&mut self, name: &str, value: impl Display) {
        self.put(format_args!("{name} {value}"));
    }

    fn labelled(&mut self, name: &str, label: &str, value: &str, number: impl Display) {
        self.put(format_args!("{name}{{{label}=\"{value}\"}} {number}"));
    }

    fn put(&mut self, line: std::fmt::Arguments<'_>) {
        // A string takes whatever is written to it.
        let _ = writeln!(self.0, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_adds_its_buckets_up() {
        let histogram = Histogram::new(&[0.001, 0.5]);
        for millis in [1, 1, 20, 7000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let mut page = Page::default();
        page.histogram("t_seconds", "Time.", &histogram);
        assert_eq!(
            page.into_text(),
            "# HELP t_seconds Time.\n# TYPE t_seconds histogram\nt_seconds_bucket{le=\"0.001\"} 2\n\
             t_seconds_bucket{le=\"0.5\"} 3\nt_seconds_bucket{le=\"+Inf\"} 4\nt_seconds_sum 7.022\nt_seconds_count 4\n"
        );
    }

    #[test]
    fn a_label_has_the_values_it_was_made_with_and_no_others() {
        let counters = Counters::new("kind", ["a", "b"]);
        counters.count("b");
        counters.count("c\"} 1\nforged");
        let mut page = Page::default();
        page.counters("t_total", "Things.", &counters);
        assert_eq!(
            page.into_text(),
            "# HELP t_total Things.\n# TYPE t_total counter\nt_total{kind=\"a\"} 0\nt_total{kind=\"b\"} 1\n"
        );
    }
}

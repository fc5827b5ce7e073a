//! Families of samples, and their text.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::Format;
use super::table::{Kind, METRICS, Metric};

/// A sample of a family.
#[derive(Debug)]
struct Sample {
    labels: Vec<(&'static str, String)>,
    value: Value,
}

/// What a sample has.
#[derive(Debug)]
enum Value {
    Whole(u64),
    Fraction(f64),
    Histogram(Distribution),
}

/// How many took how long.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Distribution {
    /// All of them together, in seconds.
    pub(super) sum_s: f64,
    /// Upper bounds in seconds, and how many are between the bound before and this one. The last
    /// one is infinite.
    pub(super) buckets: Vec<(f64, u64)>,
}

/// The samples of one metric.
#[derive(Debug)]
struct Family {
    metric: &'static Metric,
    samples: Vec<Sample>,
}

/// All samples of one moment, by family: a family's samples are never apart.
#[derive(Debug)]
pub(super) struct Scrape {
    /// In the order of [`METRICS`].
    families: Vec<Family>,
}

impl Scrape {
    pub(super) fn new() -> Self {
        let families = METRICS.iter().map(|metric| Family { metric, samples: Vec::new() });
        Self { families: families.collect() }
    }

    /// Adds a whole number. `labels` are the values of the metric's labels, in their order.
    pub(super) fn whole(&mut self, metric: &Metric, labels: &[&str], value: u64) {
        self.add(metric, labels, Value::Whole(value));
    }

    /// Adds a number with a fraction, of seconds most likely.
    pub(super) fn fraction(&mut self, metric: &Metric, labels: &[&str], value: f64) {
        self.add(metric, labels, Value::Fraction(value));
    }

    /// Adds a histogram.
    pub(super) fn histogram(&mut self, metric: &Metric, labels: &[&str], value: Distribution) {
        self.add(metric, labels, Value::Histogram(value));
    }

    fn add(&mut self, metric: &Metric, labels: &[&str], value: Value) {
        assert_eq!(metric.labels.len(), labels.len(), "labels of {}", metric.name);
        let family = self.families.iter_mut().find(|family| family.metric.name == metric.name);
        let Some(family) = family else { unreachable!("{} is not in METRICS", metric.name) };
        let values = labels.iter().map(|value| (*value).to_owned());
        let labels = metric.labels.iter().copied().zip(values).collect();
        family.samples.push(Sample { labels, value });
    }

    /// The text of all that was added.
    ///
    /// # Errors
    /// When the encoder fails, which is a bug.
    pub(super) fn text(self, format: Format) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(match format {
            Format::OpenMetrics => text,
            Format::Prometheus => prometheus(&text),
        })
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in self.families.iter().filter(|family| !family.samples.is_empty()) {
            let metric = family.metric;
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
                Kind::Info => MetricType::Info,
            };
            // The encoder appends the unit to the name.
            let unit = metric.unit.map(|unit| Unit::Other(unit.to_owned()));
            let suffix = metric.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
            let name = metric.name.strip_suffix(&suffix).unwrap_or(metric.name);
            let mut encoder = encoder.encode_descriptor(name, metric.help, unit.as_ref(), kind)?;
            for sample in &family.samples {
                encode_sample(metric.kind, sample, &mut encoder)?;
            }
        }
        Ok(())
    }
}

fn encode_sample(kind: Kind, sample: &Sample, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
    if kind == Kind::Info {
        return encoder.encode_info(&sample.labels);
    }
    if sample.labels.is_empty() {
        return encode_value(kind, &sample.value, encoder);
    }
    encode_value(kind, &sample.value, &mut encoder.encode_family(&sample.labels)?)
}

fn encode_value(kind: Kind, value: &Value, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
    match (value, kind) {
        (Value::Histogram(Distribution { sum_s, buckets }), _) => {
            let count = buckets.iter().map(|(_, count)| count).sum();
            encoder.encode_histogram::<NoLabelSet>(*sum_s, count, buckets, None)
        }
        (Value::Whole(value), Kind::Counter) => {
            encoder.encode_counter::<NoLabelSet, u64, f64>(value, None)
        }
        (Value::Fraction(value), Kind::Counter) => {
            encoder.encode_counter::<NoLabelSet, f64, f64>(value, None)
        }
        (Value::Whole(value), _) => encoder.encode_gauge(value),
        (Value::Fraction(value), _) => encoder.encode_gauge(value),
    }
}

/// The text format 0.0.4 of `OpenMetrics` text of ours: it describes samples by their own names, and
/// knows neither units nor the type `info`.
fn prometheus(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    for line in openmetrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => continue,
            (Some("#"), Some(word @ ("HELP" | "TYPE")), Some(name), Some(rest)) => {
                let kind = METRICS.iter().find(|metric| metric.name == name).map(|one| one.kind);
                let suffix = match kind {
                    Some(Kind::Counter) => "_total",
                    Some(Kind::Info) => "_info",
                    _ => "",
                };
                let rest = if word == "TYPE" && rest == "info" { "gauge" } else { rest };
                text.extend(["# ", word, " ", name, suffix, " ", rest]);
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

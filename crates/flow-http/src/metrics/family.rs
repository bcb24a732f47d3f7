//! Collects samples by metric, and hands them to the encoder in a fixed order.

use std::collections::BTreeMap;

use flow_engine::counters::{TIMING_BOUNDS_MS, Timing};
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric as Sample, MetricFamily, MetricType};

use super::{Kind, Metric};

/// Holds the samples of one scrape.
#[derive(Debug, Default)]
pub(super) struct Families(BTreeMap<&'static str, Vec<Sample>>);

impl Families {
    pub(super) fn gauge(&mut self, metric: Metric, labels: &[&str], value: f64) {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        let mut sample = Sample::from_label(pairs(metric, labels));
        sample.set_gauge(gauge);
        self.add(metric, Kind::Gauge, sample);
    }

    pub(super) fn flag(&mut self, metric: Metric, value: bool) {
        self.gauge(metric, &[], f64::from(u8::from(value)));
    }

    pub(super) fn counter(&mut self, metric: Metric, value: u64) {
        let mut counter = Counter::default();
        counter.set_value(value as f64);
        let mut sample = Sample::from_label(pairs(metric, &[]));
        sample.set_counter(counter);
        self.add(metric, Kind::Counter, sample);
    }

    pub(super) fn histogram(&mut self, metric: Metric, labels: &[&str], timing: &Timing) {
        let counts = timing.buckets();
        let mut histogram = Histogram::default();
        let mut cumulative = 0;
        let mut buckets = Vec::with_capacity(TIMING_BOUNDS_MS.len());
        for (bound_ms, count) in TIMING_BOUNDS_MS.iter().zip(counts) {
            cumulative += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound_ms as f64 / 1e3);
            bucket.set_cumulative_count(cumulative);
            buckets.push(bucket);
        }
        histogram.set_bucket(buckets);
        histogram.set_sample_count(counts.iter().sum());
        histogram.set_sample_sum(timing.sum_seconds());
        let mut sample = Sample::from_label(pairs(metric, labels));
        sample.set_histogram(histogram);
        self.add(metric, Kind::Histogram, sample);
    }

    fn add(&mut self, metric: Metric, kind: Kind, sample: Sample) {
        assert_eq!(metric.kind, kind, "{} is declared as another kind", metric.name);
        self.0.entry(metric.name).or_default().push(sample);
    }

    /// Ends the collection: families that have samples, as declared and in the order given.
    pub(super) fn in_order(mut self, catalogue: &[Metric]) -> Vec<MetricFamily> {
        let mut families = Vec::new();
        for metric in catalogue {
            let Some(samples) = self.0.remove(metric.name) else {
                continue;
            };
            let mut family = MetricFamily::default();
            family.set_name(metric.name.into());
            family.set_help(metric.help.into());
            family.set_field_type(match metric.kind {
                Kind::Gauge => MetricType::GAUGE,
                Kind::Counter => MetricType::COUNTER,
                Kind::Histogram => MetricType::HISTOGRAM,
            });
            family.set_metric(samples);
            families.push(family);
        }
        families
    }
}

fn pairs(metric: Metric, values: &[&str]) -> Vec<LabelPair> {
    assert_eq!(metric.labels.len(), values.len(), "{} has other labels", metric.name);
    let pair = |(name, value): (&&str, &&str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).into());
        pair.set_value((*value).into());
        pair
    };
    metric.labels.iter().zip(values).map(pair).collect()
}

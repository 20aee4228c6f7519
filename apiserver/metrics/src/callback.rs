//! Metrics whose values other code counts: a callback collects them at each scrape.

use std::collections::HashMap;

use prometheus::core::{Collector, Desc};
use prometheus::proto;

/// The type of a collected metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackMetricType {
    Counter,
    Gauge,
}

/// The description of a metric that a callback collects.
pub struct CallbackMetricDesc {
    name: &'static str,
    help: &'static str,
    metric_type: CallbackMetricType,
    labels: &'static [&'static str],
}

impl CallbackMetricDesc {
    pub const fn new(
        name: &'static str,
        help: &'static str,
        metric_type: CallbackMetricType,
        labels: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            help,
            metric_type,
            labels,
        }
    }

    #[expect(
        clippy::expect_used,
        reason = "names are constants: the first scrape of a test fails on a wrong one"
    )]
    fn description(&self) -> Desc {
        let labels = self.labels.iter().map(ToString::to_string).collect();
        Desc::new(self.name.into(), self.help.into(), labels, HashMap::new())
            .expect("Prometheus allows the name")
    }
}

/// The values that a callback collects in one scrape.
pub struct CallbackMetricWriter<'a> {
    descriptions: &'a [Desc],
    families: &'a mut [proto::MetricFamily],
}

impl CallbackMetricWriter<'_> {
    /// Sets the value of a metric for these label values; each combination once. The
    /// metric must be one of those registered with the callback; others are ignored.
    pub fn set(&mut self, name: &str, values: &[&str], value: f64) {
        let index = self.descriptions.iter().position(|f| f.fq_name == name);
        debug_assert!(index.is_some(), "{name} is not registered here");
        let Some(index) = index else { return };
        let (description, family) = (&self.descriptions[index], &mut self.families[index]);
        debug_assert_eq!(description.variable_labels.len(), values.len());
        let labels = description.variable_labels.iter().zip(values);
        let mut pairs: Vec<proto::LabelPair> = labels
            .map(|(name, value)| {
                let mut pair = proto::LabelPair::default();
                pair.set_name(name.clone());
                pair.set_value((*value).to_owned());
                pair
            })
            .collect();
        pairs.sort();
        let mut metric = proto::Metric::from_label(pairs);
        if family.get_field_type() == proto::MetricType::COUNTER {
            let mut counter = proto::Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = proto::Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        family.mut_metric().push(metric);
    }
}

type CollectFn = Box<dyn Fn(&mut CallbackMetricWriter<'_>) + Send + Sync>;

/// Metrics that one callback collects.
pub(crate) struct CallbackCollector {
    descriptions: Vec<Desc>,
    types: Vec<CallbackMetricType>,
    collect: CollectFn,
}

impl CallbackCollector {
    pub(crate) fn new(descs: &[CallbackMetricDesc], collect: CollectFn) -> Self {
        Self {
            descriptions: descs.iter().map(CallbackMetricDesc::description).collect(),
            types: descs.iter().map(|f| f.metric_type).collect(),
            collect,
        }
    }
}

impl Collector for CallbackCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let mut families: Vec<proto::MetricFamily> = self
            .descriptions
            .iter()
            .zip(&self.types)
            .map(|(description, shape)| {
                let mut family = proto::MetricFamily::default();
                family.set_name(description.fq_name.clone());
                family.set_help(description.help.clone());
                family.set_field_type(match shape {
                    CallbackMetricType::Counter => proto::MetricType::COUNTER,
                    CallbackMetricType::Gauge => proto::MetricType::GAUGE,
                });
                family
            })
            .collect();
        (self.collect)(&mut CallbackMetricWriter {
            descriptions: &self.descriptions,
            families: &mut families,
        });
        families
    }
}

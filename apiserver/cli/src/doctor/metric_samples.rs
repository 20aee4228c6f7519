//! Reads the samples of a scrape in Prometheus' text format, of the metrics that somebody uses.

/// The metrics that checks read.
const CHECKED_METRICS: [&str; 16] = [
    "apiserver_admission_webhook_fail_open_count",
    "apiserver_admission_webhook_rejection_count",
    "apiserver_storage_size_bytes",
    "apiserver_terminated_watchers_total",
    "flotilla_agent_tunnels",
    "flotilla_certificate_expiration_timestamp_seconds",
    "flotilla_cluster_credential_expiration_timestamp_seconds",
    "flotilla_data_dir_capacity_bytes",
    "flotilla_data_dir_free_bytes",
    "flotilla_propagation_lag_seconds_bucket",
    "flotilla_propagation_lag_seconds_count",
    "flotilla_store_fault",
    "flotilla_workqueue_oldest_item_age_seconds",
    "karmada_build_info",
    "process_start_time_seconds",
    "workqueue_depth",
];

/// A sample: a metric, its labels and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSample {
    name: &'static str,
    labels: Vec<(String, String)>,
    pub value: f64,
}

impl MetricSample {
    /// The value of a label, empty if the sample does not have it.
    pub fn label(&self, name: &str) -> &str {
        let label = self
            .labels
            .iter()
            .find(|(label_name, _)| label_name == name);
        label.map_or("", |(_, value)| value)
    }
}

/// The samples of a scrape.
#[derive(Clone, Debug, Default)]
pub struct MetricSamples(Vec<MetricSample>);

impl MetricSamples {
    /// Reads the samples of some metrics. Other lines are ignored.
    pub fn parse(text: &str, metrics: &[&'static str]) -> Self {
        let samples = text.lines().filter_map(|line| parse_line(line, metrics));
        Self(samples.collect())
    }

    /// Reads the samples of the metrics that checks read.
    pub(super) fn parse_checked(text: &str) -> Self {
        Self::parse(text, &CHECKED_METRICS)
    }

    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a MetricSample> {
        self.0.iter().filter(move |sample| sample.name == name)
    }

    /// The value of a metric without labels.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.of(name).next().map(|sample| sample.value)
    }
}

fn parse_line(line: &str, metrics: &[&'static str]) -> Option<MetricSample> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let name = metrics.iter().copied().find(|used| *used == name)?;
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => parse_labels(rest)?,
        None => (Vec::new(), rest),
    };
    // A timestamp may follow the value.
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(MetricSample {
        name,
        labels,
        value,
    })
}

/// The labels up to the closing brace, and what follows it.
fn parse_labels(mut text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once("=\"")?;
        let (value, rest) = parse_quoted(rest)?;
        labels.push((name.to_owned(), value));
        text = rest;
    }
}

/// The text up to the closing quotation mark, and what follows it.
fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_used_metrics_are_read_and_other_lines_ignored() {
        let text = "# HELP workqueue_depth Keys.\n# TYPE workqueue_depth gauge\n\
            workqueue_depth{name=\"a\\\"b\\\\c\\nd\",x=\"\"} 3\n\
            workqueue_depth{name=\"open 1\n\
            workqueue_depth{name=\"no value\"}\n\
            workqueue_depth 7 1700000000\n\
            process_start_time_seconds 1.5e9\n\
            unused_total 1\n";
        let samples = MetricSamples::parse_checked(text);
        let depths: Vec<(&str, f64)> = samples
            .of("workqueue_depth")
            .map(|sample| (sample.label("name"), sample.value))
            .collect();
        assert_eq!(depths, [("a\"b\\c\nd", 3.0), ("", 7.0)]);
        assert_eq!(samples.value("process_start_time_seconds"), Some(1.5e9));
        assert_eq!(samples.value("unused_total"), None);
    }
}

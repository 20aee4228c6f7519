//! Counts the entries of histories.

use std::sync::LazyLock;

use flotilla_metrics::{Counter, MetricVec};

static ENTRIES: LazyLock<MetricVec<Counter, 2>> = LazyLock::new(|| {
    flotilla_metrics::process_registry().counters(
        "flotilla_history_entries_total",
        "Entries of the histories of templates: recorded, or dropped because too many waited.",
        ["type", "result"],
    )
});

/// `result`: `recorded` or `dropped`.
pub(crate) fn count_entry(entry_type: &str, result: &str) {
    ENTRIES.with_label_values([entry_type, result]).inc();
}

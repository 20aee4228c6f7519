//! The metrics of the process: build information and the number of tasks.

use flotilla_http::VersionInfo;
use flotilla_metrics::{CallbackMetricDesc, CallbackMetricType};
use tokio::runtime::Handle;

/// Registers the metrics of the process; called once.
pub(crate) fn register(version: &VersionInfo, runtime: &Handle) {
    let labels = [
        "git_version",
        "git_commit",
        "git_short_commit",
        "git_tree_state",
        "build_date",
        "go_version",
        "compiler",
        "platform",
    ];
    let short = version.git_commit.get(..7).unwrap_or(&version.git_commit);
    flotilla_metrics::process_registry()
        .gauges("karmada_build_info", "A metric with a constant '1' value labeled by version, commit, build date, compiler and platform.", labels)
        .with_label_values([
            &version.git_version,
            &version.git_commit,
            short,
            "clean",
            &version.build_date,
            "none",
            "rustc",
            &version.platform,
        ])
        .set(1);
    let runtime = runtime.clone();
    let tasks = CallbackMetricDesc::new(
        "go_goroutines",
        "Number of tasks that currently exist, under the name that dashboards use.",
        CallbackMetricType::Gauge,
        &[],
    );
    flotilla_metrics::process_registry().register_callback(&[tasks], move |readings| {
        let alive = runtime.metrics().num_alive_tasks();
        readings.set("go_goroutines", &[], alive as f64);
    });
}

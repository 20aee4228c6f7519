//! The metrics of flow control, under kube-apiserver's names.

use flotilla_metrics::{Counter, Gauge, Histogram, MetricVec, MetricsRegistry};

use super::queue_set::RejectReason;

const WAIT_BUCKETS: [f64; 13] = [
    0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0,
];
const SEAT_BUCKETS: [f64; 4] = [1.0, 2.0, 4.0, 10.0];
const FLOW_LABELS: [&str; 2] = ["priority_level", "flow_schema"];

/// The families of all metrics.
pub(super) struct FlowControlMetrics {
    dispatched: MetricVec<Counter, 2>,
    rejected: MetricVec<Counter, 3>,
    waiting: MetricVec<Gauge, 2>,
    executing: MetricVec<Gauge, 2>,
    wait_duration: MetricVec<Histogram, 3>,
    seats: MetricVec<Histogram, 2>,
    nominal_limit: MetricVec<Gauge, 1>,
    lower_limit: MetricVec<Gauge, 1>,
    upper_limit: MetricVec<Gauge, 1>,
    current_limit: MetricVec<Gauge, 1>,
    executing_seats: MetricVec<Gauge, 1>,
}

/// The metrics of one FlowSchema.
pub(super) struct FlowMetrics {
    pub(super) dispatched: Counter,
    pub(super) waiting: Gauge,
    pub(super) executing: Gauge,
    /// Of the requests that were executed, then of the others.
    pub(super) wait_duration: [Histogram; 2],
    pub(super) seats: Histogram,
    rejected: [Counter; 3],
}

impl FlowMetrics {
    pub(super) fn rejected(&self, reason: RejectReason) -> &Counter {
        &self.rejected[reason as usize]
    }
}

/// The metrics of one priority level.
pub(super) struct PriorityLevelMetrics {
    pub(super) nominal_limit: Gauge,
    pub(super) lower_limit: Gauge,
    pub(super) upper_limit: Gauge,
    pub(super) current_limit: Gauge,
    pub(super) executing_seats: Gauge,
}

impl FlowControlMetrics {
    pub(super) fn new(metrics: &MetricsRegistry) -> Self {
        let level = |name: &str, help: &str| metrics.gauges(name, help, ["priority_level"]);
        Self {
            dispatched: metrics.counters(
                "apiserver_flowcontrol_dispatched_requests_total",
                "Number of requests executed by API Priority and Fairness subsystem.",
                FLOW_LABELS,
            ),
            rejected: metrics.counters(
                "apiserver_flowcontrol_rejected_requests_total",
                "Number of requests rejected by API Priority and Fairness subsystem.",
                ["priority_level", "flow_schema", "reason"],
            ),
            waiting: metrics.gauges(
                "apiserver_flowcontrol_current_inqueue_requests",
                "Number of requests currently pending in queues of the API Priority and Fairness subsystem.",
                FLOW_LABELS,
            ),
            executing: metrics.gauges(
                "apiserver_flowcontrol_current_executing_requests",
                "Number of requests in the execution phase in the API Priority and Fairness subsystem.",
                FLOW_LABELS,
            ),
            wait_duration: metrics.histograms(
                "apiserver_flowcontrol_request_wait_duration_seconds",
                "Length of time a request spent waiting in its queue.",
                &WAIT_BUCKETS,
                ["priority_level", "flow_schema", "execute"],
            ),
            seats: metrics.histograms(
                "apiserver_flowcontrol_work_estimated_seats",
                "Number of estimated seats associated with requests in API Priority and Fairness.",
                &SEAT_BUCKETS,
                FLOW_LABELS,
            ),
            nominal_limit: level(
                "apiserver_flowcontrol_nominal_limit_seats",
                "Nominal number of execution seats configured for each priority level.",
            ),
            lower_limit: level(
                "apiserver_flowcontrol_lower_limit_seats",
                "Configured lower bound on number of execution seats available to each priority level.",
            ),
            upper_limit: level(
                "apiserver_flowcontrol_upper_limit_seats",
                "Configured upper bound on number of execution seats available to each priority level.",
            ),
            current_limit: level(
                "apiserver_flowcontrol_current_limit_seats",
                "Current derived number of execution seats available to each priority level.",
            ),
            executing_seats: level(
                "apiserver_flowcontrol_current_executing_seats",
                "Concurrency (number of seats) occupied by the currently executing requests.",
            ),
        }
    }

    pub(super) fn of_flow(&self, level: &str, schema: &str) -> FlowMetrics {
        let labels = [level, schema];
        let rejected = |reason: RejectReason| {
            let labels = [level, schema, reason.as_str()];
            self.rejected.with_label_values(labels)
        };
        let wait_duration = |execute| {
            self.wait_duration
                .with_label_values([level, schema, execute])
        };
        FlowMetrics {
            dispatched: self.dispatched.with_label_values(labels),
            waiting: self.waiting.with_label_values(labels),
            executing: self.executing.with_label_values(labels),
            wait_duration: ["true", "false"].map(wait_duration),
            seats: self.seats.with_label_values(labels),
            rejected: RejectReason::ALL.map(rejected),
        }
    }

    pub(super) fn of_level(&self, level: &str) -> PriorityLevelMetrics {
        PriorityLevelMetrics {
            nominal_limit: self.nominal_limit.with_label_values([level]),
            lower_limit: self.lower_limit.with_label_values([level]),
            upper_limit: self.upper_limit.with_label_values([level]),
            current_limit: self.current_limit.with_label_values([level]),
            executing_seats: self.executing_seats.with_label_values([level]),
        }
    }
}

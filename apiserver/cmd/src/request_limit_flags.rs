//! The flags that bound the requests of a server.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use client::{Api, TaskGroup};
use flotilla_http::{ApiServerOptions, FlowController};
use flotilla_metrics::MetricsRegistry;
use machinery::duration;

use crate::flag_modes::EffectiveMode;

/// The flags of in-flight limits, priority and fairness, and time.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Generic flags")]
pub(crate) struct RequestLimitArgs {
    /// If true, replaces the limits of requests in flight by queuing and dispatching with
    /// priority and fairness (FlowSchemas and PriorityLevelConfigurations).
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, add = EffectiveMode::Standalone)]
    enable_priority_and_fairness: bool,
    /// The maximum number of non-mutating requests in flight. With priority and fairness,
    /// the sum of both limits is the concurrency limit of the server.
    #[arg(long, value_name = "REQUESTS", default_value_t = 400)]
    max_requests_inflight: usize,
    /// The maximum number of mutating requests in flight.
    #[arg(long, value_name = "REQUESTS", default_value_t = 200)]
    max_mutating_requests_inflight: usize,
    /// The time within which a request is answered unless it is long-running, such as a
    /// watch.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse)]
    request_timeout: Duration,
}

impl Default for RequestLimitArgs {
    fn default() -> Self {
        Self {
            enable_priority_and_fairness: true,
            max_requests_inflight: 400,
            max_mutating_requests_inflight: 200,
            request_timeout: Duration::from_secs(60),
        }
    }
}

impl RequestLimitArgs {
    /// The options of a server with these limits.
    pub(crate) fn apply_to(self, options: ApiServerOptions) -> ApiServerOptions {
        ApiServerOptions {
            max_requests_inflight: self.max_requests_inflight,
            max_mutating_requests_inflight: self.max_mutating_requests_inflight,
            request_timeout: self.request_timeout,
            ..options
        }
    }

    /// Starts flow control over the objects of `api`, if it is enabled.
    pub(crate) fn start_flow_control(
        self,
        api: &Arc<dyn Api>,
        metrics: &MetricsRegistry,
        tasks: &TaskGroup,
    ) -> Option<Arc<FlowController>> {
        if !self.enable_priority_and_fairness {
            return None;
        }
        let seats = self.max_requests_inflight + self.max_mutating_requests_inflight;
        let controller = FlowController::new(seats, self.request_timeout, metrics);
        let running = Arc::clone(&controller).run(Arc::clone(api));
        let stop = tasks.shutdown().clone();
        tasks.spawn(async move {
            stop.run_until_triggered(running).await;
        });
        Some(controller)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        limits: RequestLimitArgs,
    }

    /// `up` and `member` have no flags for them.
    #[test]
    fn servers_without_the_flags_have_the_limits_of_the_others() {
        assert_eq!(
            Flags::parse_from(["serve"]).limits,
            RequestLimitArgs::default()
        );
    }
}

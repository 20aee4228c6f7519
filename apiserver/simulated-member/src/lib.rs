//! The parts of a simulated member's API that no stored object answers: the containers of its
//! hollow pods (`pods/log`, `pods/exec`, `pods/attach`, `pods/portforward`), and the metrics of
//! nodes, pods and objects.
//!
//! Nothing runs in a simulated member: all answers are computed from stored objects, for each
//! request.

mod containers;
mod custom_metrics;
mod resource_metrics;

pub use containers::container_connectors;
pub use custom_metrics::hollow_custom_metrics_providers;
pub use resource_metrics::hollow_metrics_providers;

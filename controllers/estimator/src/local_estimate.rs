//! Estimates a member locally by its nodes and quotas, at once; members that are not
//! synced yet have no estimate.
//!
//! Source of the rules: Karmada's `pkg/estimator/server/estimate.go`: the least of the
//! plugins' estimates counts.

use std::sync::Arc;
use std::time::Instant;

use machinery::FailureLogLimiter;
use members::MemberCluster;
use scheduler::core::{AccurateEstimate, AssumedWorkload, EstimateSource};
use scheduler::{EstimateRequest, EstimateSubject};

use crate::metrics::{self, EstimatorExtensionPoint, EstimatorPluginName};
use crate::node_resource::ParsedEstimateRequest;
use crate::{UNBOUNDED_REPLICAS, resource_quota};

/// Objects whose requirements failed to parse.
static FAILURES: FailureLogLimiter = FailureLogLimiter::new();

pub(crate) fn estimate_locally(
    member: &MemberCluster,
    question: &EstimateRequest<'_>,
    assumed: &[Arc<AssumedWorkload>],
    quotas: bool,
) -> AccurateEstimate {
    let (began, subject) = (Instant::now(), question.subject);
    let point = match subject {
        EstimateSubject::Replicas(_) => EstimatorExtensionPoint::Replicas,
        EstimateSubject::Sets { .. } => EstimatorExtensionPoint::Components,
    };
    let estimate = match ParsedEstimateRequest::from_subject(subject, assumed) {
        Ok(estimate) => {
            FAILURES.record_success(&question.object);
            estimate
        }
        Err(reason) => {
            let (cluster, object) = (member.name(), &question.object);
            if FAILURES.record_failure(object, &reason) {
                tracing::warn!(cluster, object, reason, "replica requirements are invalid");
            }
            metrics::record_estimate(point, began.elapsed(), false);
            return AccurateEstimate::Failed;
        }
    };
    let Some(capacity) = member.with_nodes(|nodes| estimate.node_capacity(nodes)) else {
        return AccurateEstimate::Unknown;
    };
    let is_empty = capacity.is_empty();
    let mut least = (estimate.count(capacity), EstimateSource::Nodes);
    metrics::record_plugin(EstimatorPluginName::Nodes, point, began.elapsed());
    let namespace = resource_quota::quota_namespace(&subject);
    if quotas && !is_empty && !namespace.is_empty() {
        let counting = Instant::now();
        let all = member.quotas(namespace).unwrap_or_default();
        let fits =
            resource_quota::fit_within_quotas(all.iter().map(|quota| &**quota), &subject, assumed);
        if fits < least.0 {
            least = (fits, EstimateSource::ResourceQuota);
        }
        metrics::record_plugin(EstimatorPluginName::Quotas, point, counting.elapsed());
    }
    metrics::record_estimate(point, began.elapsed(), true);
    let (replicas, source) = least;
    AccurateEstimate::Available(replicas.clamp(0, UNBOUNDED_REPLICAS), source)
}

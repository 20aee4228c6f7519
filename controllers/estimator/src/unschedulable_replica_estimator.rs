//! Counts the unschedulable replicas of a workload in several clusters at once: by the
//! cluster's own estimator if it has one, else in the cluster itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use karmada_api::binding::ObjectReference;
use machinery::FailureLogLimiter;
use machinery::time::Clock;
use members::MemberClusterManager;

use crate::estimator_cache::{EstimatorCache, EstimatorConnection};
use crate::metrics;
use crate::protobuf::ObjectReferenceMessage;
use crate::unschedulable_replicas::count_unschedulable_replicas;

pub(crate) struct UnschedulableReplicaEstimator {
    pub(crate) connections: Arc<EstimatorCache>,
    members: MemberClusterManager,
    clock: Arc<dyn Clock>,
    threshold: Duration,
    failures: FailureLogLimiter,
}

impl UnschedulableReplicaEstimator {
    pub(crate) fn new(
        connections: Arc<EstimatorCache>,
        members: MemberClusterManager,
        clock: Arc<dyn Clock>,
        threshold: Duration,
    ) -> Self {
        metrics::register();
        Self {
            connections,
            members,
            clock,
            threshold,
            failures: FailureLogLimiter::new(),
        }
    }

    /// The counts, in the order of the clusters. A cluster that cannot be asked has none: its
    /// replicas stay.
    pub(crate) async fn count(&self, clusters: &[&str], workload: &ObjectReference) -> Vec<i64> {
        let counts = clusters.iter().map(async |cluster| {
            let count = self.count_in_cluster(cluster, workload).await;
            match count {
                Ok(count) => {
                    self.failures.record_success(*cluster);
                    count.max(0).into()
                }
                Err(reason) => {
                    if self.failures.record_failure(*cluster, &reason) {
                        tracing::warn!(cluster, reason, "unschedulable replicas are not known");
                    }
                    0
                }
            }
        });
        join_all(counts).await
    }

    async fn count_in_cluster(
        &self,
        cluster: &str,
        workload: &ObjectReference,
    ) -> Result<i32, String> {
        let workload = ObjectReferenceMessage {
            api_version: workload.api_version.clone(),
            kind: workload.kind.clone(),
            namespace: workload.namespace.clone(),
            name: workload.name.clone(),
        };
        match self.connections.get(cluster) {
            Some(EstimatorConnection::Connected(remote)) => {
                let began = Instant::now();
                let count = remote.unschedulable_replicas(cluster, workload, self.threshold);
                let count = count.await;
                metrics::record_call(began.elapsed(), count.is_ok());
                count.map_err(|error| {
                    if error.connection_lost {
                        self.connections.mark_unanswered(cluster);
                    }
                    error.text
                })
            }
            Some(EstimatorConnection::Broken(reason)) => Err(reason),
            None => {
                let member = self.members.get(cluster)?;
                let now = self.clock.now();
                let count =
                    count_unschedulable_replicas(&**member.api(), &workload, self.threshold, now);
                let timeout = self.connections.options().timeout;
                let count = tokio::time::timeout(timeout, count).await;
                count.unwrap_or_else(|_| Err(format!("no answer within {timeout:?}")))
            }
        }
    }
}

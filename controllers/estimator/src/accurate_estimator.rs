//! Estimates the available replicas of clusters: by the cluster's own estimator if it has
//! one, else by its nodes. All clusters are estimated concurrently.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use futures_util::future::join_all;
use members::MemberClusterManager;
use parking_lot::Mutex;
use scheduler::core::{AccurateEstimate, EstimateSource};
use scheduler::{ClusterToEstimate, EstimateRequest, ReplicaEstimator};

use crate::estimator_cache::{EstimatorCache, EstimatorConnection};
use crate::grpc_client::EstimateError;
use crate::{local_estimate, metrics};

/// Estimates all clusters accurately.
pub struct AccurateEstimator {
    connections: Arc<EstimatorCache>,
    members: MemberClusterManager,
    quotas: bool,
    /// Clusters whose estimator failed in the last call.
    failing: Mutex<HashSet<String>>,
}

impl AccurateEstimator {
    /// `members` must track individual nodes, and quotas if the options of `connections` use
    /// them.
    pub fn start(
        connections: &Arc<EstimatorCache>,
        members: &MemberClusterManager,
    ) -> Arc<dyn ReplicaEstimator> {
        metrics::register();
        let estimator = Arc::new(Self {
            quotas: connections.options().quotas,
            connections: Arc::clone(connections),
            members: members.clone(),
            failing: Mutex::default(),
        });
        // Members start to track nodes and quotas before the first estimate.
        let counting = Arc::downgrade(&estimator);
        members.on_connection_change(move |cluster, connected| {
            if let Some(estimator) = counting.upgrade()
                && connected
                && let Ok(member) = estimator.members.get(cluster)
            {
                member.with_nodes(|_| ());
                member.quotas("");
            }
        });
        estimator
    }

    async fn estimate(
        &self,
        question: &EstimateRequest<'_>,
        candidate: &ClusterToEstimate,
    ) -> AccurateEstimate {
        let ClusterToEstimate { cluster, assumed } = candidate;
        let link = match self.connections.get(cluster) {
            Some(link) => link,
            None => {
                // Many clusters may be estimated locally in a row.
                tokio::task::yield_now().await;
                let member = self.members.get(cluster);
                return member.map_or(AccurateEstimate::Unknown, |member| {
                    local_estimate::estimate_locally(&member, question, assumed, self.quotas)
                });
            }
        };
        let began = Instant::now();
        let result = match link {
            EstimatorConnection::Connected(remote) => {
                remote.max_available(cluster, question, assumed).await
            }
            EstimatorConnection::Broken(text) => Err(EstimateError {
                text,
                connection_lost: false,
            }),
        };
        metrics::record_call(began.elapsed(), result.is_ok());
        self.record_call_result(cluster, result.as_ref().err());
        match result {
            Ok(room @ 0..) => AccurateEstimate::Available(room, EstimateSource::Estimator),
            Ok(_) => AccurateEstimate::Unknown,
            Err(_) => AccurateEstimate::Failed,
        }
    }

    /// Logs when an estimator starts to fail and when it recovers.
    fn record_call_result(&self, cluster: &str, silence: Option<&EstimateError>) {
        let mut failing = self.failing.lock();
        match silence {
            Some(EstimateError {
                text,
                connection_lost: lost,
            }) => {
                if *lost {
                    self.connections.mark_unanswered(cluster);
                }
                if failing.insert(cluster.to_owned()) {
                    tracing::warn!(cluster, text, "the estimator of the cluster is failing");
                }
            }
            None => {
                if failing.remove(cluster) {
                    tracing::info!(cluster, "the estimator of the cluster responds again");
                }
            }
        }
    }
}

#[async_trait]
impl ReplicaEstimator for AccurateEstimator {
    async fn wait_ready(&self) {
        self.connections.wait_ready().await;
    }

    async fn max_available(
        &self,
        question: &EstimateRequest<'_>,
        clusters: &[ClusterToEstimate],
    ) -> Vec<AccurateEstimate> {
        let answers = clusters.iter().map(|c| self.estimate(question, c));
        join_all(answers).await
    }
}

impl fmt::Debug for AccurateEstimator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccurateEstimator")
    }
}

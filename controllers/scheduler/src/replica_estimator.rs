//! The interface to estimators, which report the available replicas of clusters more
//! accurately than the clusters' own summaries.
//!
//! The scheduler asks before a decision, never during one. Implementations live outside
//! this crate.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use karmada_api::ResourceBindingSpec;
use karmada_api::binding::Component;
use parking_lot::RwLock;
use serde_json::Value;

use crate::core::{AccurateEstimate, AssumedWorkload};

/// The requirements to estimate.
#[derive(Clone, Debug)]
pub struct EstimateRequest<'a> {
    /// The template concerned, for the estimator's logs.
    pub object: String,
    pub subject: EstimateSubject<'a>,
}

/// The kind of capacity to estimate.
#[derive(Clone, Copy, Debug)]
pub enum EstimateSubject<'a> {
    /// Replicas with these requirements of a binding, if it has any.
    Replicas(Option<&'a Value>),
    /// Whole sets of components.
    Sets {
        namespace: &'a str,
        components: &'a [Component],
    },
}

impl<'a> EstimateRequest<'a> {
    /// `sets`: the components are scheduled together as a set.
    pub(crate) fn from_spec(spec: &'a ResourceBindingSpec, sets: bool) -> Self {
        let template = &spec.resource;
        let subject = if sets {
            EstimateSubject::Sets {
                namespace: &template.namespace,
                components: &spec.components,
            }
        } else {
            EstimateSubject::Replicas(spec.replica_requirements.as_ref())
        };
        Self {
            object: format!(
                "kind={}, name={}/{}",
                template.kind, template.namespace, template.name
            ),
            subject,
        }
    }
}

/// A cluster to estimate.
#[derive(Clone, Debug)]
pub struct ClusterToEstimate {
    pub cluster: String,
    /// Workloads assigned recently that the cluster may not have started yet.
    pub assumed: Vec<Arc<AssumedWorkload>>,
}

/// Estimates the available replicas of clusters.
#[async_trait]
pub trait ReplicaEstimator: fmt::Debug + Send + Sync + 'static {
    /// Waits until the estimator of each cluster is known.
    async fn wait_ready(&self);

    /// Returns one estimate per cluster, in the same order, within the estimator's own timeout.
    async fn max_available(
        &self,
        question: &EstimateRequest<'_>,
        clusters: &[ClusterToEstimate],
    ) -> Vec<AccurateEstimate>;
}

/// The estimator that is asked now, if there is one. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct CurrentEstimator(Arc<RwLock<Option<Arc<dyn ReplicaEstimator>>>>);

impl CurrentEstimator {
    pub fn get(&self) -> Option<Arc<dyn ReplicaEstimator>> {
        self.0.read().clone()
    }

    /// Decisions that have begun end with the estimator before.
    pub fn set(&self, estimator: Option<Arc<dyn ReplicaEstimator>>) {
        *self.0.write() = estimator;
    }
}

impl From<Arc<dyn ReplicaEstimator>> for CurrentEstimator {
    fn from(estimator: Arc<dyn ReplicaEstimator>) -> Self {
        let current = Self::default();
        current.set(Some(estimator));
        current
    }
}

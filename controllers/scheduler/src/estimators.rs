//! The interface to estimators, which report the available replicas of clusters more
//! accurately than the clusters' own summaries.
//!
//! The scheduler asks before a decision, never during one. Implementations live outside
//! this crate.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use openapi::karmada::BindingSpec;
use openapi::karmada::binding::Component;
use serde_json::Value;

use crate::core::{Answer, AssumedWorkload};

/// What to estimate.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The template concerned, for the estimator's logs.
    pub object: String,
    pub asked: Asked<'a>,
}

/// The kind of capacity to estimate.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    /// Replicas with these requirements of a binding, if it has any.
    Replicas(Option<&'a Value>),
    /// Whole sets of components.
    Sets {
        namespace: &'a str,
        components: &'a [Component],
    },
}

impl<'a> Question<'a> {
    /// `sets`: the components are scheduled together as a set.
    pub(crate) fn of(spec: &'a BindingSpec, sets: bool) -> Self {
        let template = &spec.resource;
        let asked = if sets {
            Asked::Sets {
                namespace: &template.namespace,
                components: &spec.components,
            }
        } else {
            Asked::Replicas(spec.replica_requirements.as_ref())
        };
        Self {
            object: format!(
                "kind={}, name={}/{}",
                template.kind, template.namespace, template.name
            ),
            asked,
        }
    }
}

/// A cluster to estimate.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub cluster: String,
    /// Workloads assigned recently that the cluster may not have started yet.
    pub assumed: Vec<Arc<AssumedWorkload>>,
}

/// Estimates the available replicas of clusters.
#[async_trait]
pub trait Estimators: fmt::Debug + Send + Sync + 'static {
    /// Waits until the estimator of each cluster is known.
    async fn ready(&self);

    /// Returns one estimate per cluster, in the same order, within the estimator's own timeout.
    async fn ask(&self, question: &Question<'_>, clusters: &[Candidate]) -> Vec<Answer>;
}

//! Whom the scheduler asks how much room clusters have, beside what they tell of
//! themselves.
//!
//! Enters: a question about clusters. Leaves: an answer to each. What answers is not
//! known here; it is asked before a decision, never in it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use openapi::karmada::BindingSpec;
use openapi::karmada::binding::Component;
use serde_json::Value;

use crate::core::{Answer, AssumedWorkload};

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The template that it is about, for the logs of whoever answers.
    pub object: String,
    pub asked: Asked<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    /// How many replicas with these requirements, of a binding or none.
    Replicas(Option<&'a Value>),
    /// How many sets of components.
    Sets {
        namespace: &'a str,
        components: &'a [Component],
    },
}

impl<'a> Question<'a> {
    /// `sets`: the components are placed as a whole.
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

/// A cluster that is asked about.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub cluster: String,
    /// What it was given lately and may not have started yet.
    pub assumed: Vec<Arc<AssumedWorkload>>,
}

/// Estimators of clusters.
#[async_trait]
pub trait Estimators: fmt::Debug + Send + Sync + 'static {
    /// Waits until it is known who answers for which cluster.
    async fn ready(&self);

    /// An answer for each cluster, in their order, within a time of their own.
    async fn ask(&self, question: &Question<'_>, clusters: &[Candidate]) -> Vec<Answer>;
}

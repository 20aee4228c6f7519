//! Tests propagation end to end over in-memory API servers: from a policy and a template to objects
//! in two members.

/// From bindings to their Works.
mod binding_works;
/// Which policy claims a template, and what its binding contains.
mod claims;
/// From a binding to the objects in members.
mod delivery;
/// Dependencies of templates.
mod dependencies;
/// Events and metrics of the detector.
mod detector_events;
/// Event handlers use indexes.
mod event_handlers;
/// Evicted copies and their replacements.
mod evictions;
/// The record of moves and repairs.
mod histories;
mod host_workload;
/// Replicas that stay while a template moves.
mod kept_replicas;
/// Switched kinds, gates of namespaces, objects left alone and overrides of retained fields.
mod kubefed_options;
mod late_watch;
/// Lazy policies.
mod lazy_policies;
/// Fields that somebody in a member sets too.
mod member_fields;
/// Namespaces in every cluster.
mod namespaces;
/// The namespaces that policies and bindings may not touch.
mod ownership;
/// Shares and usage of FederatedResourceQuotas.
mod quotas;
/// WorkloadRebalancers.
mod rebalancers;
/// Staged templates that are deleted and created anew.
mod recreated_templates;
/// Released claims and recreated templates.
mod released_claims;
/// ReplicaSchedulingPreferences.
mod replica_preferences;
/// Batches of staged templates.
mod rollout_batches;
/// Jobs that stages await.
mod rollout_jobs;
/// Staged templates.
mod rollout_queries;
mod rollouts;
/// Deletions of templates that wait for their copies.
mod template_removal;
/// Deletion of Works and of their objects.
mod work_deletion;
/// From Works to the objects in members.
mod work_execution;
/// Works of the tests.
mod work_fixtures;

use std::ops::{Deref, DerefMut};

use controller_context::PropagationContext;
use controller_testing::{
    CLUSTER_ROLES, CONFIG_MAPS, DEPLOYMENTS, FederationFixture, NAMESPACES, SECRETS, cluster,
    deployment, policy, serve, wait_until,
};
use detector::InlineSchedulingOptions;
use karmada_api::resources::{BINDINGS, WORKS};
use karmada_api::{FeatureGates, KarmadaFeature};
use machinery::Gvr;
use scheduler::SchedulerClusterCache;
use scheduler::core::{SchedulerPluginSet, SchedulingSettings};
use serde_json::Value;

use crate::options::PropagationOptions;
use crate::start::start;

static EVENTS: Gvr = Gvr::from_static("", "v1", "events");

/// The default options on the clusters of a context.
fn default_options(context: &PropagationContext) -> PropagationOptions {
    let clusters = context.clusters.informer().clone();
    let settings =
        SchedulingSettings::new(context.feature_gates, SchedulerPluginSet::default(), false);
    let clusters = SchedulerClusterCache::with_settings(clusters, settings);
    PropagationOptions::new(InlineSchedulingOptions::new(clusters))
}

/// A control plane with two members, whose propagation controllers run.
pub(crate) struct PropagationFixture(FederationFixture);

impl Deref for PropagationFixture {
    type Target = FederationFixture;

    fn deref(&self) -> &FederationFixture {
        &self.0
    }
}

impl DerefMut for PropagationFixture {
    fn deref_mut(&mut self) -> &mut FederationFixture {
        &mut self.0
    }
}

impl PropagationFixture {
    pub(crate) fn new() -> Self {
        Self(FederationFixture::new())
    }

    /// Returns a control plane whose controllers write events.
    fn with_events() -> Self {
        let mut plane = Self::new();
        plane.records_events = true;
        plane
    }

    pub(crate) async fn start(&mut self) {
        self.start_with(FeatureGates::default(), |_| {}).await;
    }

    /// Starts the controllers with feature gates, and with options that `configure` has changed.
    pub(crate) async fn start_with(
        &mut self,
        gates: FeatureGates,
        configure: impl FnOnce(&mut PropagationOptions),
    ) {
        let context = self.context(gates, None);
        let mut options = default_options(&context);
        configure(&mut options);
        start(&context, options).await.unwrap();
    }

    /// Starts the controllers of a control plane that runs workloads itself if it has nodes.
    /// `propagate`: the value of [`HostWorkloadFilter::watch`](flotilla_runtime::HostWorkloadFilter::watch).
    pub(crate) async fn start_on_host(&mut self, propagate: bool) {
        let context = self.context(FeatureGates::default(), Some(propagate));
        let options = default_options(&context);
        start(&context, options).await.unwrap();
    }

    pub(crate) async fn started(mut self) -> Self {
        self.start().await;
        self
    }

    async fn started_with_gates(mut self, gates: &[KarmadaFeature]) -> Self {
        let all = FeatureGates::default();
        let gates = gates
            .iter()
            .fold(all, |all, gate| all.with_feature(*gate, true));
        self.start_with(gates, |_| {}).await;
        self
    }

    pub(crate) fn binding(&self, name: &str) -> Option<Value> {
        self.control_plane.get_object(&BINDINGS, "n", name)
    }

    /// The messages of the events with a reason.
    fn event_messages(&self, reason: &str) -> Vec<String> {
        let all = self.control_plane.list_objects(&EVENTS).into_iter();
        let some = all.filter(|event| event["reason"] == reason);
        some.map(|event| event["message"].as_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) fn deployment_in_member(&self, at: usize, name: &str) -> Option<Value> {
        self.members[at].get_object(&DEPLOYMENTS, "n", name)
    }

    pub(crate) fn work(&self, cluster: &str, name: &str) -> Option<Value> {
        let name = karmada_api::names::work_name("Deployment", name, "n");
        self.control_plane
            .get_object(&WORKS, &format!("karmada-es-{cluster}"), &name)
    }

    pub(crate) async fn wait_until_applied(&self, name: &str) {
        wait_until("both applied", || {
            ["m1", "m2"].iter().all(|c| {
                self.work(c, name).is_some_and(|w| {
                    applied_status(&w) == Some("True")
                        && w["metadata"]["generation"]
                            == condition(&w, "Applied")["observedGeneration"]
                })
            })
        })
        .await;
    }
}

pub(crate) fn condition<'a>(work: &'a Value, kind: &str) -> &'a Value {
    let all = work["status"]["conditions"].as_array();
    all.into_iter()
        .flatten()
        .find(|c| c["type"] == kind)
        .unwrap_or(&Value::Null)
}

fn applied_status(work: &Value) -> Option<&str> {
    condition(work, "Applied")["status"].as_str()
}

//! Reads the state of a scale target: its template, its clusters, and its pods in each of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Api, Error, Informer, ResourcePath};
use futures_util::future::join_all;
use karmada_api::cron_federated_hpa::ScaleTargetReference;
use karmada_api::well_known_keys::{CLUSTER_POLICY_ID, POLICY_ID};
use karmada_api::{Cluster, ResourceBinding, names};
use machinery::{Gvr, LabelSelector, Object};
use members::MemberAccess;
use tokio::time::timeout;

use super::member_metrics::{LabeledPod, read_pods};
use super::pod_groups::ScaledPod;
use super::target_scale::{TargetScale, read_scale, scale_of_workload};
use crate::scale_target::resolve_resource;

/// How long one member may take. The other members do not wait for it any longer.
pub(super) const MEMBER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a state cannot be read: the reason of the event, that of the condition `AbleToScale`, and
/// its message up to the error.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TargetError {
    pub(super) event_reason: &'static str,
    pub(super) condition_reason: &'static str,
    pub(super) unable_to: &'static str,
    pub(super) error: String,
}

const fn target_error(
    event_reason: &'static str,
    condition_reason: &'static str,
    unable_to: &'static str,
) -> impl Fn(String) -> TargetError {
    move |error| TargetError {
        event_reason,
        condition_reason,
        unable_to,
        error,
    }
}

/// A member in which the target runs.
pub(super) struct TargetMember {
    pub(super) cluster: Arc<str>,
    pub(super) api: Arc<dyn Api>,
    /// Selects the pods of the target there.
    pub(super) selector: String,
}

/// A scale target at one time.
pub(super) struct TargetState {
    pub(super) resource: Gvr,
    /// The conditions of the template.
    pub(super) template_replicas: i32,
    /// Sums over the members, and the selector of the first.
    pub(super) scale: TargetScale,
    pub(super) members: Vec<TargetMember>,
    pub(super) pods: Vec<ScaledPod>,
    pub(super) pod_labels: Vec<BTreeMap<String, String>>,
    /// Why the pods of a member are not known, as the reason of an event and its message.
    pub(super) selector_errors: Vec<(&'static str, String)>,
}

/// Where states are read.
pub(super) struct TargetReader {
    pub(super) api: Arc<dyn Api>,
    pub(super) members: Arc<dyn MemberAccess>,
    pub(super) bindings: Informer,
    pub(super) clusters: Informer,
}

/// The report of one member.
struct MemberState {
    scale: TargetScale,
    member: TargetMember,
    pods: Result<Vec<LabeledPod>, (&'static str, String)>,
}

impl TargetReader {
    pub(super) async fn read(
        &self,
        namespace: &str,
        target: &ScaleTargetReference,
    ) -> Result<TargetState, TargetError> {
        const SCALE: &str = "get the target's current scale";
        let get_scale = target_error("FailedGetScale", "FailedGetScale", SCALE);
        let resource = resolve_resource(&*self.api, target).await;
        let resource = resource.map_err(|e| get_scale(e.to_string()))?;
        let Some(resource) = resource else {
            return Err(get_scale(format!(
                "no matches for kind \"{}\" in version \"{}\"",
                target.kind, target.api_version
            )));
        };
        let at = ResourcePath::object(&resource, namespace, &target.name);
        let get_target = target_error(
            "FailedGetScaleTargetRef",
            "FailedGetScaleTargetRef",
            "get the target reference object",
        );
        let object = self.api.get_cached(at).await;
        let object = object.map_err(|e| get_target(e.to_string()))?;
        let clusters = self.target_clusters(&object, target)?;
        let (resource_of_members, name) = (&resource, &*target.name);
        let states = clusters.into_iter().map(|cluster| async move {
            self.read_member(cluster, resource_of_members, namespace, name)
                .await
        });
        let states: Vec<MemberState> = join_all(states).await.into_iter().flatten().collect();
        let mut state = combined(resource.clone(), states);
        if state.scale.spec_replicas == 0 {
            let none = "failed to get replicas in any of clusters, possibly because all of clusters are not ready";
            return Err(get_scale(none.into()));
        }
        let template = match scale_of_workload(&resource, &object) {
            Some(scale) => Ok(scale),
            None => read_scale(&*self.api, &resource, namespace, &target.name).await,
        };
        let template = template.map_err(|e| get_scale(e.to_string()))?;
        state.template_replicas = template.spec_replicas;
        Ok(state)
    }

    /// The clusters of the target's binding that are ready.
    fn target_clusters(
        &self,
        template: &Object,
        target: &ScaleTargetReference,
    ) -> Result<Vec<Arc<str>>, TargetError> {
        let get_binding = target_error(
            "FailedGetBindings",
            "FailedGetBinding",
            "get the binding by scaleTargetRef",
        );
        if template.meta().labels.is_empty() {
            return Err(get_binding("target resource has no label".into()));
        }
        let has = |key| template.meta().label(key).is_some();
        if !has(POLICY_ID) && !has(CLUSTER_POLICY_ID) {
            return Err(get_binding("no label of policy permanent-id found".into()));
        }
        let name = names::binding_name(&target.kind, &target.name);
        let binding = self.bindings.get(template.namespace(), &name);
        let binding = binding.and_then(|object| object.decode::<ResourceBinding>().ok());
        let Some(binding) = binding.filter(|binding| {
            let resource = &binding.spec.resource;
            resource.api_version == target.api_version && resource.kind == target.kind
        }) else {
            return Err(get_binding("no binding matches the target resource".into()));
        };
        let get_clusters = target_error(
            "FailedGetTargetClusters",
            "FailedGetTargetClusters",
            "get the target clusters from binding",
        );
        if binding.spec.clusters.is_empty() {
            return Err(get_clusters("binding has no schedulable clusters".into()));
        }
        let mut ready = Vec::new();
        for target in &binding.spec.clusters {
            let Some(object) = self.clusters.get("", &target.name) else {
                let name = &target.name;
                let missing = format!("clusters.cluster.karmada.io \"{name}\" not found");
                return Err(get_clusters(missing));
            };
            if object
                .decode::<Cluster>()
                .is_ok_and(|cluster| cluster.is_ready())
            {
                ready.push(Arc::from(&*target.name));
            }
        }
        Ok(ready)
    }

    /// None if the member cannot be asked, or does not have the target.
    async fn read_member(
        &self,
        cluster: Arc<str>,
        resource: &Gvr,
        namespace: &str,
        name: &str,
    ) -> Option<MemberState> {
        let api = self.members.api(&cluster).ok()?;
        // Most targets are watched for their status; those need no request for their scale.
        let watched = self.members.find_managed_informer(&cluster, resource);
        let watched = watched.and_then(|informer| informer.get(namespace, name));
        let scale = watched.and_then(|object| scale_of_workload(resource, &object));
        let read = async {
            let scale = match scale {
                Some(scale) => scale,
                None => read_scale(&*api, resource, namespace, name).await.ok()?,
            };
            let pods = match parse_selector(&scale.selector) {
                Ok(_) => read_pods(&*api, &cluster, namespace, &scale.selector).await,
                Err(error) => return Some((scale, Err(error))),
            };
            match pods {
                Err(Error::Transport { .. }) => None,
                // Replicas count even where the pods must not be listed.
                pods => Some((scale, Ok(pods.unwrap_or_default()))),
            }
        };
        let (scale, pods) = timeout(MEMBER_TIMEOUT, read).await.ok()??;
        let member = TargetMember {
            selector: scale.selector.clone(),
            cluster,
            api: Arc::clone(&api),
        };
        Some(MemberState {
            scale,
            member,
            pods,
        })
    }
}

/// The error is the reason of an event and its message.
fn parse_selector(text: &str) -> Result<LabelSelector, (&'static str, String)> {
    if text.is_empty() {
        return Err(("SelectorRequired", "selector is required".into()));
    }
    LabelSelector::parse(text).map_err(|e| {
        let message =
            format!("couldn't convert selector into a corresponding internal selector object: {e}");
        ("InvalidSelector", message)
    })
}

/// Adds the members up; the replicas of the template are not set.
fn combined(resource: Gvr, members: Vec<MemberState>) -> TargetState {
    let mut state = TargetState {
        resource,
        template_replicas: 0,
        scale: TargetScale::default(),
        members: Vec::new(),
        pods: Vec::new(),
        pod_labels: Vec::new(),
        selector_errors: Vec::new(),
    };
    for member in members {
        let sum = &mut state.scale;
        sum.spec_replicas = sum.spec_replicas.saturating_add(member.scale.spec_replicas);
        sum.status_replicas = sum
            .status_replicas
            .saturating_add(member.scale.status_replicas);
        if sum.selector.is_empty() {
            sum.selector = member.scale.selector;
        }
        match member.pods {
            Ok(pods) => {
                let (pods, labels): (Vec<_>, Vec<_>) = pods.into_iter().unzip();
                state.pods.extend(pods);
                state.pod_labels.extend(labels);
                state.members.push(member.member);
            }
            Err(error) => state.selector_errors.push(error),
        }
    }
    state
}

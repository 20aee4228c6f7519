//! Interprets a template for its binding: how many replicas or components it has, and the priority
//! with which it is scheduled.
//!
//! Source: Karmada's `pkg/detector/detector.go` (`applyReplicaInterpretation`,
//! `BuildResourceBinding`).

use client::{InvolvedObject, ResourcePath};
use controller_context::Error;
use flotilla_runtime::RestMapping;
use interpreter::{ResourceInterpreter, TemplateReplicas};
use karmada_api::binding::Component;
use karmada_api::policy::SchedulePriority;
use karmada_api::replica_preference::ReplicaSchedulingPreferenceSpec;
use karmada_api::{FeatureGates, KarmadaFeature};
use machinery::Object;
use serde::Deserialize;

use crate::controller::{PRIORITY_CLASSES, ResourceDetector};
use crate::policy_matching::ParsedPolicy;

#[derive(Default, Deserialize)]
#[serde(default)]
struct PriorityClassValue {
    value: i64,
}

impl ResourceDetector {
    pub(crate) async fn interpret_template(
        &self,
        served: &RestMapping,
        template: &Object,
        policy: &ParsedPolicy,
    ) -> Result<InterpretedTemplate, Error> {
        let about = InvolvedObject::new(&served.api_version, served.kind(), template);
        let wants =
            match interpret_replicas(&self.interpreter, served, template, self.feature_gates())
                .await
            {
                Ok(wants) => wants,
                Err(InterpretError { reason, error }) => {
                    let text = error.to_string();
                    self.recorder.warning(&about, reason, text);
                    return Err(Error::blocked(error));
                }
            };
        match wants {
            InterpretedReplicas::NotReplicated => {}
            InterpretedReplicas::Replicas(_) => {
                let text = "Get replicas of resource template successfully.";
                self.recorder.normal(&about, "GetReplicasSucceed", text);
            }
            InterpretedReplicas::Components(_) => {
                let text = "Get components of resource template successfully.";
                self.recorder.normal(&about, "GetComponentsSucceed", text);
            }
        }
        let priority = match &policy.view.spec.schedule_priority {
            // A ClusterResourceBinding has no priority, whatever the policy says.
            Some(schedule_priority) if !template.namespace().is_empty() => {
                self.scheduling_priority(schedule_priority).await?
            }
            _ => None,
        };
        let namespace_gate = self.namespace_gates.clusters_of(template.namespace());
        Ok(InterpretedTemplate {
            replicas: wants,
            priority,
            namespace_gate: namespace_gate.await?,
            record_affinity_groups: self.is_enabled(KarmadaFeature::WorkloadAffinity),
            replica_preference: self.replica_preference(served.kind(), template),
        })
    }

    async fn scheduling_priority(
        &self,
        schedule_priority: &SchedulePriority,
    ) -> Result<Option<i64>, Error> {
        if !self.is_enabled(KarmadaFeature::PriorityBasedScheduling) {
            return Ok(None);
        }
        match schedule_priority.priority_class_source.as_str() {
            "KubePriorityClass" => {}
            other @ ("PodPriorityClass" | "FederatedPriorityClass") => {
                let text =
                    format!("priority class source is {other}, but {other} is not supported yet");
                return Err(Error::Blocked(text));
            }
            _ => return Err(Error::blocked("unsupported priority class source")),
        }
        let name = &schedule_priority.priority_class_name;
        let class = match self.priority_classes.get("", name) {
            Some(class) => class,
            // The class may be newer than the cache.
            None => match self
                .api
                .get(ResourcePath::object(&PRIORITY_CLASSES, "", name))
                .await
            {
                Err(error) if error.is_not_found() => {
                    let text = format!("PriorityClass.scheduling.k8s.io {name:?} not found");
                    return Err(Error::Blocked(text));
                }
                other => other?,
            },
        };
        Ok(Some(class.decode::<PriorityClassValue>()?.value))
    }
}

/// The replicas or components that a template requests.
#[derive(Clone, Debug, Default)]
pub enum InterpretedReplicas {
    /// The kind has neither.
    #[default]
    NotReplicated,
    Replicas(TemplateReplicas),
    /// Components with a pod template each, which are scheduled together.
    Components(Vec<Component>),
}

/// The interpreted template and the settings that apply to its binding.
#[derive(Clone, Debug, Default)]
pub struct InterpretedTemplate {
    pub replicas: InterpretedReplicas,
    /// The value of the PriorityClass that the policy names.
    pub priority: Option<i64>,
    /// The clusters to which the namespace restricts the template, if it does.
    pub namespace_gate: Option<Vec<String>>,
    /// Whether the binding records workload affinity groups (feature gate WorkloadAffinity).
    pub record_affinity_groups: bool,
    /// The ReplicaSchedulingPreference of the template, which counts only with replicas.
    pub replica_preference: Option<ReplicaSchedulingPreferenceSpec>,
}

/// An interpreter error and the reason of its event.
pub struct InterpretError {
    reason: &'static str,
    pub error: interpreter::Error,
}

/// Interprets a template: its components where multi-template scheduling is on, else its replicas.
pub async fn interpret_replicas(
    interpreter: &ResourceInterpreter,
    served: &RestMapping,
    template: &Object,
    gates: FeatureGates,
) -> Result<InterpretedReplicas, InterpretError> {
    if gates.enabled(KarmadaFeature::MultiplePodTemplatesScheduling) {
        let result = interpreter.components(&served.gvk, template).await;
        let result = result.map_err(|error| InterpretError {
            reason: "GetComponentsFailed",
            error,
        })?;
        if let Some(components) = result {
            return Ok(InterpretedReplicas::Components(components));
        }
    }
    let quota = gates.enabled(KarmadaFeature::ResourceQuotaEstimate);
    let result = get_replicas(interpreter, served, template, quota).await;
    let result = result.map_err(|error| InterpretError {
        reason: "GetReplicasFailed",
        error,
    })?;
    Ok(result.map_or(
        InterpretedReplicas::NotReplicated,
        InterpretedReplicas::Replicas,
    ))
}

/// The replicas of a template. `quota`: the requirements also name the namespace and the priority
/// class.
async fn get_replicas(
    interpreter: &ResourceInterpreter,
    served: &RestMapping,
    template: &Object,
    quota: bool,
) -> Result<Option<TemplateReplicas>, interpreter::Error> {
    let mut replicas = interpreter.replicas(&served.gvk, template).await?;
    if quota && let Some(requirements) = replicas.as_mut().and_then(|r| r.requirements.as_mut()) {
        requirements["namespace"] = template.namespace().into();
        if let Some(class) = interpreter.priority_class(&served.gvk, template)? {
            requirements["priorityClassName"] = class.into();
        }
    }
    Ok(replicas)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use serde_json::json;

    // proves: NAT-priority-class
    #[test]
    fn the_feature_gate_adds_namespace_and_priority_class() {
        let pod = json!({"priorityClassName": "high", "containers": [{"resources": {"requests": {"cpu": "1"}}}]});
        let template = json!({"metadata": {"name": "web", "namespace": "n"}, "spec": {"template": {"spec": pod}}});
        let template = Object::from_value(&template).unwrap();
        let deployment = RestMapping {
            gvk: machinery::Gvk::from_static("apps", "v1", "Deployment"),
            gvr: machinery::Gvr::from_static("apps", "v1", "deployments"),
            api_version: "apps/v1".into(),
            namespaced: true,
        };
        for (quota, expected) in [
            (false, json!({"resourceRequest": {"cpu": "1"}})),
            (
                true,
                json!({"resourceRequest": {"cpu": "1"}, "namespace": "n", "priorityClassName": "high"}),
            ),
        ] {
            let interpreter = ResourceInterpreter::default();
            let actual = get_replicas(&interpreter, &deployment, &template, quota);
            let actual = actual.now_or_never().unwrap().unwrap();
            assert_eq!(actual.unwrap().requirements, Some(expected), "{quota}");
        }
    }
}

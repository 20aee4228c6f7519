//! Interprets a template for its binding: how many replicas or components it has, and the priority
//! with which it is scheduled.
//!
//! Source: Karmada's `pkg/detector/detector.go` (`applyReplicaInterpretation`,
//! `BuildResourceBinding`).

use client::At;
use interpreter::{Interpreter, Replicas};
use machinery::Object;
use openapi::karmada::binding::Component;
use openapi::karmada::policy::SchedulePriority;
use openapi::karmada::{FeatureGates, Gate};
use flotilla_runtime::ObjectRef;
use serde::Deserialize;

use super::desired::Findings;
use super::matching::Policy;
use super::shell::{Detector, PRIORITY_CLASSES};
use crate::error::Error;
use crate::kinds::Served;

#[derive(Default, Deserialize)]
#[serde(default)]
struct PriorityClass {
    value: i64,
}

impl Detector {
    pub(super) async fn find_out(
        &self,
        served: &Served,
        template: &Object,
        policy: &Policy,
    ) -> Result<Findings, Error> {
        let about = ObjectRef::new(&served.api_version, served.kind(), template);
        let wants = match wants(&self.interpreter, served, template, self.gates()).await {
            Ok(wants) => wants,
            Err(Unknown { reason, error }) => {
                let text = error.to_string();
                self.recorder.warning(&about, reason, text);
                return Err(Error::blocked(error));
            }
        };
        match wants {
            Wants::Nothing => {}
            Wants::Replicas(_) => {
                let text = "Get replicas of resource template successfully.";
                self.recorder.normal(&about, "GetReplicasSucceed", text);
            }
            Wants::Components(_) => {
                let text = "Get components of resource template successfully.";
                self.recorder.normal(&about, "GetComponentsSucceed", text);
            }
        }
        let priority = match &policy.view.spec.schedule_priority {
            // A ClusterResourceBinding has no priority, whatever the policy says.
            Some(schedule_priority) if !template.namespace().is_empty() => {
                self.priority(schedule_priority).await?
            }
            _ => None,
        };
        Ok(Findings {
            wants,
            priority,
            grouped: self.is_on(Gate::WorkloadAffinity),
        })
    }

    async fn priority(&self, schedule_priority: &SchedulePriority) -> Result<Option<i64>, Error> {
        if !self.is_on(Gate::PriorityBasedScheduling) {
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
            None => match self.api.get(At::one(&PRIORITY_CLASSES, "", name)).await {
                Err(error) if error.is_not_found() => {
                    let text = format!("PriorityClass.scheduling.k8s.io {name:?} not found");
                    return Err(Error::Blocked(text));
                }
                other => other?,
            },
        };
        Ok(Some(class.view::<PriorityClass>()?.value))
    }
}

/// The replicas or components that a template requests.
#[derive(Clone, Debug, Default)]
pub enum Wants {
    /// The kind has neither.
    #[default]
    Nothing,
    Replicas(Replicas),
    /// Components with a pod template each, which are scheduled together.
    Components(Vec<Component>),
}

/// An interpreter error and the reason of its event.
pub(crate) struct Unknown {
    reason: &'static str,
    pub(crate) error: interpreter::Error,
}

/// Interprets a template: its components where multi-template scheduling is on, else its replicas.
pub(crate) async fn wants(
    interpreter: &Interpreter,
    served: &Served,
    template: &Object,
    gates: FeatureGates,
) -> Result<Wants, Unknown> {
    if gates.is_on(Gate::MultiplePodTemplatesScheduling) {
        let found = interpreter.components(&served.gvk, template).await;
        let found = found.map_err(|error| Unknown {
            reason: "GetComponentsFailed",
            error,
        })?;
        if let Some(components) = found {
            return Ok(Wants::Components(components));
        }
    }
    let quota = gates.is_on(Gate::ResourceQuotaEstimate);
    let found = replicas(interpreter, served, template, quota).await;
    let found = found.map_err(|error| Unknown {
        reason: "GetReplicasFailed",
        error,
    })?;
    Ok(found.map_or(Wants::Nothing, Wants::Replicas))
}

/// The replicas of a template. `quota`: the requirements also name the namespace and the priority
/// class.
async fn replicas(
    interpreter: &Interpreter,
    served: &Served,
    template: &Object,
    quota: bool,
) -> Result<Option<Replicas>, interpreter::Error> {
    let mut found = interpreter.replicas(&served.gvk, template).await?;
    if quota && let Some(requirements) = found.as_mut().and_then(|r| r.requirements.as_mut()) {
        requirements["namespace"] = template.namespace().into();
        if let Some(class) = interpreter.priority_class(&served.gvk, template)? {
            requirements["priorityClassName"] = class.into();
        }
    }
    Ok(found)
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
        let deployment = Served {
            gvk: machinery::Gvk::constant("apps", "v1", "Deployment"),
            gvr: machinery::Gvr::constant("apps", "v1", "deployments"),
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
            let interpreter = Interpreter::default();
            let found = replicas(&interpreter, &deployment, &template, quota);
            let found = found.now_or_never().unwrap().unwrap();
            assert_eq!(found.unwrap().requirements, Some(expected), "{quota}");
        }
    }
}

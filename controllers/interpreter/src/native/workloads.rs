//! Native rules of Deployment, ReplicaSet, StatefulSet and DaemonSet, whose status consists of
//! counters that are summed over clusters.

use std::collections::BTreeMap;

use jiff::Timestamp;
use karmada_api::well_known_keys::{RETAIN_REPLICAS, TEMPLATE_GENERATION};
use machinery::Object;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::native::conditions::{ConditionTimes, conditions_of, set_conditions};
use crate::native::workload_conditions::{
    DeploymentTemplate, OPTIONAL_CONDITIONS, WorkloadCopy, deployment_conditions, is_progressing,
    reflected_deployment_conditions, reflected_failure, replica_failure,
};
use crate::native::{
    CollectedStatus, Error, NativeRules, TemplateReplicas, collected_counter, collected_fields,
    counter, parse_object,
};
use crate::replica_requirements::{PodTemplateSpec, generate_replica_requirements};

const RETAIN_REPLICAS_VALUE: &str = "true";

/// How the counters of a workload decide its health.
#[derive(Clone, Copy)]
enum WorkloadHealthRule {
    /// Healthy when all replicas are updated and all updated ones are available.
    Updated {
        desired: DesiredReplicasSource,
        updated: &'static str,
        available: &'static str,
    },
    /// Healthy when all replicas are available.
    Available { available: &'static str },
}

/// Where the desired number of replicas is found.
#[derive(Clone, Copy)]
enum DesiredReplicasSource {
    SpecReplicas,
    StatusField(&'static str),
}

/// The conditions of a kind, which its controller in a cluster sets.
#[derive(Clone, Copy, PartialEq)]
enum WorkloadConditions {
    None,
    /// Only that replicas cannot be created.
    ReplicaFailure,
    /// The replicas of a Deployment.
    Rollout,
}

/// The rules of one kind of workload, as its counters define them.
pub(crate) struct NativeWorkloadRules {
    /// Counters that are reflected and summed over clusters.
    summed_counters: &'static [&'static str],
    /// Counters that the kind's Go type encodes even when they are zero (no `omitempty`).
    always_encoded_counters: &'static [&'static str],
    has_replicas: bool,
    /// Only Deployments honor the label `resourcetemplate.karmada.io/retain-replicas`.
    retains_replicas: bool,
    health: WorkloadHealthRule,
    conditions: WorkloadConditions,
}

pub(crate) static DEPLOYMENT: NativeWorkloadRules = NativeWorkloadRules {
    summed_counters: &[
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
    ],
    always_encoded_counters: &[],
    has_replicas: true,
    retains_replicas: true,
    health: WorkloadHealthRule::Updated {
        desired: DesiredReplicasSource::SpecReplicas,
        updated: "updatedReplicas",
        available: "availableReplicas",
    },
    conditions: WorkloadConditions::Rollout,
};

pub(crate) static REPLICA_SET: NativeWorkloadRules = NativeWorkloadRules {
    summed_counters: &[
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
    ],
    always_encoded_counters: &["replicas"],
    has_replicas: true,
    retains_replicas: false,
    health: WorkloadHealthRule::Available {
        available: "availableReplicas",
    },
    conditions: WorkloadConditions::ReplicaFailure,
};

pub(crate) static STATEFUL_SET: NativeWorkloadRules = NativeWorkloadRules {
    summed_counters: &[
        "availableReplicas",
        "currentReplicas",
        "readyReplicas",
        "replicas",
        "updatedReplicas",
    ],
    always_encoded_counters: &["replicas", "availableReplicas"],
    has_replicas: true,
    retains_replicas: false,
    health: WorkloadHealthRule::Updated {
        desired: DesiredReplicasSource::SpecReplicas,
        updated: "updatedReplicas",
        available: "availableReplicas",
    },
    conditions: WorkloadConditions::None,
};

pub(crate) static DAEMON_SET: NativeWorkloadRules = NativeWorkloadRules {
    summed_counters: &[
        "currentNumberScheduled",
        "desiredNumberScheduled",
        "numberAvailable",
        "numberMisscheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberUnavailable",
    ],
    always_encoded_counters: &[
        "currentNumberScheduled",
        "desiredNumberScheduled",
        "numberMisscheduled",
        "numberReady",
    ],
    has_replicas: false,
    retains_replicas: false,
    health: WorkloadHealthRule::Updated {
        desired: DesiredReplicasSource::StatusField("desiredNumberScheduled"),
        updated: "updatedNumberScheduled",
        available: "numberAvailable",
    },
    conditions: WorkloadConditions::None,
};

#[derive(Deserialize)]
struct ReplicatedWorkload {
    #[serde(default)]
    spec: ReplicatedWorkloadSpec,
}

#[derive(Default, Deserialize)]
struct ReplicatedWorkloadSpec {
    replicas: Option<i64>,
    #[serde(default)]
    template: PodTemplateSpec,
}

#[derive(Deserialize)]
struct WorkloadObject {
    #[serde(default)]
    metadata: WorkloadMetadata,
    #[serde(default)]
    spec: WorkloadSpecReplicas,
    status: Option<Map<String, Value>>,
}

#[derive(Default, Deserialize)]
struct WorkloadMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    generation: i64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
struct WorkloadSpecReplicas {
    replicas: Option<i64>,
    paused: Option<bool>,
}

impl NativeRules for NativeWorkloadRules {
    fn replicas(&self, object: &Object) -> Result<Option<TemplateReplicas>, Error> {
        if !self.has_replicas {
            return Ok(None);
        }
        let template: ReplicatedWorkload = parse_object(object, "replicas")?;
        Ok(Some(TemplateReplicas {
            count: template.spec.replicas.unwrap_or(0),
            requirements: generate_replica_requirements(&template.spec.template.spec),
        }))
    }

    fn replica_field(&self) -> Option<&'static str> {
        self.has_replicas.then_some("replicas")
    }

    fn retain(&self, desired: &mut Value, observed: &Value) -> Result<(), Error> {
        if !self.retains_replicas
            || desired["metadata"]["labels"][RETAIN_REPLICAS] != RETAIN_REPLICAS_VALUE
        {
            return Ok(());
        }
        let replicas = observed["spec"]["replicas"]
            .as_i64()
            .ok_or(Error::Missing("spec.replicas"))?;
        if let Some(spec) = desired.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("replicas".into(), replicas.into());
        }
        Ok(())
    }

    fn interpret_health(&self, observed: &Object) -> Result<Option<bool>, Error> {
        let observed: WorkloadObject = parse_object(observed, "health")?;
        let no_status = Map::new();
        let status = observed.status.as_ref().unwrap_or(&no_status);
        Ok(Some(self.is_healthy(&observed, status)))
    }

    fn reflect_status(&self, observed: &Object) -> Result<Option<Value>, Error> {
        let observed: WorkloadObject = parse_object(observed, "status")?;
        let Some(status) = &observed.status else {
            return Ok(None);
        };
        let mut out = Map::new();
        let generation = match observed.metadata.annotations.get(TEMPLATE_GENERATION) {
            Some(text) => text
                .parse::<i64>()
                .map_err(|_| Error::Generation(format!("{TEMPLATE_GENERATION}: {text:?}")))?,
            None => 0,
        };
        for (field, value) in [
            ("generation", observed.metadata.generation),
            ("resourceTemplateGeneration", generation),
        ] {
            self.write_counter(&mut out, field, value);
        }
        for field in ["observedGeneration"].iter().chain(self.summed_counters) {
            self.write_counter(&mut out, field, counter(status, field));
        }
        let conditions = match self.conditions {
            WorkloadConditions::None => Vec::new(),
            WorkloadConditions::ReplicaFailure => reflected_failure(status),
            WorkloadConditions::Rollout => {
                reflected_deployment_conditions(status, self.is_healthy(&observed, status))
            }
        };
        if !conditions.is_empty() {
            out.insert("conditions".into(), conditions.into());
        }
        Ok((!out.is_empty()).then_some(Value::Object(out)))
    }

    fn aggregate_status(
        &self,
        template: &Object,
        items: &[CollectedStatus<'_>],
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        let template: WorkloadObject = parse_object(template, "status")?;
        let generation = template.metadata.generation;
        let mut status = template.status.clone().unwrap_or_default();
        let mut sums = vec![0_i64; self.summed_counters.len()];
        let mut copies = Vec::with_capacity(items.len());
        for item in items {
            let reported = collected_fields(item)?;
            let mut copy = WorkloadCopy::new(item, reported);
            if let Some(reported) = reported {
                let counter_of = |field| collected_counter(item, reported, field);
                copy.up_to_date = counter_of("observedGeneration")? >= counter_of("generation")?
                    && counter_of("resourceTemplateGeneration")? >= generation;
                for (sum, field) in sums.iter_mut().zip(self.summed_counters) {
                    *sum = sum.saturating_add(counter_of(field)?);
                }
            }
            copies.push(copy);
        }
        copies.retain(|copy| !copy.leaving);
        if copies.iter().all(|copy| copy.up_to_date) {
            self.write_counter(&mut status, "observedGeneration", generation);
        }
        for (sum, field) in sums.into_iter().zip(self.summed_counters) {
            self.write_counter(&mut status, field, sum);
        }
        self.write_conditions(&mut status, &template, &copies, now);
        Ok(Some(Value::Object(status)))
    }
}

impl NativeWorkloadRules {
    fn is_healthy(&self, observed: &WorkloadObject, status: &Map<String, Value>) -> bool {
        if counter(status, "observedGeneration") != observed.metadata.generation {
            return false;
        }
        match self.health {
            WorkloadHealthRule::Updated {
                desired,
                updated,
                available,
            } => {
                let desired = match desired {
                    DesiredReplicasSource::SpecReplicas => observed.spec.replicas.unwrap_or(0),
                    DesiredReplicasSource::StatusField(field) => counter(status, field),
                };
                let updated = counter(status, updated);
                updated >= desired && counter(status, available) >= updated
            }
            WorkloadHealthRule::Available { available } => {
                counter(status, available) >= observed.spec.replicas.unwrap_or(0)
            }
        }
    }

    fn write_conditions(
        &self,
        status: &mut Map<String, Value>,
        template: &WorkloadObject,
        copies: &[WorkloadCopy<'_>],
        now: Timestamp,
    ) {
        let old = conditions_of(template.status.as_ref());
        let conditions = match self.conditions {
            WorkloadConditions::None => return,
            WorkloadConditions::ReplicaFailure => replica_failure(copies).into_iter().collect(),
            WorkloadConditions::Rollout => {
                let deployment = DeploymentTemplate {
                    name: &template.metadata.name,
                    paused: template.spec.paused.unwrap_or(false),
                    is_progressing: is_progressing(old),
                };
                deployment_conditions(&deployment, copies)
            }
        };
        let times = ConditionTimes {
            now,
            has_update_time: self.conditions == WorkloadConditions::Rollout,
        };
        set_conditions(status, old, conditions, OPTIONAL_CONDITIONS, times);
    }

    /// Writes a counter as the kind's Go type encodes it: a zero is omitted unless always written.
    fn write_counter(&self, into: &mut Map<String, Value>, field: &str, value: i64) {
        if value == 0 && !self.always_encoded_counters.contains(&field) {
            into.remove(field);
        } else {
            into.insert(field.to_owned(), value.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::fixtures::object;
    use serde_json::json;

    fn deployment_with_status(
        generation: i64,
        observed: i64,
        updated: i64,
        available: i64,
    ) -> Value {
        json!({"metadata": {"name": "d", "generation": generation}, "spec": {"replicas": 2},
               "status": {"observedGeneration": observed, "updatedReplicas": updated, "availableReplicas": available}})
    }

    // proves: NAT-health-workloads
    #[test]
    fn health_follows_the_counters() {
        let table = [
            (deployment_with_status(1, 1, 2, 2), true),
            (deployment_with_status(2, 1, 2, 2), false),
            (deployment_with_status(1, 1, 1, 2), false),
            (deployment_with_status(1, 1, 2, 1), false),
            (
                json!({"metadata": {"name": "d", "generation": 1}, "spec": {"replicas": 2}}),
                false,
            ),
        ];
        for (deployment, healthy) in table {
            assert_eq!(
                DEPLOYMENT
                    .interpret_health(&object(deployment.clone()))
                    .unwrap(),
                Some(healthy),
                "{deployment}"
            );
        }
        let daemons = json!({"metadata": {"name": "d", "generation": 3}, "status": {"observedGeneration": 3,
            "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2}});
        assert_eq!(
            DAEMON_SET.interpret_health(&object(daemons)).unwrap(),
            Some(true)
        );
    }

    // proves: NAT-requirements
    #[test]
    fn replicas_and_their_requirements() {
        let template = object(
            json!({"metadata": {"name": "d"}, "spec": {"replicas": 3, "template": {"spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}}}}),
        );
        let actual = DEPLOYMENT.replicas(&template).unwrap().unwrap();
        assert_eq!(actual.count, 3);
        assert_eq!(
            actual.requirements,
            Some(json!({"resourceRequest": {"cpu": "100m"}}))
        );
        assert_eq!(DAEMON_SET.replicas(&template).unwrap(), None);
    }

    // proves: NAT-retain-replicas
    #[test]
    fn replicas_are_retained_when_the_label_is_set() {
        let observed = json!({"spec": {"replicas": 7}});
        let mut desired =
            json!({"metadata": {"labels": {RETAIN_REPLICAS: "true"}}, "spec": {"replicas": 2}});
        DEPLOYMENT.retain(&mut desired, &observed).unwrap();
        assert_eq!(desired["spec"]["replicas"], 7);
        let mut other = json!({"metadata": {}, "spec": {"replicas": 2}});
        DEPLOYMENT.retain(&mut other, &observed).unwrap();
        assert_eq!(other["spec"]["replicas"], 2);
    }

    // proves: NAT-status-workloads
    #[test]
    fn statuses_are_reflected_and_summed() {
        let copy = |ready: i64| {
            object(
                json!({"metadata": {"name": "d", "generation": 4, "annotations": {TEMPLATE_GENERATION: "2"}},
                "status": {"observedGeneration": 4, "replicas": 2, "readyReplicas": ready, "collisionCount": 1}}),
            )
        };
        let reflected = DEPLOYMENT.reflect_status(&copy(2)).unwrap().unwrap();
        assert_eq!(
            reflected,
            json!({"generation": 4, "resourceTemplateGeneration": 2, "observedGeneration": 4, "replicas": 2, "readyReplicas": 2})
        );
        let second = DEPLOYMENT.reflect_status(&copy(1)).unwrap().unwrap();
        let items = [
            CollectedStatus::new("a", Some(&reflected)),
            CollectedStatus::new("b", Some(&second)),
        ];
        let template = object(
            json!({"metadata": {"name": "d", "generation": 2}, "status": {"unavailableReplicas": 9}}),
        );
        let total = DEPLOYMENT
            .aggregate_status(&template, &items, Timestamp::UNIX_EPOCH)
            .unwrap()
            .unwrap();
        let mut counters = total;
        let conditions = counters.as_object_mut().unwrap().remove("conditions");
        assert_eq!(conditions.unwrap().as_array().unwrap().len(), 2);
        assert_eq!(
            counters,
            json!({"observedGeneration": 2, "replicas": 4, "readyReplicas": 3})
        );

        // One cluster has not applied the latest template: observedGeneration does not move.
        let ahead = object(
            json!({"metadata": {"name": "d", "generation": 3}, "status": {"observedGeneration": 2}}),
        );
        let total = DEPLOYMENT
            .aggregate_status(&ahead, &items, Timestamp::UNIX_EPOCH)
            .unwrap()
            .unwrap();
        assert_eq!(total["observedGeneration"], 2);
    }

    #[test]
    fn invalid_template_generation_is_an_error() {
        let copy = object(
            json!({"metadata": {"name": "d", "annotations": {TEMPLATE_GENERATION: "x"}}, "status": {}}),
        );
        assert!(DEPLOYMENT.reflect_status(&copy).is_err());
    }
}

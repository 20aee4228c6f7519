//! The native rules: the trait that a kind implements, the table of kinds, and shared helpers.
//!
//! Rules read objects as bytes and edit JSON trees. Source: Karmada's
//! `pkg/resourceinterpreter/default/native`.

use jiff::Timestamp;
use machinery::{Gvk, Object};
use openapi::karmada::DependentObjectReference;
use serde_json::{Map, Value};

use crate::bare_pods::PodRules;
use crate::cron_jobs::CronJobRules;
use crate::jobs::JobRules;
use crate::networking::{IngressRules, ServiceRules};
use crate::pdb_and_hpa::{HorizontalPodAutoscalerRules, PodDisruptionBudgetRules};
use crate::service_accounts::{SecretRules, ServiceAccountRules};
use crate::volumes::{PersistentVolumeClaimRules, PersistentVolumeRules};
use crate::workloads::{DAEMON_SET, DEPLOYMENT, REPLICA_SET, STATEFUL_SET};

/// Why an object could not be interpreted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field does not have the type its kind prescribes.
    #[error("failed to interpret {what}: {source}")]
    Malformed {
        what: &'static str,
        source: machinery::object::MalformedObject,
    },
    /// The status of a cluster does not have the shape its kind prescribes.
    #[error("failed to read the status collected from cluster {cluster}: {source}")]
    Status {
        cluster: String,
        source: serde_json::Error,
    },
    /// The annotation with the generation of the template is not a number.
    #[error("annotation {0} is not a generation")]
    Generation(String),
    /// The observed object lacks a field that has to be retained.
    #[error("failed to get {0} from the observed object")]
    Missing(&'static str),
    /// A field that a rule requires is absent or has the wrong type.
    #[error("{path}: {expected} is needed")]
    Field {
        path: String,
        expected: &'static str,
    },
    /// A quantity that cannot be parsed.
    #[error("{0}")]
    Quantity(String),
    /// A dependency without apiVersion, kind, or both name and selector.
    #[error("{0}")]
    Dependency(String),
    /// A script of a customization failed or returned an invalid result.
    #[error("ResourceInterpreterCustomization {customization}: {function}: {why}")]
    Script {
        customization: String,
        function: &'static str,
        why: String,
    },
    /// A script of a customization is not called for now, because its circuit breaker is open.
    #[error("ResourceInterpreterCustomization {customization}: {function}: {why}")]
    ScriptRefused {
        customization: String,
        function: &'static str,
        why: String,
    },
    /// A webhook could not be called or returned an invalid response.
    #[error("Internal error occurred: failed calling webhook {hook:?}: {why}")]
    Webhook { hook: String, why: String },
}

impl Error {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Webhook { .. } | Self::ScriptRefused { .. })
    }
}

/// How many replicas a template asks for, and what each of them requires.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateReplicas {
    pub count: i64,
    /// `ReplicaRequirements` of `work.karmada.io/v1alpha2`; absent when a replica has no
    /// requirements.
    pub requirements: Option<Value>,
}

/// The status that one cluster reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectedStatus<'a> {
    pub(crate) cluster: &'a str,
    /// Absent until a status was collected.
    pub(crate) status: Option<&'a Value>,
}

/// The rules of one kind. A method that a kind does not implement returns `None`: the hook is not
/// enabled.
pub(crate) trait NativeRules: Sync {
    fn replicas(&self, _object: &Object) -> Result<Option<TemplateReplicas>, Error> {
        Ok(None)
    }

    /// The field of the spec that holds the number of replicas.
    fn replica_field(&self) -> Option<&'static str> {
        None
    }

    fn retain(&self, _desired: &mut Value, _observed: &Value) -> Result<(), Error> {
        Ok(())
    }

    fn interpret_health(&self, _observed: &Object) -> Result<Option<bool>, Error> {
        Ok(None)
    }

    fn reflect_status(&self, observed: &Object) -> Result<Option<Value>, Error> {
        reflect_whole_status(observed)
    }

    fn aggregate_status(
        &self,
        _template: &Object,
        _items: &[CollectedStatus<'_>],
        _now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        Ok(None)
    }
}

/// The rules of all other kinds: their whole status is collected.
struct UnknownKindRules;

impl NativeRules for UnknownKindRules {}

/// The rules of a kind. The version is ignored, because the fields that are read are the same in
/// all versions.
pub(crate) fn rules_for(kind: &Gvk) -> &'static dyn NativeRules {
    match (&*kind.group, &*kind.kind) {
        ("apps", "Deployment") => &DEPLOYMENT,
        ("apps", "ReplicaSet") => &REPLICA_SET,
        ("apps", "StatefulSet") => &STATEFUL_SET,
        ("apps", "DaemonSet") => &DAEMON_SET,
        ("batch", "Job") => &JobRules,
        ("batch", "CronJob") => &CronJobRules,
        ("", "Pod") => &PodRules,
        ("", "Service") => &ServiceRules,
        ("networking.k8s.io", "Ingress") => &IngressRules,
        ("", "ServiceAccount") => &ServiceAccountRules,
        ("", "Secret") => &SecretRules,
        ("", "PersistentVolume") => &PersistentVolumeRules,
        ("", "PersistentVolumeClaim") => &PersistentVolumeClaimRules,
        ("policy", "PodDisruptionBudget") => &PodDisruptionBudgetRules,
        ("autoscaling", "HorizontalPodAutoscaler") => &HorizontalPodAutoscalerRules,
        _ => &UnknownKindRules,
    }
}

/// The last level: rules for the kinds of Kubernetes itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NativeInterpreter;

impl NativeInterpreter {
    /// The replicas that a template asks for; `None` when its kind has none.
    pub(crate) fn replicas(
        &self,
        kind: &Gvk,
        template: &Object,
    ) -> Result<Option<TemplateReplicas>, Error> {
        rules_for(kind).replicas(template)
    }

    /// The objects that a template depends on; `None` when its kind has no rule.
    pub(crate) fn dependencies(
        &self,
        kind: &Gvk,
        template: &Object,
    ) -> Result<Option<Vec<DependentObjectReference>>, Error> {
        crate::dependencies::dependencies(kind, template)
    }

    /// The name of the PriorityClass in the pod template.
    pub(crate) fn priority_class(
        &self,
        kind: &Gvk,
        template: &Object,
    ) -> Result<Option<String>, Error> {
        crate::pod_template::priority_class(kind, template)
    }

    /// Writes the replicas of one cluster into the manifest, if the field exists. Fails when the
    /// field is not an integer.
    pub(crate) fn revise_replica(
        &self,
        kind: &Gvk,
        copy: &mut Value,
        replicas: i64,
    ) -> Result<(), Error> {
        let Some(field) = rules_for(kind).replica_field() else {
            return Ok(());
        };
        match copy.get_mut("spec").and_then(|spec| spec.get_mut(field)) {
            Some(slot) if slot.is_i64() || slot.is_null() => *slot = replicas.into(),
            Some(_) => {
                return Err(Error::Field {
                    path: format!("spec.{field}"),
                    expected: "a whole number",
                });
            }
            None => {}
        }
        Ok(())
    }

    /// Copies the fields that the member decides from `observed` into `desired`.
    pub(crate) fn retain(
        &self,
        kind: &Gvk,
        desired: &mut Value,
        observed: &Value,
    ) -> Result<(), Error> {
        rules_for(kind).retain(desired, observed)
    }

    /// Whether a kind has a health rule. It is tried on an empty object: a rule returns a result
    /// or fails, whatever the object.
    pub(crate) fn has_health_rule(&self, kind: &Gvk) -> bool {
        let nothing = Object::from_value(&Value::Object(Map::new()));
        nothing.is_ok_and(|nothing| !matches!(rules_for(kind).interpret_health(&nothing), Ok(None)))
    }

    /// Whether an object in a member cluster is healthy; `None` when its kind has no health rule.
    pub(crate) fn interpret_health(
        &self,
        kind: &Gvk,
        observed: &Object,
    ) -> Result<Option<bool>, Error> {
        rules_for(kind).interpret_health(observed)
    }

    /// The part of a member object's status that is collected; `None` when there is none.
    pub(crate) fn reflect_status(
        &self,
        kind: &Gvk,
        observed: &Object,
    ) -> Result<Option<Value>, Error> {
        rules_for(kind).reflect_status(observed)
    }

    /// Aggregates the statuses of all clusters into the template's status; `None` when the kind
    /// has no rule or the status is final (a finished Job).
    pub(crate) fn aggregate_status(
        &self,
        kind: &Gvk,
        template: &Object,
        items: &[CollectedStatus<'_>],
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        rules_for(kind).aggregate_status(template, items, now)
    }
}

#[derive(serde::Deserialize)]
struct ObjectWithStatus {
    status: Option<Value>,
}

/// The whole status of an object (Karmada's `reflectWholeStatus`).
pub(crate) fn reflect_whole_status(observed: &Object) -> Result<Option<Value>, Error> {
    let found: ObjectWithStatus = parse_object(observed, "status")?;
    Ok(found.status.filter(|s| !s.is_null()))
}

/// Deserializes the fields that a rule needs from the bytes of an object.
pub(crate) fn parse_object<T: serde::de::DeserializeOwned>(
    object: &Object,
    what: &'static str,
) -> Result<T, Error> {
    serde_json::from_slice(object.bytes()).map_err(|e| Error::Malformed {
        what,
        source: e.into(),
    })
}

/// Deserializes the status that one cluster reported.
pub(crate) fn parse_collected_status<T: serde::de::DeserializeOwned>(
    item: &CollectedStatus<'_>,
    status: &Value,
) -> Result<T, Error> {
    T::deserialize(status).map_err(|source| Error::Status {
        cluster: item.cluster.to_owned(),
        source,
    })
}

/// A counter in the status that one cluster reported; zero when absent. Fails when it is not an
/// integer.
pub(crate) fn collected_counter(
    item: &CollectedStatus<'_>,
    status: &Map<String, Value>,
    field: &str,
) -> Result<i64, Error> {
    let found = status.get(field).filter(|value| !value.is_null());
    found.map_or(Ok(0), |value| parse_collected_status(item, value))
}

/// Sets a field to the value that the member has; removes it when the member has none.
pub(crate) fn retain_field(at: &mut Value, field: &str, value: Option<&Value>) {
    match value {
        Some(value) => {
            if !at.is_object() {
                *at = Value::Object(Map::new());
            }
            at[field] = value.clone();
        }
        None => {
            if let Some(fields) = at.as_object_mut() {
                fields.remove(field);
            }
        }
    }
}

/// Like [`retain_field`], for a field of the spec.
pub(crate) fn retain_spec_field(desired: &mut Value, field: &str, value: Option<&Value>) {
    let Some(fields) = desired.as_object_mut() else {
        return;
    };
    if value.is_some() || fields.contains_key("spec") {
        retain_field(fields.entry("spec").or_insert(Value::Null), field, value);
    }
}

/// Retains the spec fields that only the member has. An update could not remove them where the
/// spec is immutable.
pub(crate) fn retain_added_spec_fields(desired: &mut Value, observed: &Value) {
    let Some(spec) = desired.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    for (field, value) in observed["spec"].as_object().into_iter().flatten() {
        spec.entry(field.clone()).or_insert_with(|| value.clone());
    }
}

/// A counter of a status; zero when absent.
pub(crate) fn counter(status: &Map<String, Value>, field: &str) -> i64 {
    status.get(field).and_then(Value::as_i64).unwrap_or(0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    pub(crate) fn object(value: Value) -> Object {
        Object::from_value(&value).unwrap()
    }

    /// Aggregates the statuses of clusters a, b, c; null stands for a status not collected.
    pub(crate) fn aggregate_statuses(
        rules: &dyn NativeRules,
        template: &Value,
        all: &[Value],
    ) -> Option<Value> {
        let items: Vec<CollectedStatus<'_>> = ["a", "b", "c"]
            .into_iter()
            .zip(all)
            .map(|(cluster, status)| CollectedStatus {
                cluster,
                status: (!status.is_null()).then_some(status),
            })
            .collect();
        let now = Timestamp::UNIX_EPOCH;
        rules
            .aggregate_status(&object(template.clone()), &items, now)
            .unwrap()
    }

    #[test]
    fn rules_by_kind() {
        // Kind, and whether it has rules for replicas, revision, health, aggregation.
        let table = [
            ("apps", "Deployment", [true, true, true, true]),
            ("apps", "ReplicaSet", [true, true, true, true]),
            ("apps", "StatefulSet", [true, true, true, true]),
            ("apps", "DaemonSet", [false, false, true, true]),
            ("batch", "Job", [true, true, false, true]),
            ("batch", "CronJob", [false, false, false, true]),
            ("", "Pod", [true, false, true, true]),
            ("", "Service", [false, false, true, false]),
            ("networking.k8s.io", "Ingress", [false, false, true, true]),
            ("", "ServiceAccount", [false; 4]),
            ("", "PersistentVolumeClaim", [false, false, true, true]),
            ("", "PersistentVolume", [false, false, false, true]),
            ("", "Secret", [false; 4]),
            ("policy", "PodDisruptionBudget", [false, false, true, true]),
            (
                "autoscaling",
                "HorizontalPodAutoscaler",
                [false, false, false, true],
            ),
            ("multicluster.x-k8s.io", "ServiceImport", [false; 4]),
            ("", "ConfigMap", [false; 4]),
        ];
        let it = NativeInterpreter;
        let status = json!({});
        let items = [CollectedStatus {
            cluster: "a",
            status: Some(&status),
        }];
        for (group, name, expected) in table {
            let kind = Gvk::new(group, "v1", name);
            let bare = object(json!({"metadata": {"name": "x"}, "spec": {}}));
            let template_status = it.aggregate_status(&kind, &bare, &items, Timestamp::UNIX_EPOCH);
            let found = [
                it.replicas(&kind, &bare).unwrap().is_some(),
                rules_for(&kind).replica_field().is_some(),
                it.interpret_health(&kind, &bare).unwrap().is_some(),
                template_status.unwrap().is_some(),
            ];
            assert_eq!(found, expected, "{name}");
        }
    }

    /// Users may put any JSON into the manifests of a Work.
    #[test]
    fn malformed_objects_do_not_panic() {
        let huge = i64::MAX;
        let observed = json!({"spec": {"nodeName": "n", "volumeName": "v", "claimRef": {}, "containers": [{"name": "c"}]}});
        for (group, name) in [
            ("", "Pod"),
            ("", "PersistentVolume"),
            ("", "PersistentVolumeClaim"),
            ("", "Service"),
            ("", "ServiceAccount"),
            ("batch", "Job"),
            ("apps", "Deployment"),
        ] {
            let kind = Gvk::new(group, "v1", name);
            for desired in [
                json!([]),
                json!("x"),
                json!({"spec": "x"}),
                json!({"spec": []}),
            ] {
                for observed in [&observed, &json!({"spec": {}}), &json!([])] {
                    drop(NativeInterpreter.retain(&kind, &mut desired.clone(), observed));
                }
            }
            let mut none = json!({"kind": name});
            NativeInterpreter
                .retain(&kind, &mut none, &json!({"spec": {}}))
                .unwrap();
            assert_eq!(none, json!({"kind": name}), "nothing is added");
        }
        for (kind, fields) in [
            (
                Gvk::from_static("apps", "v1", "Deployment"),
                ["replicas", "readyReplicas"],
            ),
            (Gvk::from_static("batch", "v1", "Job"), ["active", "failed"]),
            (
                Gvk::from_static("policy", "v1", "PodDisruptionBudget"),
                ["expectedPods", "currentHealthy"],
            ),
        ] {
            let status = json!({fields[0]: huge, fields[1]: huge});
            let items = ["a", "b"].map(|cluster| CollectedStatus {
                cluster,
                status: Some(&status),
            });
            let template = object(json!({"metadata": {"name": "x"}}));
            let sum =
                NativeInterpreter.aggregate_status(&kind, &template, &items, Timestamp::UNIX_EPOCH);
            let sum = sum.unwrap().unwrap();
            assert_eq!([&sum[fields[0]], &sum[fields[1]]], [huge, huge], "{kind}");
        }
    }

    // proves: NAT-any-kind
    #[test]
    fn unknown_kind_reflects_its_whole_status_and_has_no_other_rule() {
        let kind = Gvk::from_static("example.io", "v1", "Thing");
        let it = NativeInterpreter;
        let thing = object(json!({"metadata": {"name": "a"}, "status": {"phase": "Ready"}}));
        assert_eq!(
            it.reflect_status(&kind, &thing).unwrap(),
            Some(json!({"phase": "Ready"}))
        );
        assert_eq!(it.replicas(&kind, &thing).unwrap(), None);
        assert_eq!(it.interpret_health(&kind, &thing).unwrap(), None);
        assert!(rules_for(&kind).replica_field().is_none());
        assert_eq!(
            it.aggregate_status(&kind, &thing, &[], Timestamp::UNIX_EPOCH)
                .unwrap(),
            None
        );
    }
}

//! The native rules: the trait that a kind implements, the table of kinds, and shared helpers.
//!
//! Rules read objects as bytes and edit JSON trees. Source: Karmada's
//! `pkg/resourceinterpreter/default/native`.

use jiff::Timestamp;
use karmada_api::DependentObjectReference;
use machinery::{Gvk, Object};
use serde_json::{Map, Value};

use super::rules::{CollectedStatus, NativeRules, TemplateReplicas};
use crate::error::Error;
use crate::native::bare_pods::NativePodRules;
use crate::native::cron_jobs::NativeCronJobRules;
use crate::native::injected_fields::{
    NativeApiServiceRules, NativeClusterRoleRules, NativeCustomResourceDefinitionRules,
    NativeWebhookConfigurationRules,
};
use crate::native::jobs::NativeJobRules;
use crate::native::networking::{NativeIngressRules, NativeServiceRules};
use crate::native::pdb_and_hpa::{
    NativeHorizontalPodAutoscalerRules, NativePodDisruptionBudgetRules,
};
use crate::native::service_accounts::{NativeSecretRules, NativeServiceAccountRules};
use crate::native::volumes::{NativePersistentVolumeClaimRules, NativePersistentVolumeRules};
use crate::native::workloads::{DAEMON_SET, DEPLOYMENT, REPLICA_SET, STATEFUL_SET};

/// The rules of all other kinds: their whole status is collected.
struct NativeUnknownKindRules;

impl NativeRules for NativeUnknownKindRules {}

/// The rules of a kind. The version is ignored, because the fields that are read are the same in
/// all versions.
pub(crate) fn rules_for(kind: &Gvk) -> &'static dyn NativeRules {
    match (&*kind.group, &*kind.kind) {
        ("apps", "Deployment") => &DEPLOYMENT,
        ("apps", "ReplicaSet") => &REPLICA_SET,
        ("apps", "StatefulSet") => &STATEFUL_SET,
        ("apps", "DaemonSet") => &DAEMON_SET,
        ("batch", "Job") => &NativeJobRules,
        ("batch", "CronJob") => &NativeCronJobRules,
        ("", "Pod") => &NativePodRules,
        ("", "Service") => &NativeServiceRules,
        ("networking.k8s.io", "Ingress") => &NativeIngressRules,
        ("", "ServiceAccount") => &NativeServiceAccountRules,
        ("", "Secret") => &NativeSecretRules,
        ("", "PersistentVolume") => &NativePersistentVolumeRules,
        ("", "PersistentVolumeClaim") => &NativePersistentVolumeClaimRules,
        ("policy", "PodDisruptionBudget") => &NativePodDisruptionBudgetRules,
        ("autoscaling", "HorizontalPodAutoscaler") => &NativeHorizontalPodAutoscalerRules,
        ("rbac.authorization.k8s.io", "ClusterRole") => &NativeClusterRoleRules,
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => &NativeWebhookConfigurationRules,
        ("apiregistration.k8s.io", "APIService") => &NativeApiServiceRules,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            &NativeCustomResourceDefinitionRules
        }
        _ => &NativeUnknownKindRules,
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
        crate::native::dependencies::dependencies(kind, template)
    }

    /// The name of the PriorityClass in the pod template.
    pub(crate) fn priority_class(
        &self,
        kind: &Gvk,
        template: &Object,
    ) -> Result<Option<String>, Error> {
        crate::native::pod_template::priority_class(kind, template)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::fixtures::object;
    use crate::native::rules::CollectedStatus;
    use serde_json::json;

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
        let interpreter = NativeInterpreter;
        let status = json!({});
        let items = [CollectedStatus::new("a", Some(&status))];
        for (group, name, expected) in table {
            let kind = Gvk::new(group, "v1", name);
            let bare = object(json!({"metadata": {"name": "x"}, "spec": {}}));
            let template_status =
                interpreter.aggregate_status(&kind, &bare, &items, Timestamp::UNIX_EPOCH);
            let actual = [
                interpreter.replicas(&kind, &bare).unwrap().is_some(),
                rules_for(&kind).replica_field().is_some(),
                interpreter
                    .interpret_health(&kind, &bare)
                    .unwrap()
                    .is_some(),
                template_status.unwrap().is_some(),
            ];
            assert_eq!(actual, expected, "{name}");
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
            let items = ["a", "b"].map(|cluster| CollectedStatus::new(cluster, Some(&status)));
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
        let interpreter = NativeInterpreter;
        let thing = object(json!({"metadata": {"name": "a"}, "status": {"phase": "Ready"}}));
        assert_eq!(
            interpreter.reflect_status(&kind, &thing).unwrap(),
            Some(json!({"phase": "Ready"}))
        );
        assert_eq!(interpreter.replicas(&kind, &thing).unwrap(), None);
        assert_eq!(interpreter.interpret_health(&kind, &thing).unwrap(), None);
        assert!(rules_for(&kind).replica_field().is_none());
        assert_eq!(
            interpreter
                .aggregate_status(&kind, &thing, &[], Timestamp::UNIX_EPOCH)
                .unwrap(),
            None
        );
    }
}

//! Tests of the third-party rules, kind by kind: health, aggregation over several clusters, objects
//! without a status.

mod argo;
mod flink;
mod flux;
mod kruise;
mod kubeflow;
mod kyverno;
mod properties;
mod ray;
mod spark;
mod volcano;

use serde_json::json;

use super::*;

pub(crate) const NOW: &str = "2026-01-02T03:04:05Z";

/// `group/version Kind`.
fn gvk(kind: &str) -> Gvk {
    let (api, kind) = kind.split_once(' ').unwrap();
    let (group, version) = api.split_once('/').unwrap();
    Gvk::new(group.to_owned(), version.to_owned(), kind.to_owned())
}

/// Checks the health of each object; `None` where the rule fails.
fn check_health(kind: &str, table: &[(Value, Option<bool>)]) {
    for (observed, expected) in table {
        let actual = ThirdPartyInterpreter
            .interpret_health(&gvk(kind), observed)
            .ok()
            .flatten();
        assert_eq!(actual, *expected, "{kind} {observed}");
    }
}

/// Like [`check_health`], for objects that have only a status.
fn check_health_by_status(kind: &str, table: &[(Value, Option<bool>)]) {
    let object =
        |(status, expected): &(Value, Option<bool>)| (json!({ "status": status }), *expected);
    check_health(kind, &table.iter().map(object).collect::<Vec<_>>());
    let missing =
        ThirdPartyInterpreter.interpret_health(&gvk(kind), &json!({"metadata": {}, "spec": {}}));
    assert_ne!(missing.ok().flatten(), Some(true), "{kind} without status");
}

fn reflected(kind: &str, observed: &Value) -> Value {
    ThirdPartyInterpreter
        .reflect_status(&gvk(kind), observed)
        .unwrap()
}

/// The template with the aggregated statuses of clusters a, b, c …; null for one that reports none.
fn aggregated(kind: &str, template: &Value, all: &[Value]) -> Result<Value, Error> {
    let items: Vec<CollectedStatus<'_>> = ["a", "b", "c", "d"]
        .into_iter()
        .zip(all)
        .map(|(cluster, status)| {
            CollectedStatus::new(cluster, (!status.is_null()).then_some(status))
        })
        .collect();
    let now = NOW.parse().unwrap();
    let result = ThirdPartyInterpreter.aggregate_status(&gvk(kind), template, Some(&items), now)?;
    Ok(result.unwrap())
}

/// The aggregated status of a template without a status.
fn status_of(kind: &str, all: &[Value]) -> Value {
    let template = json!({"metadata": {"generation": 1}});
    aggregated(kind, &template, all).unwrap()["status"].clone()
}

fn aggregated_without_items(kind: &str, template: &Value) -> Value {
    let now = NOW.parse().unwrap();
    let result = ThirdPartyInterpreter.aggregate_status(&gvk(kind), template, None, now);
    result.unwrap().unwrap()
}

/// Dependencies as `Kind namespace/name`; `None` when the rule fails.
fn dependencies(kind: &str, template: &Value) -> Option<Vec<String>> {
    let references = ThirdPartyInterpreter
        .dependencies(&gvk(kind), template)
        .ok()?
        .unwrap();
    let short = |d: DependentObjectReference| format!("{} {}/{}", d.kind, d.namespace, d.name);
    Some(references.into_iter().map(short).collect())
}

/// Components as name, replicas, requirements.
fn components(kind: &str, template: &Value) -> Vec<(String, i64, Value)> {
    let interpreted = ThirdPartyInterpreter
        .components(&gvk(kind), template)
        .unwrap()
        .unwrap();
    let short = |c: Component| {
        (
            c.name,
            c.replicas,
            c.replica_requirements.unwrap_or_default(),
        )
    };
    interpreted.into_iter().map(short).collect()
}

fn component_tuple(name: &str, replicas: i64, needs: Value) -> (String, i64, Value) {
    (name.to_owned(), replicas, needs)
}

/// A pod template with this CPU request.
fn pod_template(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn cpu_request(cpu: &str) -> Value {
    json!({"resourceRequest": {"cpu": cpu}})
}

/// A pod template with one dependency of each kind.
fn template_with_dependencies() -> Value {
    json!({"spec": {
        "serviceAccountName": "robot",
        "imagePullSecrets": [{"name": "pull"}],
        "initContainers": [{"envFrom": [{"secretRef": {"name": "init"}}]}],
        "containers": [{"env": [{"name": "e", "valueFrom": {"configMapKeyRef": {"name": "env", "key": "k"}}}]}],
        "volumes": [
            {"name": "v", "secret": {"secretName": "files"}},
            {"name": "d", "persistentVolumeClaim": {"claimName": "disk"}},
            {"name": "e", "emptyDir": {}},
        ],
    }})
}

fn template_dependencies() -> Option<Vec<String>> {
    let all = [
        "ConfigMap n/env",
        "PersistentVolumeClaim n/disk",
        "Secret n/files",
        "Secret n/init",
        "Secret n/pull",
        "ServiceAccount n/robot",
    ];
    Some(all.map(str::to_owned).into())
}

fn namespaced_object(spec: Value) -> Value {
    json!({"metadata": {"name": "x", "namespace": "n"}, "spec": spec})
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message})
}

/// Kind, and the letters of its rules as defined in TABLE.md.
pub(crate) const THIRD_PARTY_RULES: [(&str, &str); 27] = [
    ("apps.kruise.io/v1alpha1 AdvancedCronJob", "AD"),
    ("apps.kruise.io/v1alpha1 BroadcastJob", "HSARVTD"),
    ("apps.kruise.io/v1alpha1 CloneSet", "HSARVD"),
    ("apps.kruise.io/v1alpha1 DaemonSet", "HSAD"),
    ("apps.kruise.io/v1alpha1 SidecarSet", "HSARTD"),
    ("apps.kruise.io/v1alpha1 UnitedDeployment", "HSARVD"),
    ("apps.kruise.io/v1beta1 StatefulSet", "HSARVD"),
    ("argoproj.io/v1alpha1 Workflow", "HRVTD"),
    ("batch.volcano.sh/v1alpha1 Job", "HSAC"),
    ("flink.apache.org/v1beta1 FlinkDeployment", "HSARC"),
    ("helm.toolkit.fluxcd.io/v2beta1 HelmRelease", "HSATD"),
    ("kubeflow.org/v1 Notebook", "HSAR"),
    ("kubeflow.org/v1 PyTorchJob", "HACD"),
    ("kubeflow.org/v1 TFJob", "HACD"),
    ("kubeflow.org/v2beta1 MPIJob", "HSAC"),
    ("kustomize.toolkit.fluxcd.io/v1 Kustomization", "HSATD"),
    ("kyverno.io/v1 ClusterPolicy", "HSA"),
    ("kyverno.io/v1 Policy", "HSA"),
    ("ray.io/v1 RayCluster", "HAC"),
    ("ray.io/v1 RayJob", "HACD"),
    ("ray.io/v1 RayService", "HARVD"),
    ("source.toolkit.fluxcd.io/v1 GitRepository", "HSATD"),
    ("source.toolkit.fluxcd.io/v1beta2 Bucket", "HSATD"),
    ("source.toolkit.fluxcd.io/v1beta2 HelmChart", "HSATD"),
    ("source.toolkit.fluxcd.io/v1beta2 HelmRepository", "HSATD"),
    ("source.toolkit.fluxcd.io/v1beta2 OCIRepository", "HSATD"),
    ("sparkoperator.k8s.io/v1beta2 SparkApplication", "HSAC"),
];

// proves: CRD-versions
#[test]
fn rules_by_kind() {
    for (kind, letters) in THIRD_PARTY_RULES {
        let rules = rules_for(&gvk(kind)).unwrap();
        let has = [
            ('H', rules.interpret_health.is_some()),
            ('S', rules.reflect_status.is_some()),
            ('A', rules.aggregate_status.is_some()),
            ('R', rules.replicas.is_some()),
            ('V', rules.revise_replica.is_some()),
            ('C', rules.components.is_some()),
            ('T', rules.retain.is_some()),
            ('D', rules.dependencies.is_some()),
        ];
        let actual = has.into_iter().filter(|(_, has)| *has);
        assert_eq!(
            actual.map(|(letter, _)| letter).collect::<String>(),
            letters,
            "{kind}"
        );
    }
}

// proves: CRD-versions
#[test]
fn other_versions_have_no_rules() {
    for kind in [
        "helm.toolkit.fluxcd.io/v2 HelmRelease",
        "apps.kruise.io/v1alpha1 StatefulSet",
        "argoproj.io/v1alpha1 Rollout",
        "batch/v1 Job",
    ] {
        let (kind, thing) = (gvk(kind), json!({"status": {"a": 1}}));
        assert!(rules_for(&kind).is_none());
        assert_eq!(
            ThirdPartyInterpreter
                .interpret_health(&kind, &thing)
                .unwrap(),
            None
        );
        assert_eq!(ThirdPartyInterpreter.reflect_status(&kind, &thing), None);
        assert_eq!(ThirdPartyInterpreter.replicas(&kind, &thing).unwrap(), None);
        assert_eq!(
            ThirdPartyInterpreter.components(&kind, &thing).unwrap(),
            None
        );
        assert_eq!(
            ThirdPartyInterpreter.dependencies(&kind, &thing).unwrap(),
            None
        );
        assert_eq!(
            ThirdPartyInterpreter
                .revise_replica(&kind, &thing, 1)
                .unwrap(),
            None
        );
        assert_eq!(
            ThirdPartyInterpreter.retain(&kind, &thing, &thing).unwrap(),
            None
        );
        let now = NOW.parse().unwrap();
        assert_eq!(
            ThirdPartyInterpreter
                .aggregate_status(&kind, &thing, None, now)
                .unwrap(),
            None
        );
    }
}

/// Without a status nothing is collected, and the object is not healthy.
// proves: CRD-no-status
#[test]
fn without_status() {
    let bare = json!({"metadata": {"name": "x", "generation": 1}, "spec": {}});
    for (kind, letters) in THIRD_PARTY_RULES {
        if letters.contains('S') {
            assert_eq!(reflected(kind, &bare), json!({}), "{kind}");
        }
        if letters.contains('H') {
            let actual = ThirdPartyInterpreter
                .interpret_health(&gvk(kind), &bare)
                .ok()
                .flatten();
            assert_ne!(actual, Some(true), "{kind}");
        }
    }
}

/// The member decides whether an object is suspended.
// proves: CRD-suspend
#[test]
fn suspension_of_the_member_is_retained() {
    let suspends = |kind: &&str| kind.contains("fluxcd.io") || kind.ends_with("Workflow");
    for kind in THIRD_PARTY_RULES
        .map(|(kind, _)| kind)
        .iter()
        .filter(|kind| suspends(kind))
    {
        let desired = json!({"spec": {"suspend": true, "a": {}, "b": null}});
        for (observed, kept) in [
            (
                json!({"spec": {"suspend": false}}),
                json!({"spec": {"suspend": false, "a": {}}}),
            ),
            (
                json!({"spec": {"other": 1}}),
                json!({"spec": {"suspend": true, "a": {}}}),
            ),
        ] {
            let actual = ThirdPartyInterpreter
                .retain(&gvk(kind), &desired, &observed)
                .unwrap();
            assert_eq!(actual, Some(kept), "{kind}");
        }
        assert!(
            ThirdPartyInterpreter
                .retain(&gvk(kind), &desired, &json!({}))
                .is_err(),
            "{kind}"
        );
    }
}

/// For these kinds the status of a single cluster is copied unchanged.
// proves: CRD-sole
#[test]
fn status_of_a_single_cluster_is_copied() {
    for kind in [
        "batch.volcano.sh/v1alpha1 Job",
        "kubeflow.org/v1 Notebook",
        "kubeflow.org/v2beta1 MPIJob",
        "ray.io/v1 RayCluster",
        "ray.io/v1 RayJob",
        "ray.io/v1 RayService",
        "sparkoperator.k8s.io/v1beta2 SparkApplication",
    ] {
        let template = json!({"metadata": {"name": "x"}, "spec": {"a": 1}, "status": {"old": 1}});
        let result =
            aggregated(kind, &template, &[json!({"any": {"thing": 0}, "none": []})]).unwrap();
        assert_eq!(result["status"], json!({"any": {"thing": 0}}), "{kind}");
        assert_eq!(
            result.get("spec").is_none(),
            kind.starts_with("ray"),
            "{kind}"
        );
        let result = aggregated(kind, &template, &[Value::Null]).unwrap();
        assert_eq!(result.get("status"), None, "{kind}");
        assert_eq!(
            aggregated_without_items(kind, &template),
            template,
            "{kind}"
        );
    }
}

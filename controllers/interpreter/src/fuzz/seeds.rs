//! Realistic objects, one or two of each kind that has rules.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::thirdparty::tests::THIRD_PARTY_RULES;

/// A complete object, used as template and as object in a member.
#[derive(Clone, Debug)]
pub(super) struct FuzzSeed {
    /// `group/version Kind`; `/version Kind` for the core group.
    pub(super) kind: &'static str,
    pub(super) object: Value,
}

fn pod() -> Value {
    let secret = |name: &str| json!({"name": "v", name: {"secretRef": {"name": name}}});
    json!({
        "serviceAccountName": "robot", "nodeName": "n1", "priorityClassName": "high",
        "overhead": {"cpu": "50m"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}},
        "imagePullSecrets": [{"name": "pull"}],
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}, "volumeMounts": [{"name": "v"}],
            "envFrom": [{"configMapRef": {"name": "env"}}, {"secretRef": {"name": "env"}}]}],
        "containers": [{"name": "c", "image": "i:1", "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "env": [{"name": "a", "value": "b"}, {"name": "s", "valueFrom": {"secretKeyRef": {"name": "k", "key": "k"}}},
                    {"name": "m", "valueFrom": {"configMapKeyRef": {"name": "k", "key": "k"}}}],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": 1}}}],
        "volumes": [
            {"name": "m", "configMap": {"name": "files"}}, {"name": "s", "secret": {"secretName": "tls"}},
            {"name": "p", "persistentVolumeClaim": {"claimName": "disk"}}, {"name": "e", "emptyDir": {}},
            {"name": "o", "projected": {"sources": [{"configMap": {"name": "x"}}, {"secret": {"name": "x"}}]}},
            {"name": "z", "azureFile": {"secretName": "z"}}, {"name": "i", "csi": {"nodePublishSecretRef": {"name": "i"}}},
            secret("cephfs"), secret("rbd"),
        ],
    })
}

fn template() -> Value {
    json!({"metadata": {"creationTimestamp": null, "labels": {"app": "a"}}, "spec": pod()})
}

fn small_template(cpu: &str) -> Value {
    json!({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]}})
}

fn seed(kind: &'static str, spec: Value, status: Value) -> FuzzSeed {
    let (api, name) = kind.split_once(' ').unwrap();
    let object = json!({
        "apiVersion": api.trim_start_matches('/'), "kind": name,
        "metadata": {
            "name": "x", "namespace": "n", "uid": "u", "generation": 3, "resourceVersion": "7",
            "labels": {"app": "a", "resourcetemplate.karmada.io/retain-replicas": "true"},
            "annotations": {"resourcetemplate.karmada.io/generation": "3"},
        },
        "spec": spec, "status": status,
    });
    FuzzSeed { kind, object }
}

fn with_fields(mut seed: FuzzSeed, more: Value) -> FuzzSeed {
    let fields = more.as_object().unwrap().clone();
    seed.object.as_object_mut().unwrap().extend(fields);
    seed
}

fn conditions(kinds: &[&str]) -> Value {
    let each = kinds.iter().map(|kind| {
        json!({"type": kind, "status": "True", "reason": "Succeeded", "message": "m",
               "lastTransitionTime": "2026-01-02T03:04:05Z", "lastUpdateTime": "2026-01-02T03:04:06Z"})
    });
    each.collect()
}

/// Kinds of Kubernetes.
pub(super) fn native() -> Vec<FuzzSeed> {
    let ingress = json!({"loadBalancer": {"ingress": [
        {"ip": "10.0.0.1", "ports": [{"port": 80, "protocol": "TCP", "error": "e"}]}, {"hostname": "h"}]}});
    let workload = json!({"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2,
        "availableReplicas": 2, "unavailableReplicas": 1, "currentReplicas": 2, "generation": 3,
        "resourceTemplateGeneration": 3, "conditions": conditions(&["Available"])});
    let state = json!({"name": "c", "ready": true, "state": {"running": {"startedAt": "t"}}});
    vec![
        seed(
            "apps/v1 Deployment",
            json!({"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": template()}),
            workload.clone(),
        ),
        seed(
            "apps/v1 ReplicaSet",
            json!({"replicas": 2, "template": template()}),
            workload.clone(),
        ),
        seed(
            "apps/v1 StatefulSet",
            json!({"replicas": 2, "template": template(),
            "volumeClaimTemplates": [{"metadata": {"name": "disk"}}]}),
            workload,
        ),
        seed(
            "apps/v1 DaemonSet",
            json!({"template": template()}),
            json!({"observedGeneration": 3, "generation": 3,
            "resourceTemplateGeneration": 3, "currentNumberScheduled": 2, "desiredNumberScheduled": 2, "numberAvailable": 2,
            "numberMisscheduled": 1, "numberReady": 2, "updatedNumberScheduled": 2, "numberUnavailable": 1}),
        ),
        seed(
            "batch/v1 Job",
            json!({"parallelism": 3, "completions": 5, "selector": {"matchLabels": {"uid": "u"}}, "template": template()}),
            json!({"active": 1, "succeeded": 2, "failed": 3, "conditions": conditions(&["SuccessCriteriaMet"]),
                "startTime": "2026-01-02T03:04:05Z", "completionTime": "2026-01-02T04:04:05Z"}),
        ),
        seed(
            "batch/v1 CronJob",
            json!({"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": template()}}}),
            json!({"active": [{"name": "j"}], "lastScheduleTime": "2026-01-02T03:04:05Z", "lastSuccessfulTime": "2026-01-02T03:04:05Z"}),
        ),
        seed(
            "/v1 Pod",
            pod(),
            json!({"phase": "Running", "conditions": conditions(&["Ready"]),
            "containerStatuses": [state], "initContainerStatuses": [state]}),
        ),
        seed(
            "/v1 Service",
            json!({"type": "LoadBalancer", "clusterIP": "10.1.2.3", "healthCheckNodePort": 30000}),
            ingress.clone(),
        ),
        seed(
            "networking.k8s.io/v1 Ingress",
            json!({"tls": [{"secretName": "t", "hosts": ["h"]}]}),
            ingress,
        ),
        with_fields(
            seed("/v1 ServiceAccount", json!({}), json!({})),
            json!({"secrets": [{"name": "x-token-1"}], "imagePullSecrets": [{"name": "p"}]}),
        ),
        with_fields(
            seed("/v1 Secret", json!({}), json!({})),
            json!({"type": "kubernetes.io/service-account-token", "data": {"token": "dA=="}}),
        ),
        seed(
            "/v1 PersistentVolumeClaim",
            json!({"volumeName": "v"}),
            json!({"phase": "Bound"}),
        ),
        seed(
            "/v1 PersistentVolume",
            json!({"claimRef": {"name": "c"}}),
            json!({"phase": "Released"}),
        ),
        seed(
            "policy/v1 PodDisruptionBudget",
            json!({}),
            json!({"disruptionsAllowed": 1, "expectedPods": 2, "desiredHealthy": 1,
            "currentHealthy": 2, "disruptedPods": {"p": "2026-01-02T03:04:05Z"}}),
        ),
        seed(
            "autoscaling/v2 HorizontalPodAutoscaler",
            json!({"maxReplicas": 3}),
            json!({"currentReplicas": 1, "desiredReplicas": 2}),
        ),
        seed(
            "multicluster.x-k8s.io/v1alpha1 ServiceImport",
            json!({"ports": [{"port": 80}]}),
            json!({"clusters": [{"cluster": "a"}]}),
        ),
        seed(
            "example.io/v1 Thing",
            json!({"replicas": 1}),
            json!({"phase": "Ready"}),
        ),
    ]
}

fn kruise() -> Vec<FuzzSeed> {
    let status = json!({"observedGeneration": 3, "generation": 3, "resourceTemplateGeneration": 3, "replicas": 2, "updatedReplicas": 2,
        "readyReplicas": 2, "availableReplicas": 2, "updatedReadyReplicas": 2, "expectedUpdatedReplicas": 2, "currentReplicas": 2,
        "unavailableReplicas": 0, "updateRevision": "r2", "currentRevision": "r1", "labelSelector": "app=a",
        "conditions": conditions(&["SubsetProvisioned"])});
    let spec = json!({"replicas": 2, "template": template()});
    vec![
        seed("apps.kruise.io/v1alpha1 CloneSet", spec.clone(), status.clone()),
        seed("apps.kruise.io/v1beta1 StatefulSet", spec.clone(), status.clone()),
        seed("apps.kruise.io/v1alpha1 UnitedDeployment", spec, status),
        seed("apps.kruise.io/v1alpha1 DaemonSet", json!({"template": template()}), json!({"observedGeneration": 3, "generation": 3,
            "resourceTemplateGeneration": 3, "currentNumberScheduled": 2, "numberMisscheduled": 0, "desiredNumberScheduled": 2,
            "numberReady": 2, "updatedNumberScheduled": 2, "numberAvailable": 2, "numberUnavailable": 0, "daemonSetHash": "h"})),
        seed("apps.kruise.io/v1alpha1 BroadcastJob", json!({"parallelism": 2, "template": template()}), json!({"active": 1, "succeeded": 2,
            "failed": 0, "desired": 3, "phase": "running", "conditions": conditions(&["Complete"])})),
        seed("apps.kruise.io/v1alpha1 AdvancedCronJob",
            json!({"template": {"broadcastJobTemplate": {"spec": {"template": template()}}, "jobTemplate": {"spec": {"template": template()}}}}),
            json!({"active": [{"name": "j"}], "type": "BroadcastJob", "lastScheduleTime": "2026-01-02T03:04:05Z"})),
        seed("apps.kruise.io/v1alpha1 SidecarSet", pod(), json!({"matchedPods": 2, "updatedPods": 2, "readyPods": 1})),
        seed("argoproj.io/v1alpha1 Workflow", with_fields(FuzzSeed { kind: "", object: pod() }, json!({"parallelism": 2, "suspend": true,
            "executor": {"serviceAccountName": "e"}, "volumeClaimTemplates": [{"metadata": {"name": "w"}}]})).object, json!({"phase": "Running"})),
    ]
}

fn flux() -> Vec<FuzzSeed> {
    let spec = json!({"suspend": true, "secretRef": {"name": "s"}, "verify": {"secretRef": {"name": "v"}}, "certSecretRef": {"name": "c"},
        "serviceAccountName": "r", "decryption": {"secretRef": {"name": "d"}}, "kubeConfig": {"secretRef": {"name": "k"}},
        "valuesFrom": [{"kind": "Secret", "name": "a"}, {"kind": "ConfigMap", "name": "b"}],
        "chart": {"spec": {"verify": {"secretRef": {"name": "cv"}}}}});
    let status = json!({"observedGeneration": 3, "generation": 3, "resourceTemplateGeneration": 3, "conditions": conditions(&["Ready"]),
        "lastAttemptedRevision": "1", "lastAppliedRevision": "1", "lastAttemptedValuesChecksum": "c", "helmChart": "h",
        "lastReleaseRevision": 4, "failures": 1, "upgradeFailures": 2, "installFailures": 3, "artifact": {"path": "p"}, "url": "u",
        "observedChartName": "o", "observedSourceArtifactRevision": "r", "observedIgnore": "i"});
    [
        "helm.toolkit.fluxcd.io/v2beta1 HelmRelease",
        "kustomize.toolkit.fluxcd.io/v1 Kustomization",
        "source.toolkit.fluxcd.io/v1 GitRepository",
        "source.toolkit.fluxcd.io/v1beta2 Bucket",
        "source.toolkit.fluxcd.io/v1beta2 HelmChart",
        "source.toolkit.fluxcd.io/v1beta2 HelmRepository",
        "source.toolkit.fluxcd.io/v1beta2 OCIRepository",
    ]
    .map(|kind| seed(kind, spec.clone(), status.clone()))
    .into()
}

fn training_jobs() -> Vec<FuzzSeed> {
    let role = |replicas: i64| json!({"replicas": replicas, "template": small_template("1")});
    let status = json!({"conditions": conditions(&["Created", "Running", "Succeeded"]), "startTime": "2026-01-02T03:04:05Z",
        "completionTime": "2026-01-02T04:04:05Z", "lastReconcileTime": "2026-01-02T04:04:05Z", "replicaStatuses":
        {"Master": {"active": 1, "selector": "s"}, "Worker": {"succeeded": 2, "failed": 1}, "PS": {"active": 1}}});
    vec![
        seed(
            "kubeflow.org/v1 PyTorchJob",
            json!({"pytorchReplicaSpecs": {"Master": role(1), "Worker": role(2)}}),
            status.clone(),
        ),
        seed(
            "kubeflow.org/v1 TFJob",
            json!({"tfReplicaSpecs": {"PS": role(1), "Worker": role(2), "Chief": role(1)}}),
            status.clone(),
        ),
        seed(
            "kubeflow.org/v2beta1 MPIJob",
            json!({"mpiReplicaSpecs": {"Launcher": role(1), "Worker": role(2)}}),
            status,
        ),
        seed(
            "kubeflow.org/v1 Notebook",
            json!({"template": small_template("1")}),
            json!({"readyReplicas": 1,
            "containerState": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}, "conditions": conditions(&["Ready"])}),
        ),
        seed(
            "kubeflow.org/v1 Notebook",
            json!({"template": small_template("1")}),
            json!({"containerState": {"waiting": {"reason": "ContainerCreating"},
            "terminated": {"reason": "Error", "exitCode": 1}}}),
        ),
        seed(
            "batch.volcano.sh/v1alpha1 Job",
            json!({"tasks": [{"name": "t", "minAvailable": 2, "template": small_template("1")}, {"template": small_template("2")}]}),
            json!({"state": {"phase": "Completed", "lastTransitionTime": "2026-01-02T03:04:05Z"}, "minAvailable": 1, "pending": 1, "running": 2,
                "succeeded": 3, "failed": 1, "terminating": 1, "unknown": 1, "version": 4, "retryCount": 1, "runningDuration": "1h3m4.5s",
                "taskStatusCount": {"t": {"phase": {"Running": 2}}}, "controlledResources": {"plugin-env": "env"},
                "conditions": [{"status": "Completed", "lastTransitionTime": "2026-01-02T03:04:05Z"}, {"status": "Running"}]}),
        ),
        seed("kyverno.io/v1 ClusterPolicy", json!({}), kyverno()),
        seed("kyverno.io/v1 Policy", json!({}), kyverno()),
    ]
}

fn kyverno() -> Value {
    json!({"ready": true, "conditions": conditions(&["Ready"]), "autogen": {"rules": []},
           "rulecount": {"validate": 1, "generate": 2, "mutate": 3, "verifyimages": 4}})
}

fn compute_clusters() -> Vec<FuzzSeed> {
    let ray = json!({"headGroupSpec": {"template": small_template("2")}, "workerGroupSpecs": [
        {"groupName": "g", "replicas": 2, "template": small_template("1")}, {"replicas": 3, "template": small_template("3")}]});
    let flink = |state: &str| {
        json!({"clusterInfo": {"a": "b"}, "error": "ErrImagePull", "jobManagerDeploymentStatus": "READY", "lifecycleState": "STABLE",
            "jobStatus": {"state": state}, "observedGeneration": 3, "reconciliationStatus": {}, "taskManager": {"replicas": 2}})
    };
    let manager = |memory: &str| json!({"replicas": 1, "resource": {"cpu": 1, "memory": memory}});
    let spec = json!({"job": {"parallelism": 5}, "flinkConfiguration": {"taskmanager.numberOfTaskSlots": "2"}, "jobManager": manager("2048m"),
        "taskManager": {"resource": {"cpu": "1.5", "memory": "1Gi"}}, "podTemplate": {"spec": pod()}});
    let side = |more: Value| {
        with_fields(
            FuzzSeed {
                kind: "",
                object: pod(),
            },
            more,
        )
        .object
    };
    vec![
        seed(
            "ray.io/v1 RayCluster",
            ray.clone(),
            json!({"conditions": conditions(&["HeadPodReady", "RayClusterProvisioned"]), "state": "ready",
            "readyWorkerReplicas": 1, "availableWorkerReplicas": 1, "maxWorkerReplicas": 1, "minWorkerReplicas": 1, "desiredWorkerReplicas": 1,
            "desiredCPU": "1500m", "desiredMemory": "2Gi", "desiredGPU": "1", "desiredTPU": "0", "lastUpdateTime": "2026-01-02T03:04:05Z",
            "endpoints": {"client": "1"}, "head": {"podIP": "1"}, "stateTransitionTimes": {"ready": "t"}}),
        ),
        seed(
            "ray.io/v1 RayJob",
            json!({"rayClusterSpec": ray, "submitterPodTemplate": template()}),
            json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "reason": "r", "message": "m"}),
        ),
        seed(
            "ray.io/v1 RayService",
            json!({"rayClusterConfig": ray}),
            json!({"conditions": conditions(&["Ready"]), "numServeEndpoints": 1,
            "lastUpdateTime": "2026-01-02T03:04:05Z", "observedGeneration": 3, "serviceStatus": "Running", "pendingServiceStatus": {},
            "activeServiceStatus": {"applicationStatuses": {"a": {"status": "RUNNING"}, "b": {"status": "UNHEALTHY"}}}}),
        ),
        seed(
            "flink.apache.org/v1beta1 FlinkDeployment",
            spec.clone(),
            flink("RUNNING"),
        ),
        seed(
            "flink.apache.org/v1beta1 FlinkDeployment",
            spec,
            flink("CREATED"),
        ),
        seed(
            "sparkoperator.k8s.io/v1beta2 SparkApplication",
            json!({"type": "Scala", "memoryOverheadFactor": "0.2",
            "driver": side(json!({"cores": 1, "memory": "512m", "memoryOverhead": "1g"})),
            "executor": side(json!({"cores": 2, "instances": 3, "memory": "1.5g", "gpu": {"name": "nvidia.com/gpu", "quantity": 1}})),
            "dynamicAllocation": {"enabled": true, "initialExecutors": 2, "minExecutors": 4}}),
            json!({"applicationState": {"state": "RUNNING"}, "driverInfo": {"podName": "p"}, "executorState": {"e": "RUNNING"},
                "sparkApplicationId": "i", "lastSubmissionAttemptTime": "2026-01-02T03:04:05Z", "submissionAttempts": 1,
                "executionAttempts": 2, "submissionID": "s", "terminationTime": null}),
        ),
    ]
}

/// Kinds of other projects.
pub(super) fn third_party() -> Vec<FuzzSeed> {
    [kruise(), flux(), training_jobs(), compute_clusters()].concat()
}

#[test]
fn each_well_known_kind_has_a_seed() {
    let seeds: BTreeSet<&str> = third_party().iter().map(|seed| seed.kind).collect();
    let kinds: BTreeSet<&str> = THIRD_PARTY_RULES.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(seeds, kinds);
}

//! Tests of the rows that `kubectl get -o wide` shows.

use machinery::{Gvk, time};
use openapi::catalog;
use serde_json::{Value, json};

use super::{cells, columns};

const NOW: &str = "2026-01-02T04:00:00Z";

/// Prints an object created at 03:59:00; the columns of `-o wide` follow a bar.
fn check(api_version: &str, kind: &str, mut object: Value, expected: &str) {
    let gvk = Gvk::from_api_version(api_version, kind);
    let kind = catalog().kind(&gvk).unwrap();
    if object["metadata"]["name"].is_null() {
        object["metadata"]["name"] = "x".into();
    }
    object["metadata"]["creationTimestamp"] = "2026-01-02T03:59:00Z".into();
    let headers = columns(kind).unwrap();
    let cells = cells(kind, &object, time::parse(NOW).unwrap()).unwrap();
    assert_eq!(headers.len(), cells.len(), "{gvk}");
    let (mut narrow, mut wide) = (Vec::new(), Vec::new());
    for (header, cell) in headers.iter().zip(&cells) {
        let text = match cell {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        if header.priority == 0 {
            narrow.push(text);
        } else {
            wide.push(text);
        }
    }
    let actual = format!("{} | {}", narrow.join("  "), wide.join("  "));
    assert_eq!(actual.trim_end_matches([' ', '|']), expected, "{gvk}");
}

#[test]
fn every_handler_belongs_to_a_kind_and_prints_an_empty_object() {
    let tables: Vec<_> = catalog()
        .kinds()
        .iter()
        .filter_map(|kind| columns(kind).map(|headers| (kind, headers)))
        .collect();
    assert_eq!(tables.len(), 52);
    for (kind, headers) in tables {
        let cells = cells(kind, &json!({}), time::parse(NOW).unwrap()).unwrap();
        assert_eq!(headers.len(), cells.len(), "{}", kind.gvk);
        let undescribed = headers.iter().find(|h| h.description.is_empty());
        assert_eq!(undescribed, None, "{}", kind.gvk);
        assert_eq!(
            headers.iter().filter(|h| h.format == "name").count(),
            usize::from(kind.gvk.kind != "Event"),
            "{}",
            kind.gvk
        );
        assert!(
            !cells.iter().any(|cell| cell.is_array() || cell.is_object()),
            "{}",
            kind.gvk
        );
    }
}

fn pod(status: Value) -> Value {
    json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n1", "containers": [{"name": "a"}, {"name": "b"}],
            "initContainers": [{"name": "i"}, {"name": "side", "restartPolicy": "Always"}]},
        "status": status,
    })
}

#[test]
fn pods_have_a_status_summary() {
    let running = json!({"name": "a", "ready": true, "restartCount": 0, "state": {"running": {}}});
    let done = json!({"name": "i", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}});
    let side = json!({"name": "side", "restartCount": 1, "started": true, "ready": true,
        "state": {"running": {}}});
    let crashed = json!({"name": "b", "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"finishedAt": "2026-01-02T03:59:30Z", "exitCode": 1}}});
    let check = |status: Value, expected: &str| check("v1", "Pod", pod(status), expected);
    check(
        json!({"phase": "Pending"}),
        "p  0/3  Pending  0  60s | <none>  n1  <none>  <none>",
    );
    check(
        json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}],
            "initContainerStatuses": [done, side],
            "containerStatuses": [running, crashed]}),
        "p  2/3  CrashLoopBackOff  4 (30s ago)  60s | 10.0.0.1  n1  <none>  <none>",
    );
    check(
        json!({"phase": "Pending", "initContainerStatuses":
            [{"name": "i", "restartCount": 0, "state": {"running": {}}}]}),
        "p  0/3  Init:0/2  0  60s | <none>  n1  <none>  <none>",
    );
    check(
        json!({"phase": "Pending", "initContainerStatuses":
            [{"name": "i", "restartCount": 0, "state": {"terminated": {"exitCode": 2}}}]}),
        "p  0/3  Init:ExitCode:2  0  60s | <none>  n1  <none>  <none>",
    );
    check(
        json!({"phase": "Pending", "conditions":
            [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}),
        "p  0/3  SchedulingGated  0  60s | <none>  n1  <none>  <none>",
    );
    check(
        json!({"phase": "Failed", "reason": "Evicted"}),
        "p  0/3  Evicted  0  60s | <none>  n1  <none>  <none>",
    );
    let ended = json!({"name": "b", "restartCount": 0,
        "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    check(
        json!({"phase": "Running", "containerStatuses": [ended, running],
            "conditions": [{"type": "Ready", "status": "False"}]}),
        "p  1/3  NotReady  0  60s | <none>  n1  <none>  <none>",
    );
}

#[test]
fn deleted_pods_are_terminating() {
    let deleted = |phase: &str, reason: &str| {
        json!({
            "metadata": {"deletionTimestamp": "2026-01-02T03:59:50Z"},
            "spec": {"containers": [{}], "readinessGates": [{"conditionType": "g"}]},
            "status": {"phase": phase, "reason": reason,
                "conditions": [{"type": "g", "status": "True"}]},
        })
    };
    let check = |object, expected| check("v1", "Pod", object, expected);
    check(
        deleted("Running", ""),
        "x  0/1  Terminating  0  60s | <none>  <none>  <none>  1/1",
    );
    check(
        deleted("Running", "NodeLost"),
        "x  0/1  Unknown  0  60s | <none>  <none>  <none>  1/1",
    );
    check(
        deleted("Succeeded", ""),
        "x  0/1  Succeeded  0  60s | <none>  <none>  <none>  1/1",
    );
}

#[test]
fn workloads() {
    let template = json!({"spec": {"nodeSelector": {"disk": "ssd"}, "containers":
        [{"name": "a", "image": "ia"}, {"name": "b", "image": "ib"}]}});
    let selector = json!({"matchLabels": {"app": "web"}});
    let spec = json!({"replicas": 3, "selector": selector, "template": template});
    check(
        "apps/v1",
        "Deployment",
        json!({"spec": spec, "status":
            {"replicas": 3, "readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1}}),
        "x  2/3  3  1  60s | a,b  ia,ib  app=web",
    );
    check(
        "apps/v1",
        "ReplicaSet",
        json!({"spec": spec, "status": {"replicas": 3, "readyReplicas": 2}}),
        "x  3  3  2  60s | a,b  ia,ib  app=web",
    );
    check(
        "apps/v1",
        "StatefulSet",
        json!({"spec": spec}),
        "x  0/3  60s | a,b  ia,ib",
    );
    check(
        "apps/v1",
        "DaemonSet",
        json!({"spec": spec, "status": {"desiredNumberScheduled": 5, "currentNumberScheduled": 4,
            "numberReady": 3, "updatedNumberScheduled": 2, "numberAvailable": 1}}),
        "x  5  4  3  2  1  disk=ssd  60s | a,b  ia,ib  app=web",
    );
    check(
        "batch/v1",
        "Job",
        json!({"spec": {"completions": 4, "template": template}, "status": {"succeeded": 4,
            "startTime": "2026-01-02T03:59:01Z", "completionTime": "2026-01-02T03:59:31Z",
            "conditions": [{"type": "Complete", "status": "True"}]}}),
        "x  Complete  4/4  30s  60s | a,b  ia,ib  <none>",
    );
    check(
        "batch/v1",
        "Job",
        json!({"spec": {"parallelism": 2, "template": template}}),
        "x  Running  0/1 of 2    60s | a,b  ia,ib  <none>",
    );
    check(
        "batch/v1",
        "CronJob",
        json!({"spec": {"schedule": "@daily", "suspend": false,
            "jobTemplate": {"spec": {"template": template}}}, "status": {"active": [{}]}}),
        "x  @daily  <none>  False  1  <none>  60s | a,b  ia,ib  <none>",
    );
    check(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        json!({
            "spec": {"minReplicas": 1, "maxReplicas": 9,
                "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                "metrics": [
                    {"type": "Resource", "resource": {"name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": 80}}},
                    {"type": "Pods", "pods": {"metric": {"name": "qps"},
                        "target": {"type": "AverageValue", "averageValue": "10"}}},
                    {"type": "External", "external": {}},
                ]},
            "status": {"currentReplicas": 2, "currentMetrics": [{"type": "Resource",
                "resource": {"name": "cpu", "current": {"averageUtilization": 50}}}]},
        }),
        "x  Deployment/web  cpu: 50%/80%, <unknown>/10 + 1 more...  1  9  2  60s",
    );
    check(
        "policy/v1",
        "PodDisruptionBudget",
        json!({"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}}),
        "x  50%  N/A  1  60s",
    );
}

#[test]
fn network() {
    let service = |spec: Value, expected| {
        let lb = json!({"ingress": [{"ip": "192.0.2.9"}, {"hostname": "lb.example"}]});
        let status = if spec["type"] == "LoadBalancer" && spec["wait"].is_null() {
            json!({"loadBalancer": lb})
        } else {
            json!({})
        };
        check(
            "v1",
            "Service",
            json!({"spec": spec, "status": status}),
            expected,
        );
    };
    let ports = json!([{"port": 80, "nodePort": 30080, "protocol": "TCP"},
        {"port": 53, "protocol": "UDP"}]);
    service(
        json!({"type": "ClusterIP", "clusterIPs": ["10.0.0.1"], "ports": ports,
            "selector": {"b": "2", "a": "1"}}),
        "x  ClusterIP  10.0.0.1  <none>  80:30080/TCP,53/UDP  60s | a=1,b=2",
    );
    service(
        json!({"type": "LoadBalancer", "externalIPs": ["192.0.2.1"]}),
        "x  LoadBalancer  <none>  192.0.2.9,lb.example,192.0.2.1  <none>  60s | <none>",
    );
    service(
        json!({"type": "LoadBalancer", "wait": true}),
        "x  LoadBalancer  <none>  <pending>  <none>  60s | <none>",
    );
    service(
        json!({"type": "ExternalName", "externalName": "db.example"}),
        "x  ExternalName  <none>  db.example  <none>  60s | <none>",
    );
    check(
        "networking.k8s.io/v1",
        "Ingress",
        json!({"spec": {"ingressClassName": "nginx", "tls": [{}], "rules":
            [{"host": "a"}, {"host": "b"}, {"host": "c"}, {"host": "d"}]}}),
        "x  nginx  a,b,c + 1 more...    80, 443  60s",
    );
    check(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        json!({"spec": {"podSelector": {}}}),
        "x  <none>  60s",
    );
    check(
        "v1",
        "Endpoints",
        json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
            "ports": [{"port": 80}]}]}),
        "x  10.0.0.1:80,[fd00::1]:80  60s",
    );
}

#[test]
fn the_cluster() {
    check(
        "v1",
        "Node",
        json!({
            "metadata": {"labels": {"node-role.kubernetes.io/worker": "",
                "node-role.kubernetes.io/control-plane": ""}},
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"kubeletVersion": "v1.36.0"},
                "addresses": [{"type": "InternalIP", "address": "10.1.0.1"}],
            },
        }),
        "x  Ready,SchedulingDisabled  control-plane,worker  60s  v1.36.0 | 10.1.0.1  <none>  \
         <unknown>  <unknown>  <unknown>",
    );
    check(
        "v1",
        "Namespace",
        json!({"status": {"phase": "Active"}}),
        "x  Active  60s",
    );
    check(
        "v1",
        "ConfigMap",
        json!({"data": {"a": ""}, "binaryData": {"b": ""}}),
        "x  2  60s",
    );
    check(
        "v1",
        "Secret",
        json!({"type": "Opaque", "data": {"a": ""}}),
        "x  Opaque  1  60s",
    );
    check("v1", "ServiceAccount", json!({}), "x  0  60s");
    check("v1", "LimitRange", json!({}), "x  2026-01-02T03:59:00Z");
    check(
        "v1",
        "ResourceQuota",
        json!({"status": {"hard": {"limits.cpu": "4", "pods": "3"}, "used": {"pods": "1"}}}),
        "x  pods: 1/3  limits.cpu: 0/4  60s",
    );
    check(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        json!({"roleRef": {"kind": "ClusterRole", "name": "admin"}, "subjects": [
            {"kind": "User", "name": "u"}, {"kind": "User", "name": "v"},
            {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]}),
        "x  ClusterRole/admin  60s | u, v    n/s",
    );
    check(
        "v1",
        "PersistentVolumeClaim",
        json!({"spec": {"volumeName": "pv", "storageClassName": "fast", "volumeMode": "Filesystem"},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteMany", "ReadWriteOnce"]}}),
        "x  Bound  pv  1Gi  RWO,RWX  fast  <unset>  60s | Filesystem",
    );
    check(
        "scheduling.k8s.io/v1",
        "PriorityClass",
        json!({"value": 7, "preemptionPolicy": "Never"}),
        "x  7  false  60s  Never",
    );
}

#[test]
fn events_of_both_groups_print_alike() {
    check(
        "v1",
        "Event",
        json!({
            "type": "Normal", "reason": "Pulled", "message": "got it\n", "count": 4,
            "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{a}"},
            "source": {"component": "kubelet", "host": "n1"},
            "firstTimestamp": "2026-01-02T03:58:10Z", "lastTimestamp": "2026-01-02T03:59:50Z",
        }),
        "10s  Normal  Pulled  pod/p  got it | spec.containers{a}  kubelet, n1  110s  4  x",
    );
    check(
        "events.k8s.io/v1",
        "Event",
        json!({
            "type": "Warning", "reason": "Failed", "note": "no", "eventTime":
            "2026-01-02T03:59:55.000000Z", "regarding": {"kind": "Pod", "name": "p"},
            "reportingController": "c", "reportingInstance": "i",
        }),
        "5s  Warning  Failed  pod/p  no |   c, i  5s  1  x",
    );
}

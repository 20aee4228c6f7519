//! The FlowSchemas and PriorityLevelConfigurations that every API server has from its
//! start (Kubernetes `apiserver/pkg/apis/flowcontrol/bootstrap/default.go`).

use serde_json::{Value, json};

const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";
const EVERYONE: [&str; 2] = ["system:unauthenticated", "system:authenticated"];

/// The objects whose specs are fixed: without them a request could match no schema.
pub(super) fn mandatory_objects() -> Vec<Value> {
    vec![
        priority_level(
            "exempt",
            json!({"type": "Exempt",
                   "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}),
        ),
        priority_level(
            "catch-all",
            json!({"type": "Limited", "limited": {
                "nominalConcurrencyShares": 5, "lendablePercent": 0,
                "limitResponse": {"type": "Reject"}}}),
        ),
        flow_schema(
            "exempt",
            "exempt",
            1,
            "",
            every_request(groups(&["system:masters"])),
        ),
        flow_schema(
            "catch-all",
            "catch-all",
            10_000,
            "ByUser",
            every_request(groups(&EVERYONE)),
        ),
    ]
}

/// All objects, the mandatory ones first.
pub fn bootstrap_objects() -> Vec<Value> {
    let mut all = mandatory_objects();
    all.extend([
        queuing_level("system", 30, 33, (64, 6)),
        queuing_level("node-high", 40, 25, (64, 6)),
        queuing_level("leader-election", 10, 0, (16, 4)),
        queuing_level("workload-high", 40, 50, (128, 6)),
        queuing_level("workload-low", 100, 90, (128, 6)),
        queuing_level("global-default", 20, 50, (128, 6)),
    ]);
    all.extend(suggested_flow_schemas());
    all
}

fn suggested_flow_schemas() -> Vec<Value> {
    let kube_system_accounts = json!({"kind": "ServiceAccount",
        "serviceAccount": {"name": "*", "namespace": "kube-system"}});
    let mut elected_components =
        users(&["system:kube-controller-manager", "system:kube-scheduler"]);
    elected_components.push(kube_system_accounts.clone());
    let nodes = || groups(&["system:nodes"]);
    let probes = json!({"subjects": groups(&EVERYONE), "nonResourceRules": [
        {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]});
    let leases = json!({"verbs": ["get", "create", "update"],
        "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]});
    let node_status = json!([
        {"verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"],
         "clusterScope": true, "namespaces": ["*"]},
        {"verbs": ["*"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
         "namespaces": ["*"]},
    ]);
    let by_group = |name: &str, level: &str, precedence, members: &[&str]| {
        flow_schema(
            name,
            level,
            precedence,
            "ByUser",
            every_request(groups(members)),
        )
    };
    let by_namespace = |name: &str, precedence, subjects| {
        let rule = every_request(subjects);
        flow_schema(name, "workload-high", precedence, "ByNamespace", rule)
    };
    vec![
        by_group("system-nodes", "system", 500, &["system:nodes"]),
        flow_schema(
            "system-node-high",
            "node-high",
            400,
            "ByUser",
            json!({"subjects": nodes(), "resourceRules": node_status}),
        ),
        flow_schema("probes", "exempt", 2, "", probes),
        flow_schema(
            "system-leader-election",
            "leader-election",
            100,
            "ByUser",
            json!({"subjects": elected_components, "resourceRules": [leases]}),
        ),
        by_namespace(
            "kube-controller-manager",
            800,
            users(&["system:kube-controller-manager"]),
        ),
        by_namespace("kube-scheduler", 800, users(&["system:kube-scheduler"])),
        by_namespace(
            "kube-system-service-accounts",
            900,
            vec![kube_system_accounts],
        ),
        by_group(
            "service-accounts",
            "workload-low",
            9000,
            &["system:serviceaccounts"],
        ),
        by_group("global-default", "global-default", 9900, &EVERYONE),
    ]
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": kind, "spec": spec, "metadata": {
        "name": name, "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}}})
}

fn priority_level(name: &str, spec: Value) -> Value {
    object("PriorityLevelConfiguration", name, spec)
}

/// A level that queues; `queues` is the number of queues and the size of a hand of them.
fn queuing_level(
    name: &str,
    shares: i32,
    lendable_percent: i32,
    (queues, hand): (i32, i32),
) -> Value {
    let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": 50});
    let limited = json!({
        "nominalConcurrencyShares": shares,
        "lendablePercent": lendable_percent,
        "limitResponse": {"type": "Queue", "queuing": queuing},
    });
    priority_level(name, json!({"type": "Limited", "limited": limited}))
}

/// A schema with one rule; an empty `distinguisher` puts all its requests into one flow.
fn flow_schema(
    name: &str,
    level: &str,
    precedence: i32,
    distinguisher: &str,
    rule: Value,
) -> Value {
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "rules": [rule],
    });
    if !distinguisher.is_empty() {
        spec["distinguisherMethod"] = json!({"type": distinguisher});
    }
    object("FlowSchema", name, spec)
}

fn every_request(subjects: Vec<Value>) -> Value {
    json!({
        "subjects": subjects,
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                           "clusterScope": true, "namespaces": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    })
}

fn groups(names: &[&str]) -> Vec<Value> {
    let subject = |name| json!({"kind": "Group", "group": {"name": name}});
    names.iter().map(subject).collect()
}

fn users(names: &[&str]) -> Vec<Value> {
    let subject = |name| json!({"kind": "User", "user": {"name": name}});
    names.iter().map(subject).collect()
}

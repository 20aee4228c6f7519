//! Tests of estimates by nodes.

use std::sync::Arc;

use karmada_api::binding::Component;
use members::{MemberCluster, MemberTrackingOptions};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::tests::fixture::{EstimatorMembersFixture, NODES, PODS, node, pod};

const PER_NODE_DETAIL: MemberTrackingOptions = MemberTrackingOptions {
    individual_nodes: true,
    quotas: false,
};

async fn member(nodes: &[&str], pods: Vec<Value>) -> (EstimatorMembersFixture, Arc<MemberCluster>) {
    let test_fixture = EstimatorMembersFixture::new(PER_NODE_DETAIL);
    for text in nodes {
        test_fixture.member.seed(&NODES, node(text));
    }
    for pod in pods {
        test_fixture.member.seed(&PODS, pod);
    }
    test_fixture.join("m", "Push", 100);
    let member = test_fixture.wait_until_listed("m", false).await;
    (test_fixture, member)
}

fn count(
    member: &MemberCluster,
    subject: EstimateSubject<'_>,
    assumed: &[Arc<AssumedWorkload>],
) -> i64 {
    let estimate = ParsedEstimateRequest::from_subject(subject, assumed).unwrap();
    estimate.count(member.with_nodes(|n| estimate.node_capacity(n)).unwrap())
}

fn component(replicas: i64, requirements: Value) -> Component {
    Component {
        name: "c".into(),
        replicas,
        replica_requirements: Some(requirements).filter(|r| !r.is_null()),
    }
}

fn cpu_requirements(cpu: &str) -> Value {
    json!({"resourceRequest": {"cpu": cpu}})
}

fn claim_requirements(claim: Value) -> Value {
    json!({"resourceRequest": {"cpu": "1"}, "nodeClaim": claim})
}

// proves: EST-nodes, EST-node-claim, EST-node-taints
#[tokio::test]
async fn replicas_are_counted_node_by_node() {
    // Free: a 3.5 cpu and 9 pods, b 8 and 3, c nothing, d 4 and 10, e 2 and 10.
    let nodes = [
        "a 4 10 zone=x disk=1",
        "b 8 3 zone=y disk=10",
        "c 2 1 zone=y",
        "d 4 10 zone=z !only=me:NoSchedule !soft=x:PreferNoSchedule",
        "e 2 10 zone=z cordoned",
    ];
    let pods = vec![pod("p", "a", "500m"), pod("q", "c", "1"), pod("w", "", "1")];
    let (test_fixture, member) = member(&nodes, pods).await;
    let expressions = |key: &str, operator: &str, values: Value| json!({"hardNodeAffinity": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]}});
    let field = |operator: &str, values: Value| json!({"hardNodeAffinity": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": operator, "values": values}]}]}});
    let tolerating = |t: Value| claim_requirements(json!({"tolerations": [t]}));
    let table = [
        (json!(null), 9 + 3),
        (json!({}), 9 + 3),
        (cpu_requirements("1"), 3 + 3),
        (cpu_requirements("2"), 1 + 3),
        (cpu_requirements("4"), 2),
        (cpu_requirements("0"), 9 + 3),
        (json!({"resourceRequest": {"gpu.x/y": "1"}}), 2 + 2),
        (json!({"resourceRequest": {"other.x/y": "1"}}), 0),
        // An unqualified name that is no node resource is ignored.
        (json!({"resourceRequest": {"widgets": "1"}}), 9 + 3),
        (
            json!({"resourceRequest": {"cpu": "1", "memory": "32Gi"}}),
            2 + 2,
        ),
        (
            claim_requirements(json!({"nodeSelector": {"zone": "x"}})),
            3,
        ),
        (
            claim_requirements(json!({"nodeSelector": {"zone": "x", "disk": "2"}})),
            0,
        ),
        (
            claim_requirements(expressions("zone", "In", json!(["y", "z"]))),
            3,
        ),
        (
            claim_requirements(expressions("zone", "NotIn", json!(["y"]))),
            3,
        ),
        (
            claim_requirements(expressions("none", "NotIn", json!(["y"]))),
            6,
        ),
        (
            claim_requirements(expressions("disk", "Exists", json!([]))),
            6,
        ),
        (
            claim_requirements(expressions("disk", "DoesNotExist", json!([]))),
            0,
        ),
        (
            claim_requirements(expressions("disk", "Gt", json!(["5"]))),
            3,
        ),
        (
            claim_requirements(expressions("disk", "Lt", json!(["5"]))),
            3,
        ),
        (
            claim_requirements(expressions("zone", "Like", json!(["y"]))),
            0,
        ),
        (claim_requirements(field("In", json!(["b"]))), 3),
        (claim_requirements(field("NotIn", json!(["b"]))), 3),
        (claim_requirements(field("In", json!(["a", "b"]))), 0),
        (
            claim_requirements(json!({"hardNodeAffinity": {"nodeSelectorTerms": []}})),
            0,
        ),
        (
            claim_requirements(json!({"hardNodeAffinity": {"nodeSelectorTerms": [{}]}})),
            0,
        ),
        (
            claim_requirements(json!({"hardNodeAffinity": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "Bad"}]},
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}]}})),
            3,
        ),
        (
            tolerating(json!({"key": "only", "operator": "Exists"})),
            6 + 4,
        ),
        (
            tolerating(json!({"key": "only", "value": "me", "effect": "NoSchedule"})),
            6 + 4,
        ),
        (tolerating(json!({"key": "only", "value": "you"})), 6),
        (
            tolerating(json!({"key": "only", "value": "me", "effect": "NoExecute"})),
            6,
        ),
        (
            tolerating(
                json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}),
            ),
            6 + 2,
        ),
        (tolerating(json!({"operator": "Exists"})), 6 + 4 + 2),
    ];
    for (requirements, expected) in table {
        let subject = EstimateSubject::Replicas(Some(&requirements).filter(|r| !r.is_null()));
        assert_eq!(count(&member, subject, &[]), expected, "{requirements}");
    }
    test_fixture.tasks.stop().await;
}

// proves: EST-sets
#[tokio::test]
async fn sets_are_placed_first_fit() {
    let (test_fixture, member) = member(&["a 4 10 zone=x", "b 3 10", "c 3 4"], vec![]).await;
    let on_x = claim_requirements(json!({"nodeSelector": {"zone": "x"}}));
    let table = [
        (vec![component(1, cpu_requirements("1"))], 10),
        (vec![component(1, cpu_requirements("2"))], 2 + 1 + 1),
        // 2 and 3 go to a and b, then nothing is left for another 3.
        (
            vec![
                component(1, cpu_requirements("2")),
                component(1, cpu_requirements("3")),
            ],
            2,
        ),
        (
            vec![
                component(1, cpu_requirements("3")),
                component(1, cpu_requirements("2")),
            ],
            1,
        ),
        (
            vec![
                component(2, cpu_requirements("2")),
                component(1, Value::Null),
            ],
            2,
        ),
        (vec![component(3, Value::Null)], (10 + 10 + 4) / 3),
        // The second component takes what is left on its only allowed node.
        (
            vec![component(1, on_x), component(1, cpu_requirements("3"))],
            1,
        ),
        (vec![component(9, cpu_requirements("2"))], 0),
        (
            vec![component(0, cpu_requirements("2"))],
            UNBOUNDED_REPLICAS,
        ),
        (vec![], UNBOUNDED_REPLICAS),
    ];
    for (components, expected) in table {
        let subject = EstimateSubject::Sets {
            namespace: "n",
            components: &components,
        };
        assert_eq!(count(&member, subject, &[]), expected, "{components:?}");
    }
    test_fixture.tasks.stop().await;
}

// proves: EST-assumed
#[tokio::test]
async fn assumed_workloads_are_placed_first() {
    let (test_fixture, member) = member(&["a 4 10", "b 4 10"], vec![]).await;
    let assumed = |components| {
        let namespace = "n".into();
        Arc::new(AssumedWorkload {
            namespace,
            components,
        })
    };
    let one = cpu_requirements("1");
    let subject = EstimateSubject::Replicas(Some(&one));
    let three = assumed(vec![component(3, cpu_requirements("1"))]);
    let huge = assumed(vec![component(1, cpu_requirements("9"))]);
    let pods = assumed(vec![component(19, Value::Null)]);
    for (workloads, expected) in [
        (vec![], 8),
        (vec![Arc::clone(&three)], 5),
        (vec![Arc::clone(&three), Arc::clone(&three)], 2),
        // An assumed workload that does not fit fills the nodes or takes nothing.
        (vec![huge], 8),
        (vec![pods], 1),
    ] {
        assert_eq!(
            count(&member, subject, &workloads),
            expected,
            "{workloads:?}"
        );
    }
    let set = [component(2, cpu_requirements("2"))];
    let subject = EstimateSubject::Sets {
        namespace: "n",
        components: &set,
    };
    assert_eq!(count(&member, subject, &[three]), 1);
    test_fixture.tasks.stop().await;
}

#[test]
fn invalid_requirements_name_the_component() {
    let none: &[Arc<AssumedWorkload>] = &[];
    let wrong = |requirements: Value| {
        let subject = EstimateSubject::Replicas(Some(&requirements));
        ParsedEstimateRequest::from_subject(subject, none)
            .err()
            .unwrap()
    };
    assert_eq!(
        wrong(cpu_requirements("much")),
        "resourceRequest: invalid quantity"
    );
    let error = wrong(claim_requirements(json!({"nodeSelector": 1})));
    assert!(error.starts_with("nodeClaim: "), "{error}");
    let components = [component(1, cpu_requirements("much"))];
    let subject = EstimateSubject::Sets {
        namespace: "n",
        components: &components,
    };
    let error = ParsedEstimateRequest::from_subject(subject, none)
        .err()
        .unwrap();
    assert_eq!(error, "component \"c\": resourceRequest: invalid quantity");
}

/// The definition: node by node and replica by replica.
fn naive_first_fit(mut nodes: Vec<(i64, i64)>, set: &[(i64, i64)], bound: i64) -> i64 {
    let mut sets = 0;
    while sets < bound {
        for (replicas, cpu) in set {
            for _ in 0..*replicas {
                let open = nodes
                    .iter_mut()
                    .find(|(free, pods)| free >= cpu && *pods > 0);
                let Some((free, pods)) = open else {
                    return sets;
                };
                *free -= cpu;
                *pods -= 1;
            }
        }
        sets += 1;
    }
    sets
}

proptest! {
    #[test]
    fn first_fit_in_leaps_is_first_fit(
        nodes in prop::collection::vec((0_i64..20, 0_i64..12), 0..6),
        set in prop::collection::vec((0_i64..4, 1_i64..6), 1..4),
    ) {
        let ready = set.iter().map(|(_, cpu)| PodFitOnNodes {
            amounts: vec![(0, *cpu)],
            allowed: vec![true; nodes.len()],
            first_free_node: 0,
        });
        let rooms = FreeCapacityOfNodes {
            resource_count: 1,
            pod_fits: ready.collect(),
            pods: nodes.iter().map(|(_, pods)| *pods).collect(),
            free: nodes.iter().map(|(free, _)| *free).collect(),
        };
        let estimate = ParsedEstimateRequest {
            unit: ReplicasOrComponentSets::Sets,
            pods: Vec::new(),
            assumed: Vec::new(),
            requested: set.iter().enumerate().map(|(at, (replicas, _))| (at, *replicas)).collect(),
        };
        let takes_nothing = set.iter().all(|(replicas, _)| *replicas == 0);
        let expected = if takes_nothing { UNBOUNDED_REPLICAS } else { naive_first_fit(nodes, &set, UNBOUNDED_REPLICAS) };
        prop_assert_eq!(estimate.count(rooms), expected);
    }
}

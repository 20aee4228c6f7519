//! Tests of estimates by ResourceQuotas.

use std::sync::Arc;

use serde_json::json;

use super::*;

fn quota(hard: &[(&str, &str)], used: &[(&str, &str)], scopes: &[(&str, &str, &[&str])]) -> Quota {
    let amounts = |list: &[(&str, &str)]| {
        let amounts = list.iter().map(|(name, text)| {
            let amount = Quantity::parse(text).unwrap();
            ((*name).to_owned(), amount)
        });
        amounts.collect()
    };
    let scope = |(name, operator, values): &(&str, &str, &[&str])| Scope {
        name: (*name).into(),
        operator: (*operator).into(),
        values: values.iter().map(|v| (*v).into()).collect(),
    };
    Quota {
        scopes: scopes.iter().map(scope).collect(),
        hard: amounts(hard),
        used: amounts(used),
    }
}

fn class<'a>(operator: &'a str, values: &'a [&'a str]) -> (&'a str, &'a str, &'a [&'a str]) {
    ("PriorityClass", operator, values)
}

const NOBODY: &[Arc<AssumedWorkload>] = &[];

// proves: EST-quota
#[test]
fn quotas_limit_replicas_by_their_free_amounts() {
    let request = json!({"namespace": "n", "priorityClassName": "high",
                         "resourceRequest": {"cpu": "500m", "memory": "1Gi", "x.y/gpu": "1"}});
    let asked = Asked::Replicas(Some(&request));
    let cpu: &[_] = &[("cpu", "4")];
    let one: &[_] = &[("cpu", "1")];
    let table: Vec<(Quota, i64)> = vec![
        (quota(cpu, one, &[]), 6),
        (
            quota(&[("requests.cpu", "4")], &[("requests.cpu", "1")], &[]),
            6,
        ),
        (
            quota(&[("limits.cpu", "1")], &[("limits.cpu", "1")], &[]),
            UNBOUNDED,
        ),
        (
            quota(
                &[("cpu", "4"), ("memory", "2Gi")],
                &[("cpu", "1"), ("memory", "0")],
                &[],
            ),
            2,
        ),
        (
            quota(
                &[("requests.x.y/gpu", "5")],
                &[("requests.x.y/gpu", "2")],
                &[],
            ),
            3,
        ),
        (
            quota(
                &[("pods", "1"), ("count/secrets", "1")],
                &[("pods", "1"), ("count/secrets", "1")],
                &[],
            ),
            UNBOUNDED,
        ),
        (
            quota(
                &[("requests.ephemeral-storage", "1")],
                &[("requests.ephemeral-storage", "1")],
                &[],
            ),
            UNBOUNDED,
        ),
        // A resource without a used amount is ignored.
        (quota(cpu, &[], &[]), UNBOUNDED),
        (quota(cpu, &[("cpu", "5")], &[]), 0),
        (quota(cpu, one, &[class("In", &["high"])]), 6),
        (quota(cpu, one, &[class("In", &["low"])]), UNBOUNDED),
        (quota(cpu, one, &[class("NotIn", &["low"])]), 6),
        (quota(cpu, one, &[class("Exists", &[])]), 6),
        (quota(cpu, one, &[class("DoesNotExist", &[])]), UNBOUNDED),
        (quota(cpu, one, &[("BestEffort", "Exists", &[])]), UNBOUNDED),
        (
            quota(cpu, one, &[("NotBestEffort", "Exists", &[])]),
            UNBOUNDED,
        ),
        // One matching scope suffices.
        (
            quota(
                cpu,
                one,
                &[("NotBestEffort", "Exists", &[]), class("In", &["high"])],
            ),
            6,
        ),
    ];
    for (quota, expected) in &table {
        assert_eq!(fits([quota], &asked, NOBODY), *expected, "{quota:?}");
    }
    let all = table.iter().map(|(quota, _)| quota);
    assert_eq!(fits(all, &asked, NOBODY), 0);
    assert_eq!(fits([], &asked, NOBODY), UNBOUNDED);
    let full = quota(cpu, &[("cpu", "4")], &[]);
    assert_eq!(fits([&full], &Asked::Replicas(None), NOBODY), UNBOUNDED);
    let classless = json!({"namespace": "n", "resourceRequest": {"cpu": "1"}});
    let asked = Asked::Replicas(Some(&classless));
    let scoped = |operator| quota(cpu, one, &[class(operator, &[])]);
    assert_eq!(fits([&scoped("Exists")], &asked, NOBODY), UNBOUNDED);
    assert_eq!(fits([&scoped("DoesNotExist")], &asked, NOBODY), 3);
}

fn component(replicas: i64, class: &str, cpu: &str) -> Component {
    Component {
        name: "c".into(),
        replicas,
        replica_requirements: Some(
            json!({"priorityClassName": class, "resourceRequest": {"cpu": cpu}}),
        ),
    }
}

// proves: EST-quota
#[test]
fn sets_request_the_sum_of_their_components() {
    let components = [component(2, "high", "500m"), component(1, "low", "1")];
    let asked = Asked::Sets {
        namespace: "n",
        components: &components,
    };
    let plain = quota(&[("cpu", "9")], &[("cpu", "1")], &[]);
    let high = quota(
        &[("cpu", "4")],
        &[("cpu", "1")],
        &[("PriorityClass", "In", &["high"])],
    );
    let other = quota(
        &[("cpu", "1")],
        &[("cpu", "1")],
        &[("PriorityClass", "In", &["none"])],
    );
    assert_eq!(fits([&plain], &asked, NOBODY), 4);
    assert_eq!(fits([&high], &asked, NOBODY), 3);
    assert_eq!(fits([&other], &asked, NOBODY), UNBOUNDED);
    assert_eq!(fits([&plain, &high, &other], &asked, NOBODY), 3);
}

// proves: EST-assumed
#[test]
fn assumed_workloads_of_the_namespace_reduce_the_quota() {
    let request = json!({"namespace": "n", "resourceRequest": {"cpu": "1"}});
    let asked = Asked::Replicas(Some(&request));
    let left = quota(&[("cpu", "5")], &[("cpu", "1")], &[]);
    let assumed = |namespace: &str, replicas| {
        Arc::new(AssumedWorkload {
            namespace: namespace.into(),
            components: vec![component(replicas, "", "1")],
        })
    };
    for (namespace, replicas, expected) in [("n", 3, 1), ("n", 4, 0), ("n", 9, 0), ("m", 3, 4)] {
        let assumed = [assumed(namespace, replicas)];
        assert_eq!(
            fits([&left], &asked, &assumed),
            expected,
            "{namespace} {replicas}"
        );
    }
}

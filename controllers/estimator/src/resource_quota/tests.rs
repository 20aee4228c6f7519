//! Tests of estimates by ResourceQuotas.

use std::sync::Arc;

use serde_json::json;

use super::*;

fn quota(
    hard: &[(&str, &str)],
    used: &[(&str, &str)],
    scopes: &[(&str, &str, &[&str])],
) -> MemberResourceQuota {
    let amounts = |list: &[(&str, &str)]| {
        let amounts = list.iter().map(|(name, text)| {
            let amount = Quantity::parse(text).unwrap();
            ((*name).to_owned(), amount)
        });
        amounts.collect()
    };
    let scope =
        |(name, operator, values): &(&str, &str, &[&str])| ScopedResourceSelectorRequirement {
            scope_name: (*name).into(),
            operator: (*operator).into(),
            values: values.iter().map(|v| (*v).into()).collect(),
        };
    MemberResourceQuota {
        scopes: scopes.iter().map(scope).collect(),
        hard: amounts(hard),
        used: amounts(used),
    }
}

fn class<'a>(operator: &'a str, values: &'a [&'a str]) -> (&'a str, &'a str, &'a [&'a str]) {
    ("PriorityClass", operator, values)
}

const NO_WORKLOADS: &[Arc<AssumedWorkload>] = &[];

// proves: EST-quota
#[test]
fn quotas_limit_replicas_by_their_free_amounts() {
    let request = json!({"namespace": "n", "priorityClassName": "high",
                         "resourceRequest": {"cpu": "500m", "memory": "1Gi", "x.y/gpu": "1"}});
    let subject = EstimateSubject::Replicas(Some(&request));
    let cpu: &[_] = &[("cpu", "4")];
    let one: &[_] = &[("cpu", "1")];
    let table: Vec<(MemberResourceQuota, i64)> = vec![
        (quota(cpu, one, &[]), 6),
        (
            quota(&[("requests.cpu", "4")], &[("requests.cpu", "1")], &[]),
            6,
        ),
        (
            quota(&[("limits.cpu", "1")], &[("limits.cpu", "1")], &[]),
            UNBOUNDED_REPLICAS,
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
            UNBOUNDED_REPLICAS,
        ),
        (
            quota(
                &[("requests.ephemeral-storage", "1")],
                &[("requests.ephemeral-storage", "1")],
                &[],
            ),
            UNBOUNDED_REPLICAS,
        ),
        // A resource without a used amount is ignored.
        (quota(cpu, &[], &[]), UNBOUNDED_REPLICAS),
        (quota(cpu, &[("cpu", "5")], &[]), 0),
        (quota(cpu, one, &[class("In", &["high"])]), 6),
        (
            quota(cpu, one, &[class("In", &["low"])]),
            UNBOUNDED_REPLICAS,
        ),
        (quota(cpu, one, &[class("NotIn", &["low"])]), 6),
        (quota(cpu, one, &[class("Exists", &[])]), 6),
        (
            quota(cpu, one, &[class("DoesNotExist", &[])]),
            UNBOUNDED_REPLICAS,
        ),
        (
            quota(cpu, one, &[("BestEffort", "Exists", &[])]),
            UNBOUNDED_REPLICAS,
        ),
        (
            quota(cpu, one, &[("NotBestEffort", "Exists", &[])]),
            UNBOUNDED_REPLICAS,
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
        assert_eq!(
            fit_within_quotas([quota], &subject, NO_WORKLOADS),
            *expected,
            "{quota:?}"
        );
    }
    let all = table.iter().map(|(quota, _)| quota);
    assert_eq!(fit_within_quotas(all, &subject, NO_WORKLOADS), 0);
    assert_eq!(
        fit_within_quotas([], &subject, NO_WORKLOADS),
        UNBOUNDED_REPLICAS
    );
    let full = quota(cpu, &[("cpu", "4")], &[]);
    assert_eq!(
        fit_within_quotas([&full], &EstimateSubject::Replicas(None), NO_WORKLOADS),
        UNBOUNDED_REPLICAS
    );
    let classless = json!({"namespace": "n", "resourceRequest": {"cpu": "1"}});
    let subject = EstimateSubject::Replicas(Some(&classless));
    let scoped = |operator| quota(cpu, one, &[class(operator, &[])]);
    assert_eq!(
        fit_within_quotas([&scoped("Exists")], &subject, NO_WORKLOADS),
        UNBOUNDED_REPLICAS
    );
    assert_eq!(
        fit_within_quotas([&scoped("DoesNotExist")], &subject, NO_WORKLOADS),
        3
    );
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
    let subject = EstimateSubject::Sets {
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
    assert_eq!(fit_within_quotas([&plain], &subject, NO_WORKLOADS), 4);
    assert_eq!(fit_within_quotas([&high], &subject, NO_WORKLOADS), 3);
    assert_eq!(
        fit_within_quotas([&other], &subject, NO_WORKLOADS),
        UNBOUNDED_REPLICAS
    );
    assert_eq!(
        fit_within_quotas([&plain, &high, &other], &subject, NO_WORKLOADS),
        3
    );
}

// proves: EST-assumed
#[test]
fn assumed_workloads_of_the_namespace_reduce_the_quota() {
    let request = json!({"namespace": "n", "resourceRequest": {"cpu": "1"}});
    let subject = EstimateSubject::Replicas(Some(&request));
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
            fit_within_quotas([&left], &subject, &assumed),
            expected,
            "{namespace} {replicas}"
        );
    }
}

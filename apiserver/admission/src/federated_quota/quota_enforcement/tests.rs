//! Tests of quota enforcement on a fake API.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use client_fake::FakeApi;
use karmada_api::resources::BINDINGS;
use machinery::{Gvk, UserInfo};
use serde_json::json;

use super::*;
use crate::attributes::OperationOptions;

fn amounts(value: Value) -> QuotaResourceList {
    serde_json::from_value(value).unwrap()
}

fn quota(name: &str, overall: Value, used: Value) -> Value {
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "FederatedResourceQuota",
        "metadata": {"name": name, "namespace": "n"}, "spec": {"overall": overall}, "status": {"overallUsed": used}})
}

fn binding(replicas: &[i64]) -> Value {
    let clusters = replicas.iter().enumerate();
    let clusters = clusters.map(|(i, r)| json!({"name": format!("m{i}"), "replicas": r}));
    json!({"metadata": {"name": "b"}, "spec": {"clusters": clusters.collect::<Vec<_>>(),
        "replicaRequirements": {"resourceRequest": {"cpu": "500m", "memory": "1Gi"}}}})
}

fn check_demand(new: &Value, old: Option<&Value>, expected: Option<Value>) {
    let operation = old.map_or(AdmissionOperation::Create, |_| AdmissionOperation::Update);
    let actual = usage_increase(operation, new, old).unwrap();
    assert_eq!(actual, expected.map(amounts), "{new}");
}

#[test]
fn unscheduled_binding_uses_nothing() {
    check_demand(&binding(&[]), None, None);
    let placed = json!({"cpu": "1", "memory": "2Gi"});
    check_demand(&binding(&[1, 1]), None, Some(placed));
}

#[test]
fn update_charges_the_difference() {
    let increase = json!({"cpu": "1", "memory": "2Gi"});
    check_demand(&binding(&[3]), Some(&binding(&[1])), Some(increase));
    let decrease = json!({"cpu": "-500m", "memory": "-1Gi"});
    check_demand(&binding(&[]), Some(&binding(&[1])), Some(decrease));
    check_demand(&binding(&[1, 2]), Some(&binding(&[2, 1])), None);
    let mut cheaper = binding(&[2]);
    cheaper["spec"]["replicaRequirements"]["resourceRequest"] =
        json!({"cpu": "250m", "memory": "1Gi"});
    let half = json!({"cpu": "-500m"});
    check_demand(&cheaper, Some(&binding(&[2])), Some(half));
}

/// Raises usage by 1.5 cores and three pods and lowers it by 1 GB.
fn check_raised(overall: Value, used: Value, expected: Result<Option<Value>, &str>) {
    let increase = amounts(json!({"cpu": "1500m", "memory": "-1Gi", "pods": "3"}));
    let quota = serde_json::from_value(quota("q", overall.clone(), used.clone())).unwrap();
    let actual = usage_after(&quota, "n/q", &increase);
    let actual = actual.map(|used| used.map(|u| serde_json::to_value(u).unwrap()));
    assert_eq!(actual, expected.map_err(str::to_owned), "{overall} {used}");
}

#[test]
fn quota_limits_only_its_resources() {
    check_raised(json!({}), json!({}), Ok(None));
    check_raised(json!({"x.io/y": "1"}), json!({}), Ok(None));
    check_raised(
        json!({"pods": "3", "x.io/y": "1"}),
        json!({"x.io/y": "9"}),
        Ok(Some(json!({"pods": "3", "x.io/y": "9"}))),
    );
    check_raised(
        json!({"requests.cpu": "2"}),
        json!({"requests.cpu": "250m"}),
        Ok(Some(json!({"requests.cpu": "1750m"}))),
    );
    check_raised(
        json!({"requests.cpu": "1"}),
        json!({}),
        Err(
            "FederatedResourceQuota(n/q) exceeded for resource requests.cpu: requested sum 1500m, limit 1.",
        ),
    );
}

// proves: QUO-charged
#[test]
fn limits_hold_to_the_last_unit() {
    let cpu = |used: &str| json!({ "cpu": used });
    check_raised(cpu("2"), cpu("500m"), Ok(Some(cpu("2"))));
    check_raised(
        cpu("2"),
        cpu("501m"),
        Err("FederatedResourceQuota(n/q) exceeded for resource cpu: requested sum 2001m, limit 2."),
    );
}

// proves: ADM-quota-less
#[test]
fn decreases_are_never_rejected() {
    let memory = |amount: &str| json!({ "memory": amount });
    check_raised(memory("1Gi"), memory("4Gi"), Ok(Some(memory("3Gi"))));
    check_raised(
        json!({"cpu": "9", "memory": "1Gi"}),
        memory("1Gi"),
        Ok(Some(json!({"cpu": "1500m"}))),
    );
}

static BINDING: Gvk = Gvk::from_static("work.karmada.io", "v1alpha2", "ResourceBinding");

fn at(user: &UserInfo, dry_run: bool) -> AdmissionAttributes<'_> {
    AdmissionAttributes {
        gvk: &BINDING,
        gvr: &BINDINGS,
        namespace: "n",
        name: "b",
        subresource: "",
        operation: AdmissionOperation::Update,
        user,
        dry_run,
        options: OperationOptions::None,
        audit_annotations: None,
    }
}

fn used(api: &FakeApi, name: &str) -> Value {
    let quota = api.get_object(&QUOTAS, "n", name).unwrap();
    quota["status"]["overallUsed"].clone()
}

/// Two quotas: one of nine cores, one of two cores with one used.
fn two_quotas() -> Arc<FakeApi> {
    let api = FakeApi::new();
    api.seed(&QUOTAS, quota("a", json!({"cpu": "9"}), json!({})));
    api.seed(
        &QUOTAS,
        quota("q", json!({"cpu": "2"}), json!({"cpu": "1"})),
    );
    api
}

async fn charge_cores(
    api: &FakeApi,
    cores: i64,
    dry_run: bool,
) -> Result<QuotaChargesOfWrite, Status> {
    let user = UserInfo::internal();
    let increase = amounts(json!({"cpu": cores}));
    charge_quotas(api, &at(&user, dry_run), &increase).await
}

// proves: QUO-charged, ADM-quota-refund
#[tokio::test]
async fn all_quotas_are_charged_or_none() {
    let api = two_quotas();
    let charged = charge_cores(&api, 1, false).await.unwrap();
    let cores = |n: &str| json!({ "cpu": n });
    assert_eq!((used(&api, "a"), used(&api, "q")), (cores("1"), cores("2")));
    assert!(api.writes().iter().all(|w| w.subresource == "status"));
    let rejection = charge_cores(&api, 1, false).await.unwrap_err();
    assert_eq!((rejection.code, &*rejection.reason), (403, "QuotaExceeded"));
    assert_eq!(
        rejection.message,
        "admission webhook \"resourcebinding.karmada.io\" denied the request: FederatedResourceQuota(n/q) exceeded for resource cpu: requested sum 3, limit 2."
    );
    assert_eq!(used(&api, "a"), cores("1"));
    refund_quotas(&*api, &charged).await;
    assert_eq!((used(&api, "a"), used(&api, "q")), (json!({}), cores("1")));
}

#[tokio::test]
async fn dry_run_is_checked_and_not_charged() {
    let api = two_quotas();
    assert!(charge_cores(&api, 1, true).await.unwrap().is_empty());
    assert_eq!(api.writes(), []);
    assert!(charge_cores(&api, 2, true).await.is_err());
}

/// Makes the first `times` writes fail.
fn fail_writes(api: &FakeApi, times: usize, status: Status) {
    let done = AtomicUsize::new(0);
    api.on_call(move |call| {
        let first = call.verb == "update" && done.fetch_add(1, Ordering::Relaxed) < times;
        first.then(|| status.clone().into())
    });
}

// proves: ADM-quota-conflict, ADM-quota-failed
#[tokio::test]
async fn conflicts_are_retried_and_other_errors_returned() {
    let api = two_quotas();
    fail_writes(&api, 3, Status::stale_resource_version(&QUOTAS, "a"));
    charge_cores(&api, 1, false).await.unwrap();
    assert_eq!(used(&api, "q"), json!({"cpu": "2"}));

    let table = [
        (
            Status::stale_resource_version(&QUOTAS, "a"),
            "failed to apply FederatedResourceQuota updates after multiple retries for RB n/b: ",
        ),
        (
            Status::internal("disk"),
            "permanent error updating FRQ statuses for RB n/b: ",
        ),
    ];
    for (status, text) in table {
        let api = two_quotas();
        fail_writes(&api, usize::MAX, status);
        let failed = charge_cores(&api, 1, false).await.unwrap_err();
        assert_eq!(failed.code, 500);
        assert!(failed.message.contains(text), "{}", failed.message);
    }
    let api = two_quotas();
    api.on_call(|call| (call.verb == "list").then(|| Status::internal("disk").into()));
    let failed = charge_cores(&api, 1, false).await.unwrap_err();
    assert_eq!(failed.code, 500);
    let text = "failed to list FederatedResourceQuotas: ";
    assert!(failed.message.contains(text), "{}", failed.message);
}

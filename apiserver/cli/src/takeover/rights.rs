//! The rights that a takeover and the way back need, asked for before anything changes: one that is
//! missing would be noticed when Karmada's controllers have stopped.

use aggregation::MovedResource;
use anyhow::ensure;
use client::Api;
use flotilla_runtime::{RequiredRight, missing_rights};

use super::owned_secrets;
use super::session::TakeoverSession;
use super::summary::first_lines;

const ADMISSION: &str = "admissionregistration.k8s.io";
const VALIDATING: &str = "validatingwebhookconfigurations";

/// The resources that the steps act on, besides those that move, and their verbs.
const USED_RESOURCES: [(&str, &str, &[&str]); 6] = [
    (
        "apiregistration.k8s.io",
        "apiservices",
        &["list", "get", "create", "update", "delete"],
    ),
    (
        ADMISSION,
        VALIDATING,
        &["list", "get", "create", "update", "patch", "delete"],
    ),
    (
        ADMISSION,
        "mutatingwebhookconfigurations",
        &["list", "get", "create", "update", "delete"],
    ),
    (
        ADMISSION,
        "validatingadmissionpolicies",
        &["list", "delete"],
    ),
    (
        ADMISSION,
        "validatingadmissionpolicybindings",
        &["list", "delete"],
    ),
    (
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        &["get", "update"],
    ),
];
/// The way back writes all that has changed.
const MOVED_VERBS: [&str; 6] = ["list", "get", "create", "update", "patch", "delete"];

/// The rights that the user lacks for a takeover of these resources and for the way back.
pub(super) async fn missing_for_takeover(
    session: &TakeoverSession,
    resources: &[MovedResource],
) -> Vec<String> {
    let mut required = vec![
        RequiredRight::new("list", "", "secrets", owned_secrets::NAMESPACE),
        RequiredRight::new("patch", "", "secrets", owned_secrets::NAMESPACE),
    ];
    for verb in ["get", "create", "patch"] {
        let record = RequiredRight::new(verb, "", "configmaps", &session.namespace);
        required.push(record);
    }
    for (group, resource, verbs) in USED_RESOURCES {
        let rights = verbs.iter();
        required.extend(rights.map(|verb| RequiredRight::new(verb, group, resource, "")));
    }
    let statuses = resources.iter().map(|r| format!("{}/status", r.resource));
    let statuses: Vec<String> = statuses.collect();
    for (moved, status) in resources.iter().zip(&statuses) {
        let right = |verb| RequiredRight::new(verb, &moved.group, &moved.resource, "");
        required.extend(MOVED_VERBS.map(right));
        required.push(RequiredRight::new("update", &moved.group, status, ""));
    }
    describe(&*session.host, &required).await
}

/// The rights that the user lacks for the freeze of writes.
pub(super) async fn missing_for_freeze(host: &dyn Api) -> Vec<String> {
    let verbs = ["create", "patch", "delete"];
    let required = verbs.map(|verb| RequiredRight::new(verb, ADMISSION, VALIDATING, ""));
    describe(host, &required).await
}

/// The rights that the user lacks to scale these Deployments, as namespace and name, where Karmada
/// runs.
pub(super) async fn missing_for_scaling(
    cluster: &dyn Api,
    deployments: &[(String, String)],
) -> Vec<String> {
    let mut required = Vec::new();
    for (namespace, _) in deployments {
        for verb in ["get", "patch"] {
            let right = RequiredRight::new(verb, "apps", "deployments", namespace);
            if !required.contains(&right) {
                required.push(right);
            }
        }
    }
    describe(cluster, &required).await
}

async fn describe(api: &dyn Api, required: &[RequiredRight<'_>]) -> Vec<String> {
    let missing = missing_rights(api, required).await.into_iter();
    let lines = missing.map(|right| format!("your user may not {right}"));
    first_lines(lines.collect())
}

/// Fails if rights are missing.
pub(super) fn refuse_missing(missing: &[String]) -> anyhow::Result<()> {
    let rights = missing.join("; ");
    ensure!(
        missing.is_empty(),
        "{rights}: use the kubeconfig of an administrator; nothing was changed"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use client_fake::FakeApi;
    use machinery::Gvr;
    use serde_json::json;

    use super::super::snapshot::test_snapshot;
    use super::*;

    // proves: TKO-rights
    #[tokio::test]
    async fn a_right_that_is_missing_is_named() {
        let fake = FakeApi::new();
        let reviews = Gvr::from_static("authorization.k8s.io", "v1", "selfsubjectaccessreviews");
        fake.respond_to_create(&reviews, |mut review| {
            let access = &review["spec"]["resourceAttributes"];
            let is_denied = access["verb"] == "*"
                || access["subresource"] == "status"
                || (access["verb"] == "patch" && access["namespace"] == "k")
                || (access["resource"] == VALIDATING && access["verb"] == "create");
            review["status"] = json!({"allowed": !is_denied});
            review
        });
        let session = TakeoverSession {
            host: fake.clone(),
            namespace: "f".into(),
            timeout: Duration::ZERO,
            run: "1".into(),
        };
        let moved = test_snapshot("work.karmada.io", &[]).resources;
        let moved: Vec<MovedResource> = moved.into_iter().map(|r| r.resource).collect();
        let freeze =
            "your user may not create validatingwebhookconfigurations.admissionregistration.k8s.io";
        let missing = missing_for_takeover(&session, &moved).await;
        let status = "your user may not update works/status.work.karmada.io";
        assert_eq!(missing, [freeze, status]);
        assert_eq!(missing_for_freeze(&*fake).await, [freeze]);
        let deployments = ["a", "b"].map(|name| ("k".to_owned(), name.to_owned()));
        assert_eq!(
            missing_for_scaling(&*fake, &deployments).await,
            ["your user may not patch deployments.apps in k"]
        );
        let error = refuse_missing(&missing).unwrap_err().to_string();
        assert!(
            error.contains(freeze) && error.contains("administrator"),
            "{error}"
        );
        assert_eq!(fake.writes(), []);
    }
}

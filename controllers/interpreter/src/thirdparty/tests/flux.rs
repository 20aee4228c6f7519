//! Tests of Flux: helm, kustomize and source.toolkit.fluxcd.io.

use super::*;

const RELEASE: &str = "helm.toolkit.fluxcd.io/v2beta1 HelmRelease";
const KUSTOMIZATION: &str = "kustomize.toolkit.fluxcd.io/v1 Kustomization";
const GIT: &str = "source.toolkit.fluxcd.io/v1 GitRepository";
const BUCKET: &str = "source.toolkit.fluxcd.io/v1beta2 Bucket";
const CHART: &str = "source.toolkit.fluxcd.io/v1beta2 HelmChart";
const HELM: &str = "source.toolkit.fluxcd.io/v1beta2 HelmRepository";
const OCI: &str = "source.toolkit.fluxcd.io/v1beta2 OCIRepository";
const SOURCES: [&str; 5] = [GIT, BUCKET, CHART, HELM, OCI];
const ALL: [&str; 7] = [RELEASE, KUSTOMIZATION, GIT, BUCKET, CHART, HELM, OCI];

// proves: CRD-flux
#[test]
fn healthy_when_ready_for_the_expected_reason() {
    let ready = |status: &str, reason: &str| json!({"conditions": [condition("Other", "True", "Succeeded", ""), condition("Ready", status, reason, "m")]});
    for kind in ALL {
        let source = SOURCES.contains(&kind);
        let reason = if source {
            "Succeeded"
        } else {
            "ReconciliationSucceeded"
        };
        check_health_by_status(
            kind,
            &[
                (ready("True", reason), Some(true)),
                (ready("False", reason), Some(false)),
                (ready("Unknown", "Progressing"), Some(false)),
                (ready("True", "Other"), Some(false)),
                (ready("True", "ChartPullSucceeded"), Some(kind == CHART)),
                (json!({"conditions": []}), Some(false)),
                (json!({}), Some(false)),
            ],
        );
    }
}

fn status_report(generation: i64, message: &str, more: Value) -> Value {
    let mut status = json!({"observedGeneration": 1, "generation": 1, "resourceTemplateGeneration": generation,
        "conditions": [condition("Ready", "True", "Succeeded", message)]});
    for (field, value) in more.as_object().unwrap() {
        status[field] = value.clone();
    }
    status
}

// proves: CRD-conditions, CRD-generation
#[test]
fn conditions_are_merged_and_generations_observed() {
    for kind in ALL {
        let template = json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1, "mine": 1, "conditions": [1]}});
        let all = [
            status_report(2, "x", json!({})),
            Value::Null,
            status_report(2, "y", json!({})),
        ];
        let result = aggregated(kind, &template, &all).unwrap();
        assert_eq!(
            result["status"]["conditions"],
            json!([condition(
                "Ready",
                "False",
                "StatusNotReported",
                "waiting for the status in clusters: b"
            )])
        );
        assert_eq!(
            (
                &result["status"]["observedGeneration"],
                &result["status"]["mine"]
            ),
            (&json!(1), &json!(1))
        );
        let result = aggregated(kind, &template, &[all[0].clone(), all[2].clone()]).unwrap();
        assert_eq!(result["status"]["observedGeneration"], 2, "{kind}");
        assert_eq!(
            result["status"]["conditions"],
            json!([condition("Ready", "True", "Succeeded", "a=x, b=y")])
        );
        let result = aggregated_without_items(kind, &template);
        assert_eq!(result["status"]["observedGeneration"], 2, "{kind}");
        assert_eq!(result["status"].get("conditions"), None);
        let mute = json!({"conditions": [{"type": "Ready"}]});
        assert!(aggregated(kind, &template, &[mute]).is_err());
    }
}

// proves: CRD-flux-revisions
#[test]
fn revisions_are_the_last_reported_ones() {
    let revised = |applied: &str, more: Value| {
        let mut status = status_report(1, "", more);
        status["lastAppliedRevision"] = applied.into();
        status
    };
    for kind in [RELEASE, KUSTOMIZATION] {
        let template = json!({"metadata": {}, "status": {"lastAppliedRevision": "1", "lastAttemptedRevision": "0"}});
        let result = aggregated(
            kind,
            &template,
            &[
                revised("2", json!({})),
                revised("3", json!({})),
                revised("", json!({})),
            ],
        );
        let status = &result.unwrap()["status"];
        assert_eq!(
            (
                &status["lastAppliedRevision"],
                &status["lastAttemptedRevision"]
            ),
            (&json!("3"), &json!("0"))
        );
        let result = aggregated(kind, &template, &[revised("", json!({}))]).unwrap();
        assert_eq!(result["status"]["lastAppliedRevision"], "1", "{kind}");
        assert_eq!(
            aggregated_without_items(kind, &template)["status"]["lastAppliedRevision"],
            ""
        );
    }
    assert_eq!(
        aggregated_without_items(RELEASE, &json!({"metadata": {}}))["status"],
        json!({"observedGeneration": 0, "lastAttemptedRevision": "", "lastAppliedRevision": "", "lastAttemptedValuesChecksum": "",
               "helmChart": "", "lastReleaseRevision": "", "failures": 0, "upgradeFailures": 0, "installFailures": 0})
    );
}

// proves: CRD-flux-revisions
#[test]
fn failures_add_to_those_counted_before() {
    let failed = |n: i64| {
        status_report(
            1,
            "",
            json!({"failures": n, "installFailures": 1, "lastReleaseRevision": n}),
        )
    };
    let template = json!({"metadata": {}, "status": {"failures": 1, "upgradeFailures": 2}});
    let result = aggregated(RELEASE, &template, &[failed(2), failed(3)]).unwrap();
    let status = &result["status"];
    assert_eq!(
        (&status["failures"], &status["upgradeFailures"]),
        (&json!(6), &json!(2))
    );
    assert_eq!(
        (
            status.get("installFailures"),
            &status["lastReleaseRevision"]
        ),
        (None, &json!(3))
    );
}

// proves: CRD-flux-sources
#[test]
fn sources_show_the_last_artifact() {
    for kind in SOURCES {
        let template = json!({"metadata": {}, "status": {"url": "old", "artifact": {"old": 1}, "observedIgnore": "i"}});
        let result = |all: &[Value]| aggregated(kind, &template, all).unwrap()["status"].clone();
        let status = result(&[
            status_report(1, "", json!({"artifact": {"n": 1}, "url": "one"})),
            status_report(
                1,
                "",
                json!({"artifact": {"n": 2}, "url": "", "observedIgnore": "j"}),
            ),
        ]);
        assert_eq!(
            (&status["artifact"], &status["observedIgnore"]),
            (&json!({"n": 2}), &json!("i"))
        );
        assert_eq!(
            status["url"],
            if kind == GIT { "old" } else { "one" },
            "{kind}"
        );
        let status = result(&[Value::Null]);
        assert_eq!(status.get("artifact"), None);
        assert_eq!(
            status["url"],
            if kind == GIT { "old" } else { "" },
            "{kind}"
        );
        let status = aggregated_without_items(kind, &template)["status"].clone();
        assert_eq!(
            (
                status.get("artifact"),
                status.get("observedChartName").is_some()
            ),
            (None, kind == CHART)
        );
    }
}

// proves: CRD-flux-sources
#[test]
fn charts_do_not_reflect_observed_generation() {
    for kind in ALL {
        let copy = json!({"metadata": {"generation": 3}, "status": {"observedGeneration": 3, "conditions": [{}], "odd": 1}});
        // A list whose elements are all empty stays as an empty list.
        let mut expected = json!({"observedGeneration": 3, "generation": 3, "conditions": []});
        if kind == CHART {
            expected
                .as_object_mut()
                .unwrap()
                .remove("observedGeneration");
        }
        assert_eq!(reflected(kind, &copy), expected, "{kind}");
    }
    let copy = json!({"status": {"observedIgnore": "i", "observedRecurseSubmodules": true, "url": "u", "observedLayerSelector": {"a": 1}, "observedChartName": "c"}});
    for (kind, fields) in [
        (
            GIT,
            json!({"observedIgnore": "i", "observedRecurseSubmodules": true}),
        ),
        (BUCKET, json!({"observedIgnore": "i", "url": "u"})),
        (HELM, json!({"url": "u"})),
        (
            OCI,
            json!({"observedIgnore": "i", "url": "u", "observedLayerSelector": {"a": 1}}),
        ),
        (CHART, json!({"url": "u", "observedChartName": "c"})),
    ] {
        assert_eq!(reflected(kind, &copy), fields, "{kind}");
    }
}

// proves: CRD-flux-deps
#[test]
fn secrets_and_accounts() {
    let secret = |name: &str| json!({"name": name});
    let spec = json!({
        "secretRef": secret("own"), "certSecretRef": secret("cert"), "verify": {"secretRef": secret("verify")},
        "chart": {"spec": {"verify": {"secretRef": secret("chart")}}}, "decryption": {"secretRef": secret("keys")},
        "kubeConfig": {"secretRef": secret("kube")}, "serviceAccountName": "default",
        "valuesFrom": [{"kind": "Secret", "name": "values"}, {"kind": "ConfigMap", "name": "values"}, {"kind": "Other", "name": "x"}],
        "sourceRef": {"kind": "GitRepository", "name": "unseen"},
    });
    for (kind, expected) in [
        (
            RELEASE,
            &[
                "ConfigMap values",
                "Secret chart",
                "Secret kube",
                "Secret values",
                "ServiceAccount default",
            ][..],
        ),
        (
            KUSTOMIZATION,
            &["Secret keys", "Secret kube", "ServiceAccount default"],
        ),
        (GIT, &["Secret own", "Secret verify"]),
        (BUCKET, &["Secret own"]),
        (HELM, &["Secret own"]),
        (CHART, &["Secret verify"]),
        (
            OCI,
            &[
                "Secret cert",
                "Secret own",
                "Secret verify",
                "ServiceAccount default",
            ],
        ),
    ] {
        let expected: Vec<String> = expected.iter().map(|d| d.replace(' ', " n/")).collect();
        assert_eq!(
            dependencies(kind, &namespaced_object(spec.clone())),
            Some(expected),
            "{kind}"
        );
        assert_eq!(
            dependencies(kind, &namespaced_object(json!({}))),
            Some(Vec::new()),
            "{kind}"
        );
        let empty = json!({"secretRef": secret(""), "verify": {"secretRef": secret("")}, "kubeConfig": {"secretRef": secret("")}});
        assert_eq!(
            dependencies(kind, &namespaced_object(empty)),
            Some(Vec::new()),
            "{kind}"
        );
        let nameless =
            json!({"secretRef": {}, "verify": {"secretRef": {}}, "kubeConfig": {"secretRef": {}}});
        assert_eq!(
            dependencies(kind, &namespaced_object(nameless)),
            None,
            "{kind}"
        );
    }
}

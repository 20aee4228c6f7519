//! Each check names the failure that is injected into what a healthy control plane shows.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::run_checks;
use crate::doctor::metric_samples::MetricSamples;
use crate::doctor::observations::{
    AgentLeaseState, ControlPlaneObservations, FailedWork, HttpAnswer, ObservedMember,
    UserCredential,
};
use crate::doctor::report::{CheckStatus, DoctorReport};

/// 2023-11-14T22:13:20Z.
const NOW: i64 = 1_700_000_000;
const DAY: i64 = 24 * 3600;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn answer(code: u16, body: &str, clock_ahead: i64) -> HttpAnswer {
    HttpAnswer {
        code,
        body: body.to_owned(),
        date: Some(now() + SignedDuration::from_secs(clock_ahead)),
        asked: now(),
        took: Duration::from_millis(20),
    }
}

fn member(name: &str, mode: &str) -> ObservedMember {
    ObservedMember {
        name: name.to_owned(),
        cluster: json!({"spec": {"syncMode": mode}, "status": {
            "kubernetesVersion": "v1.30.1",
            "conditions": [{"type": "Ready", "status": "True", "reason": "ClusterReady"}]}}),
        answer: Ok(answer(200, "ok", 0)),
    }
}

fn metrics(more: &str) -> MetricSamples {
    let far = NOW + 90 * DAY;
    MetricSamples::parse_checked(&format!(
        "karmada_build_info 1\n\
         process_start_time_seconds {}\n\
         flotilla_certificate_expiration_timestamp_seconds{{certificate=\"serving\"}} {far}\n\
         flotilla_cluster_credential_expiration_timestamp_seconds{{member_cluster=\"m1\",credential=\"ns/m1/token\"}} {far}\n\
         flotilla_data_dir_free_bytes 5e10\n\
         flotilla_data_dir_capacity_bytes 1e11\n\
         apiserver_storage_size_bytes{{storage_cluster_id=\"etcd-0\"}} 1e8\n\
         flotilla_store_fault{{fault=\"space\"}} 0\n\
         flotilla_agent_tunnels{{member_cluster=\"m2\"}} 1\n\
         workqueue_depth{{name=\"work\"}} 2\n\
         {more}",
        NOW - 2 * 3600
    ))
}

fn healthy() -> ControlPlaneObservations {
    let lease = AgentLeaseState {
        renewed: Some(now() - SignedDuration::from_secs(9)),
        lasts: Some(SignedDuration::from_secs(40)),
        agent_version: Some("0.1.0".to_owned()),
    };
    ControlPlaneObservations {
        server: "https://plane".to_owned(),
        now: now(),
        client_version: "0.1.0".to_owned(),
        readiness: Ok(answer(200, "[+]ping ok\nreadyz check passed\n", 0)),
        karmada_api: Ok(answer(200, "{}", 0)),
        server_version: Ok("v1.36.0+flotilla.0.1.0".to_owned()),
        metrics: Ok(metrics("")),
        members: Ok(vec![member("m1", "Push"), member("m2", "Pull")]),
        leases: Ok(BTreeMap::from([("m2".to_owned(), lease)])),
        failed_works: Ok(Vec::new()),
        user_credentials: vec![UserCredential {
            kind: "client certificate",
            expires: now() + SignedDuration::from_secs(90 * DAY),
        }],
    }
}

/// The lines that are not `ok`, as `status check: message`.
fn complaints(observations: &ControlPlaneObservations) -> Vec<String> {
    let results = run_checks(observations).into_iter();
    let wrong = results.filter(|result| result.status != CheckStatus::Ok);
    let line = wrong.map(|result| {
        assert!(!result.remedy.is_empty(), "{result:?}");
        let status = format!("{:?}", result.status).to_lowercase();
        format!("{status} {}: {}", result.check, result.message)
    });
    line.collect()
}

#[test]
fn a_healthy_control_plane_has_a_line_per_check_and_no_complaint() {
    let observations = healthy();
    assert_eq!(complaints(&observations), [""; 0]);
    let results = run_checks(&observations);
    let checks: Vec<&str> = results.iter().map(|result| result.check).collect();
    let all = [
        "api-server",
        "user-credentials",
        "server-certificates",
        "member-credentials",
        "agent-certificates",
        "members",
        "agent-leases",
        "tunnels",
        "works",
        "propagation",
        "queues",
        "watches",
        "webhooks",
        "clock",
        "disk",
        "versions",
    ];
    assert_eq!(checks, all);
}

type Injection = fn(&mut ControlPlaneObservations);

fn with_metrics(observations: &mut ControlPlaneObservations, more: &str) {
    observations.metrics = Ok(metrics(more));
}

fn first_member(observations: &mut ControlPlaneObservations) -> &mut ObservedMember {
    &mut observations.members.as_mut().unwrap()[0]
}

fn set_condition(observations: &mut ControlPlaneObservations, condition: Value) {
    let conditions = &mut first_member(observations).cluster["status"]["conditions"];
    let conditions = conditions.as_array_mut().unwrap();
    conditions.retain(|existing| existing["type"] != condition["type"]);
    conditions.push(condition);
}

fn set_lease(observations: &mut ControlPlaneObservations, change: fn(&mut AgentLeaseState)) {
    change(observations.leases.as_mut().unwrap().get_mut("m2").unwrap());
}

fn assert_complaints(injections: &[(Injection, &str)]) {
    for (inject, expected) in injections {
        let mut observations = healthy();
        inject(&mut observations);
        assert_eq!(complaints(&observations), [*expected]);
    }
}

// proves: DOC-server
#[test]
fn failures_of_the_server_are_named() {
    assert_complaints(&[
        (
            |f| {
                f.readiness = Ok(answer(
                    500,
                    "[+]ping ok\n[-]etcd failed: reason withheld\n",
                    0,
                ))
            },
            "error api-server: https://plane is not ready: its check etcd fails",
        ),
        (
            |f| f.readiness = Ok(answer(503, "", 0)),
            "error api-server: https://plane is not ready: /readyz answers 503",
        ),
        (
            |f| {
                f.karmada_api = Ok(answer(404, "404 page not found", 0));
                f.members = Err("the server could not find the requested resource".to_owned());
                f.metrics = Err("the server is the host of Flotilla and shows its own".to_owned());
            },
            "error api-server: https://plane is not a control plane: it does not serve cluster.karmada.io",
        ),
        (
            |f| f.readiness = Ok(answer(401, "", 0)),
            "error api-server: https://plane refuses the credentials of the kubeconfig",
        ),
        (
            |f| {
                f.readiness = Ok(answer(200, "", 10));
                for member in f.members.as_mut().unwrap() {
                    member.answer = Ok(answer(200, "ok", 10));
                }
            },
            "warning clock: the clock of the server is 9 s ahead of that of this machine",
        ),
        (
            |f| first_member(f).answer = Ok(answer(200, "ok", -102)),
            "error clock: the clock of member m1 is 101 s behind that of the server",
        ),
        (
            |f| with_metrics(f, "flotilla_store_fault{fault=\"disk\"} 1\n"),
            "error disk: the store cannot write (fault disk)",
        ),
        (
            |f| {
                with_metrics(
                    f,
                    "apiserver_storage_size_bytes{storage_cluster_id=\"etcd-1\"} 7e9\n",
                )
            },
            "warning disk: the store takes 6.52 GiB",
        ),
        (
            |f| {
                with_metrics(
                    f,
                    "apiserver_admission_webhook_rejection_count{name=\"w\",operation=\"CREATE\",error_type=\"calling_webhook_error\"} 3\n",
                )
            },
            "warning webhooks: 3 CREATE requests were rejected because the admission webhook w failed",
        ),
        (
            |f| {
                with_metrics(
                    f,
                    "apiserver_admission_webhook_fail_open_count{name=\"w\"} 2\n",
                )
            },
            "warning webhooks: the admission webhook w failed 2 times and was ignored by its failure policy",
        ),
    ]);
    let metrics =
        "apiserver_admission_webhook_rejection_count{name=\"w\",error_type=\"no_error\"} 3\n";
    let mut observations = healthy();
    with_metrics(&mut observations, metrics);
    assert_eq!(complaints(&observations), [""; 0]);
}

// proves: DOC-server
#[test]
fn a_full_disk_is_named() {
    for (free, status) in [(2e9, "warning"), (1e8, "error")] {
        let mut observations = healthy();
        observations.metrics = Ok(MetricSamples::parse_checked(&format!(
            "flotilla_data_dir_free_bytes {free}\nflotilla_data_dir_capacity_bytes 1e11\n"
        )));
        let actual = complaints(&observations);
        assert_eq!(actual.len(), 1, "{actual:?}");
        let gibibytes = free / f64::from(1 << 30);
        let line = format!(
            "{status} disk: {gibibytes:.2} GiB of 93.13 GiB are free in the data directory"
        );
        assert_eq!(actual[0], line);
    }
}

// proves: DOC-certificates
#[test]
fn certificates_and_tokens_that_expire_are_named() {
    assert_complaints(&[
        (
            |f| f.user_credentials[0].expires = now() + SignedDuration::from_secs(3 * DAY + 60),
            "warning user-credentials: the client certificate in the kubeconfig expires at 2023-11-17T22:14:20Z, in 3 days",
        ),
        (
            |f| f.user_credentials[0].expires = now(),
            "error user-credentials: the client certificate in the kubeconfig expired at 2023-11-14T22:13:20Z",
        ),
        (
            |f| {
                let at = NOW + 29 * DAY;
                let name = "flotilla_certificate_expiration_timestamp_seconds";
                with_metrics(f, &format!("{name}{{certificate=\"signing\"}} {at}\n"));
            },
            "warning server-certificates: the certificate signing expires at 2023-12-13T22:13:20Z, in 29 days",
        ),
        (
            |f| {
                let name = "flotilla_cluster_credential_expiration_timestamp_seconds";
                let labels = "member_cluster=\"m1\",credential=\"ns/m1/caBundle\"";
                with_metrics(f, &format!("{name}{{{labels}}} {NOW}\n"));
            },
            "error member-credentials: cluster m1: ns/m1/caBundle expired at 2023-11-14T22:13:20Z",
        ),
        (
            |f| {
                let message = "token in the Secret ns/m1 expires soon";
                set_condition(
                    f,
                    json!({"type": "CredentialsValid", "status": "False", "message": message}),
                );
            },
            "warning member-credentials: cluster m1: token in the Secret ns/m1 expires soon",
        ),
        (
            |f| {
                set_condition(
                    f,
                    json!({"type": "AgentCertificateValid", "status": "False", "message": "it ends"}),
                )
            },
            "warning agent-certificates: agent of cluster m1: it ends",
        ),
    ]);
}

// proves: DOC-works
#[test]
fn works_that_are_not_applied_are_named() {
    let failed = |namespace: &str, name: &str, message: &str| FailedWork {
        namespace: namespace.into(),
        name: name.into(),
        message: message.into(),
    };
    let mut observations = healthy();
    observations.failed_works = Ok(vec![
        failed("karmada-es-m1", "a", "denied by quota"),
        failed("karmada-es-m2", "b", ""),
        failed("karmada-es-m1", "c", ""),
    ]);
    assert_eq!(
        complaints(&observations),
        [
            "warning works: cluster m1: 2 works are not applied, such as karmada-es-m1/a: denied by quota",
            "warning works: cluster m2: 1 work is not applied, such as karmada-es-m2/b",
        ]
    );
    observations.failed_works = Err("forbidden".into());
    assert_eq!(
        complaints(&observations),
        ["unknown works: the works cannot be listed: forbidden"]
    );
}

const NO_IMPERSONATOR: &str = "the secret \"kc/m1-impersonator\" of cluster \"m1\" does not exist";

// proves: DOC-members
#[test]
fn members_and_agents_that_fail_are_named() {
    assert_complaints(&[
        (
            |f| {
                set_condition(
                    f,
                    json!({"type": "Ready", "status": "False",
                    "reason": "ClusterNotReachable", "message": "cluster is not reachable"}),
                );
            },
            "error members: cluster m1 is not ready: cluster is not reachable (ClusterNotReachable)",
        ),
        (
            |f| first_member(f).cluster = json!({"spec": {"syncMode": "Push"}}),
            "warning members: cluster m1 has no condition Ready",
        ),
        (
            |f| first_member(f).answer = Err("no answer within 5 s".to_owned()),
            "error members: cluster m1 does not answer through the proxy: no answer within 5 s",
        ),
        (
            |f| first_member(f).answer = Ok(answer(503, "dial failed", 0)),
            "error members: cluster m1 answers 503 through the proxy: dial failed",
        ),
        (
            |f| first_member(f).answer = Ok(answer(503, NO_IMPERSONATOR, 0)),
            "error members: cluster m1 answers 503 through the proxy: the secret \"kc/m1-impersonator\" of cluster \"m1\" does not exist",
        ),
        (
            |f| first_member(f).answer = Ok(answer(401, "", 0)),
            "error members: cluster m1 refuses the credentials of the control plane",
        ),
        (
            |f| {
                set_lease(f, |lease| {
                    lease.renewed = Some(now() - SignedDuration::from_secs(41))
                })
            },
            "error agent-leases: the agent of m2 renewed its lease 41 s ago",
        ),
        (
            |f| f.leases.as_mut().unwrap().clear(),
            "warning agent-leases: the agent of m2 has no lease",
        ),
        (
            |f| with_metrics(f, "flotilla_agent_tunnels{member_cluster=\"m3\"} 0\n"),
            "warning tunnels: the agent of m3 has lost its tunnel",
        ),
    ]);
    let mut observations = healthy();
    for (body, remedy) in [
        (NO_IMPERSONATOR, "join the cluster again"),
        ("dial failed", "the network to it"),
    ] {
        first_member(&mut observations).answer = Ok(answer(503, body, 0));
        let results = run_checks(&observations);
        let result = results.iter().find(|result| result.message.contains(body));
        assert!(result.unwrap().remedy.ends_with(remedy), "{result:?}");
    }
}

// proves: DOC-controllers
#[test]
fn lags_queues_and_watches_are_named() {
    assert_complaints(&[
        (
            |f| {
                with_metrics(
                    f,
                    "flotilla_propagation_lag_seconds_count{stage=\"applied\"} 200\n\
                flotilla_propagation_lag_seconds_bucket{stage=\"applied\",le=\"10\"} 190\n\
                flotilla_propagation_lag_seconds_bucket{stage=\"applied\",le=\"60\"} 199\n\
                flotilla_propagation_lag_seconds_bucket{stage=\"applied\",le=\"+Inf\"} 200\n",
                )
            },
            "warning propagation: the stage applied took up to 60 s for one change in a hundred",
        ),
        (
            |f| with_metrics(f, "workqueue_depth{name=\"detector\"} 1200\n"),
            "warning queues: 1200 items wait in the queue detector",
        ),
        (
            |f| {
                with_metrics(
                    f,
                    "flotilla_workqueue_oldest_item_age_seconds{name=\"work\"} 61\n",
                )
            },
            "warning queues: the oldest of 2 items in the queue work has waited for 61 s",
        ),
        (
            |f| {
                with_metrics(
                    f,
                    "flotilla_workqueue_oldest_item_age_seconds{name=\"work\"} 700\n",
                )
            },
            "error queues: the oldest of 2 items in the queue work has waited for 700 s",
        ),
        (
            |f| {
                with_metrics(
                    f,
                    "apiserver_terminated_watchers_total{resource=\"pods\"} 400\n",
                )
            },
            "warning watches: 200 watches of pods an hour were ended because their clients fell behind",
        ),
    ]);
}

// proves: DOC-versions
#[test]
fn versions_that_do_not_fit_are_named() {
    assert_complaints(&[
        (
            |f| {
                f.server_version = Ok("v1.36.0+flotilla.0.2.0".to_owned());
                set_lease(f, |lease| lease.agent_version = None);
            },
            "warning versions: this command is Flotilla 0.1.0, the server 0.2.0",
        ),
        (
            |f| set_lease(f, |lease| lease.agent_version = Some("0.2.0".to_owned())),
            "warning versions: the agent of m2 is Flotilla 0.2.0, the server 0.1.0",
        ),
        (
            |f| first_member(f).cluster["status"]["kubernetesVersion"] = "v1.19.3".into(),
            "error versions: cluster m1 runs Kubernetes v1.19.3; the oldest tested version is v1.20",
        ),
        (
            |f| first_member(f).cluster["status"]["kubernetesVersion"] = "v1.37.0-rc.1".into(),
            "warning versions: cluster m1 runs Kubernetes v1.37.0-rc.1; the newest tested version is v1.36",
        ),
        (
            |f| f.server_version = Ok("v1.31.0".to_owned()),
            "unknown versions: https://plane is a host that runs v1.31.0; Flotilla's version is not known",
        ),
    ]);
}

// proves: DOC-unreachable
#[test]
fn a_server_that_does_not_answer_is_one_line() {
    let mut observations = healthy();
    observations.readiness = Err("refused".to_owned());
    observations.metrics = Err("refused".to_owned());
    observations.members = Err("refused".to_owned());
    let line = "error api-server: https://plane does not answer: refused";
    assert_eq!(complaints(&observations), [line]);
}

#[test]
fn what_cannot_be_read_is_unknown_and_no_error() {
    let mut observations = healthy();
    observations.metrics = Err("/metrics answers 403".to_owned());
    observations.members = Err("forbidden".to_owned());
    observations.leases = Err("forbidden".to_owned());
    let actual = complaints(&observations);
    assert_eq!(actual.len(), 11, "{actual:?}");
    assert!(
        actual.iter().all(|line| line.starts_with("unknown ")),
        "{actual:?}"
    );
    let report = DoctorReport::new(String::new(), run_checks(&observations));
    assert_eq!((report.errors, report.warnings), (0, 0));
}

#[test]
fn many_results_of_a_check_are_cut_but_in_the_wide_format() {
    let mut observations = healthy();
    let dead = (0..30).map(|n| ObservedMember {
        answer: Err("dead".to_owned()),
        ..member(&format!("m{n}"), "Push")
    });
    observations.members = Ok(dead.collect());
    let report = DoctorReport::new("https://plane".to_owned(), run_checks(&observations));
    let count = |text: &str| {
        text.lines()
            .filter(|line| line.starts_with("error "))
            .count()
    };
    let short = report.lines(false);
    assert_eq!(count(&short), 21, "{short}");
    assert!(short.contains("there are more of these"), "{short}");
    assert!(
        short.ends_with("30 errors and 0 warnings at https://plane"),
        "{short}"
    );
    assert_eq!(count(&report.lines(true)), 30);
}

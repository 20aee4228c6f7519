//! Checks before a join whether the member and the control plane can be used. Nothing is
//! written: the clocks are compared by objects that are created in dry runs.

use std::time::Duration;

use client::{Api, Error, ListOptions, ResourcePath, WriteOptions, ignore_not_found};
use flotilla_runtime::{RequiredRight, missing_rights};
use jiff::Timestamp;
use karmada_api::resources::CLUSTERS;
use karmada_api::well_known_keys::{CONTROL_PLANE_ID, SYSTEM};
use machinery::Gvr;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::join_spec::JoinSpec;
use super::objects::{CLUSTER_ROLES, cluster_of_role};
use super::preflight_failure::{
    PreflightCheck, PreflightFailure, clock_failure, connection_failure, failure,
    response_time_failure, server_name_failure, version_failure,
};
use crate::NAMESPACES;

static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const MEMBER_RIGHTS_REMEDY: &str =
    "use the kubeconfig of a cluster administrator, such as a user bound to cluster-admin";
/// How long the member may take to become ready, and how often it is asked.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
const READY_INTERVAL: Duration = Duration::from_millis(200);
/// As long as the controllers wait for a health probe.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The results of the checks before a join.
#[derive(Debug, Default)]
pub struct PreflightReport {
    pub failures: Vec<PreflightFailure>,
    /// Remarks that are worth knowing and forbid nothing.
    pub warnings: Vec<String>,
}

/// Runs all checks of a join. Those of a member that does not answer are left out.
pub async fn join_preflight(
    control: &dyn Api,
    member: &dyn Api,
    spec: &JoinSpec,
) -> PreflightReport {
    let mut report = PreflightReport::default();
    let failures = &mut report.failures;
    failures.extend(spec.tls_server_name.as_deref().map(server_name_failure));
    let began = Instant::now();
    let version = match with_timeout(member.get_raw("/version")).await {
        Ok(version) => version,
        Err(error) => {
            failures.push(connection_failure(&error));
            return report;
        }
    };
    let first = began.elapsed();
    let version: Value = machinery::json::from_slice(&version).unwrap_or_default();
    let git_version = version["gitVersion"].as_str().unwrap_or_default();
    failures.extend(version_failure(git_version));
    let required = member_rights(&spec.namespace);
    let required_in_control_plane = control_plane_rights(&spec.namespace);
    let (ready, rights, control_rights, clocks, managers) = tokio::join!(
        check_readiness(member),
        missing_rights(member, &required),
        missing_rights(control, &required_in_control_plane),
        compare_clocks(member, control),
        find_other_managers(control, member, &spec.name),
    );
    let (not_ready, second) = ready;
    failures.extend(not_ready);
    failures.extend(response_time_failure(first.max(second)));
    failures.extend(rights_failure("the member", &rights, MEMBER_RIGHTS_REMEDY));
    failures.extend(rights_failure(
        "the control plane",
        &control_rights,
        "use the kubeconfig of an administrator of the control plane, or --karmada-as",
    ));
    match clocks {
        Ok(skewed) => failures.extend(skewed),
        Err(error) => report
            .warnings
            .push(format!("the clocks were not compared: {error}")),
    }
    report.failures.extend(managers.failures);
    report.warnings.extend(managers.warnings);
    report
}

/// The checks of a registration, which reaches the control plane later: whether the member
/// answers, its version, and our rights to install an agent.
pub(crate) async fn agent_preflight(member: &dyn Api, namespace: &str) -> Vec<PreflightFailure> {
    let version = match with_timeout(member.get_raw("/version")).await {
        Ok(version) => version,
        Err(error) => return vec![connection_failure(&error)],
    };
    let version: Value = machinery::json::from_slice(&version).unwrap_or_default();
    let git_version = version["gitVersion"].as_str().unwrap_or_default();
    let mut required = member_rights(namespace);
    required.push(RequiredRight::new(
        "create",
        "apps",
        "deployments",
        namespace,
    ));
    let missing = missing_rights(member, &required).await;
    let rights = rights_failure("the member", &missing, MEMBER_RIGHTS_REMEDY);
    version_failure(git_version)
        .into_iter()
        .chain(rights)
        .collect()
}

/// The failure of a member that does not become ready, and the longest time that it took to
/// answer.
async fn check_readiness(member: &dyn Api) -> (Option<PreflightFailure>, Duration) {
    let deadline = Instant::now() + READY_TIMEOUT;
    let mut slowest = Duration::ZERO;
    loop {
        let began = Instant::now();
        let answer = with_timeout(member.get_raw("/readyz")).await;
        slowest = slowest.max(began.elapsed());
        let last_failure = match answer {
            Err(Error::Status(status)) if status.code >= 500 => failure(
                PreflightCheck::Ready,
                format!("the API server of the member is not ready: {status}"),
                "wait until `kubectl get --raw /readyz` answers ok",
            ),
            Err(error @ Error::Transport { .. }) => connection_failure(&error),
            // Old servers have no such path, and not everybody may read it.
            _ => return (None, slowest),
        };
        // A server that has just started is not ready for a moment.
        if Instant::now() + READY_INTERVAL > deadline {
            return (Some(last_failure), slowest);
        }
        tokio::time::sleep(READY_INTERVAL).await;
    }
}

/// Creating the ClusterRole with all rights needs these rights, or `escalate`.
fn member_rights(namespace: &str) -> Vec<RequiredRight<'_>> {
    vec![
        RequiredRight::new("create", "", "namespaces", ""),
        RequiredRight::new("create", "", "serviceaccounts", namespace),
        RequiredRight::new("create", "", "secrets", namespace),
        RequiredRight::new("get", "", "secrets", namespace),
        RequiredRight::new("create", RBAC_GROUP, "clusterroles", ""),
        RequiredRight::new("escalate", RBAC_GROUP, "clusterroles", ""),
        RequiredRight::new("create", RBAC_GROUP, "clusterrolebindings", ""),
        RequiredRight::new("bind", RBAC_GROUP, "clusterroles", ""),
    ]
}

fn control_plane_rights(namespace: &str) -> Vec<RequiredRight<'_>> {
    vec![
        RequiredRight::new("create", "cluster.karmada.io", "clusters", ""),
        RequiredRight::new("create", "", "secrets", namespace),
        RequiredRight::new("patch", "", "secrets", namespace),
    ]
}

fn rights_failure(
    whose: &str,
    missing: &[&RequiredRight<'_>],
    remedy: &str,
) -> Option<PreflightFailure> {
    (!missing.is_empty()).then(|| {
        let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
        let missing = missing.join(", ");
        failure(
            PreflightCheck::Rights,
            format!("our user lacks rights in {whose}: {missing}"),
            remedy,
        )
    })
}

async fn compare_clocks(
    member: &dyn Api,
    control: &dyn Api,
) -> Result<Option<PreflightFailure>, Error> {
    let (member, control) = tokio::join!(server_time(member), server_time(control));
    Ok(clock_failure(member?, control?))
}

/// The time of a server: when an object would have been created.
async fn server_time(api: &dyn Api) -> Result<Timestamp, Error> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"generateName": "karmada-preflight-"}});
    let at = ResourcePath::collection(&NAMESPACES, "");
    let options = WriteOptions {
        dry_run: true,
        ..WriteOptions::default()
    };
    let created = with_timeout(api.create(at, body.into(), &options)).await?;
    let time = created.creation_timestamp();
    time.ok_or_else(|| Error::Protocol("an object without creationTimestamp".into()))
}

/// Finds other control planes that manage the member which is to join as `cluster`: by what they
/// create there.
pub async fn find_other_managers(
    control: &dyn Api,
    member: &dyn Api,
    cluster: &str,
) -> PreflightReport {
    let mut report = PreflightReport::default();
    let agent = ResourcePath::object(&DEPLOYMENTS, "karmada-system", "karmada-agent");
    let labeled = ListOptions {
        label_selector: format!("{SYSTEM}=true"),
        ..ListOptions::default()
    };
    let roles = ResourcePath::collection(&CLUSTER_ROLES, "");
    let (agent, roles, own_id) = tokio::join!(
        with_timeout(member.get(agent)),
        with_timeout(member.list(roles, &labeled)),
        control_plane_id(control),
    );
    // Whoever may not read these lacks more rights, which another check names.
    if let Ok(Some(_)) = ignore_not_found(agent) {
        report.failures.push(failure(
            PreflightCheck::AlreadyManaged,
            "an agent in the member (Deployment karmada-system/karmada-agent) connects it to a control plane already",
            "run `flotilla unregister` against that control plane first",
        ));
    }
    for role in roles.map(|list| list.items).unwrap_or_default() {
        let Some(name) = cluster_of_role(role.name()) else {
            continue;
        };
        match role.annotation(CONTROL_PLANE_ID) {
            Some(id) if own_id.as_deref().is_none_or(|own| own == id) => {}
            Some(id) => report.failures.push(failure(
                PreflightCheck::AlreadyManaged,
                format!("the control plane {id} has joined the member as {name:?}"),
                format!("unjoin it there first, with --cluster-kubeconfig, or delete the ClusterRole {:?} of the member if that control plane is gone", role.name()),
            )),
            None if name == cluster => report.warnings.push(format!(
                "the member was joined as {name:?} before; its ClusterRole {:?} is used again",
                role.name()
            )),
            None if is_registered(control, name).await => {}
            None => report.failures.push(failure(
                PreflightCheck::AlreadyManaged,
                format!("a control plane has joined the member as {name:?}"),
                format!("unjoin it there first, with --cluster-kubeconfig, or delete the ClusterRole {:?} of the member if it was left behind", role.name()),
            )),
        }
    }
    report
}

/// Whether our control plane has a cluster of this name; joining the same member again is
/// refused with a reason of its own.
async fn is_registered(control: &dyn Api, name: &str) -> bool {
    let at = ResourcePath::object(&CLUSTERS, "", name);
    with_timeout(control.get(at)).await.is_ok()
}

/// The identity of a control plane: the UID of its namespace `kube-system`.
pub(crate) async fn control_plane_id(control: &dyn Api) -> Option<String> {
    let at = ResourcePath::object(&NAMESPACES, "", "kube-system");
    let system = with_timeout(control.get(at)).await.ok()?;
    Some(system.uid().to_owned()).filter(|uid| !uid.is_empty())
}

async fn with_timeout<T>(call: impl Future<Output = client::Result<T>>) -> client::Result<T> {
    let late = |_| Error::Transport {
        host: "member".into(),
        message: format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()),
    };
    let answered = tokio::time::timeout(REQUEST_TIMEOUT, call).await;
    answered.map_err(late).flatten()
}

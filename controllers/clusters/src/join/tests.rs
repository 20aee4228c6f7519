//! Tests of joining and unjoining, with a control plane and a member in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client_fake::FakeApi;
use karmada_api::resources::{CLUSTERS, WORKS};
use machinery::{Gvr, Status};
use serde_json::{Value, json};

use super::objects::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, SECRETS, SERVICE_ACCOUNTS};
use super::*;
use crate::NAMESPACES;

struct JoinFixture {
    host: Arc<FakeApi>,
    member: Arc<FakeApi>,
}

fn spec(name: &str) -> JoinSpec {
    JoinSpec {
        name: name.into(),
        endpoint: "https://member:6443".into(),
        region: Some("r".into()),
        zones: vec!["z".into()],
        ..JoinSpec::default()
    }
}

impl JoinFixture {
    fn new() -> Self {
        let (host, member) = (FakeApi::new(), FakeApi::new());
        member.seed(
            &NAMESPACES,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "id-1"}}),
        );
        Self { host, member }
    }

    /// Joins while a token controller runs in the member.
    async fn join(&self, spec: &JoinSpec) -> Result<JoinedCluster, JoinError> {
        let tokens = async {
            loop {
                for mut secret in self.member.list_objects(&SECRETS) {
                    if secret["data"].is_null() {
                        let name = secret["metadata"]["name"].as_str().unwrap();
                        let token = STANDARD.encode(format!("token of {name}"));
                        secret["data"] = json!({"token": token, "ca.crt": STANDARD.encode("ca")});
                        self.member.seed(&SECRETS, secret);
                    }
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            done = join(&*self.host, &*self.member, spec, &|_| {}) => done,
            () = tokens => unreachable!(),
        }
    }

    fn data(&self, name: &str) -> Vec<(String, String)> {
        let secret = self
            .host
            .get_object(&SECRETS, "karmada-cluster", name)
            .unwrap();
        let data = secret["data"].as_object().unwrap().clone();
        let text = |v: &Value| String::from_utf8(STANDARD.decode(v.as_str().unwrap()).unwrap());
        data.iter()
            .map(|(k, v)| (k.clone(), text(v).unwrap()))
            .collect()
    }
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn names(api: &FakeApi, resource: &Gvr) -> Vec<String> {
    let name = |o: &Value| o["metadata"]["name"].as_str().unwrap().to_owned();
    api.list_objects(resource).iter().map(name).collect()
}

// proves: NAM-account, NAM-impersonation, LAB-system
#[tokio::test(start_paused = true)]
async fn join_creates_objects_on_both_sides() {
    fn may_be_spawned<F: Send>(work: F) -> F {
        work
    }
    let sides = JoinFixture::new();
    let spec = spec("m1");
    let joined = may_be_spawned(sides.join(&spec)).await.unwrap();
    assert_eq!(joined.id, "id-1");
    assert_eq!(
        names(&sides.member, &SERVICE_ACCOUNTS),
        ["karmada-impersonator", "karmada-m1"]
    );
    let role = "karmada-controller-manager:karmada-m1";
    assert_eq!(names(&sides.member, &CLUSTER_ROLES), [role]);
    assert_eq!(names(&sides.member, &CLUSTER_ROLE_BINDINGS), [role]);
    assert_eq!(
        sides.data("m1"),
        pairs(&[("caBundle", "ca"), ("token", "token of karmada-m1")])
    );
    assert_eq!(
        sides.data("m1-impersonator"),
        pairs(&[("token", "token of karmada-impersonator")])
    );
    let cluster = sides.host.get_object(&CLUSTERS, "", "m1").unwrap();
    let reference = |name: &str| json!({"namespace": "karmada-cluster", "name": name});
    assert_eq!(
        cluster["spec"],
        json!({"syncMode": "Push", "id": "id-1", "apiEndpoint": "https://member:6443", "region": "r", "zones": ["z"],
               "secretRef": reference("m1"), "impersonatorSecretRef": reference("m1-impersonator")})
    );
    for secret in sides.host.list_objects(&SECRETS) {
        let owner = &secret["metadata"]["ownerReferences"][0];
        assert_eq!(owner["uid"], cluster["metadata"]["uid"]);
        assert_eq!(
            secret["metadata"]["labels"],
            json!({"karmada.io/system": "true"})
        );
    }
}

#[tokio::test(start_paused = true)]
async fn registered_clusters_are_refused() {
    let sides = JoinFixture::new();
    sides.join(&spec("m1")).await.unwrap();
    let again = sides.join(&spec("m1")).await.unwrap_err();
    assert_eq!(
        again.to_string(),
        "the cluster name \"m1\" has been registered"
    );
    let other = sides.join(&spec("m2")).await.unwrap_err();
    assert_eq!(
        other.to_string(),
        "the cluster ID id-1 has been registered as \"m1\""
    );
    let another = JoinFixture {
        host: Arc::clone(&sides.host),
        ..JoinFixture::new()
    };
    another.member.seed(&NAMESPACES, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "id-2"}}));
    let error = another.join(&spec("m1")).await.unwrap_err();
    assert!(matches!(error, JoinError::NameTaken(_)));
    for bad in ["", "Upper", "a.b", &"x".repeat(49)] {
        let rejection = another.join(&spec(bad)).await.unwrap_err();
        assert!(matches!(rejection, JoinError::InvalidName(..)), "{bad:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_join_is_finished_by_the_next() {
    // Interrupts the join once at each of its writes on either side.
    for cut in 1.. {
        let sides = JoinFixture::new();
        let left = Arc::new(std::sync::atomic::AtomicUsize::new(cut));
        for side in [&sides.host, &sides.member] {
            let left = Arc::clone(&left);
            side.on_call(move |call| {
                let writes = ["create", "patch"].contains(&call.verb);
                let cut = writes && left.fetch_sub(1, Ordering::SeqCst) == 1;
                cut.then(|| client::Error::Protocol("cut".into()))
            });
        }
        let first = sides.join(&spec("m1")).await;
        if first.is_ok() {
            assert!(cut > 10, "each write was interrupted once");
            break;
        }
        sides.join(&spec("m1")).await.unwrap();
        assert_eq!(sides.host.list_objects(&SECRETS).len(), 2);
        for secret in sides.host.list_objects(&SECRETS) {
            assert!(secret["metadata"]["ownerReferences"][0]["uid"].is_string());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_tokens_times_out() {
    let sides = JoinFixture::new();
    let error = join(&*sides.host, &*sides.member, &spec("m1"), &|_| {})
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "no token for the service account \"karmada-impersonator\" within 30 s"
    );
    assert_eq!(names(&sides.host, &CLUSTERS), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_nothing() {
    let sides = JoinFixture::new();
    let dry = JoinSpec {
        dry_run: true,
        ..spec("m1")
    };
    assert!(sides.join(&dry).await.unwrap().cluster.is_none());
    assert_eq!(sides.host.writes(), []);
    assert_eq!(sides.member.writes(), []);
}

fn unjoin_spec(force: bool) -> UnjoinSpec {
    UnjoinSpec {
        name: "m1".into(),
        force,
        ..UnjoinSpec::default()
    }
}

#[tokio::test(start_paused = true)]
async fn unjoin_deletes_objects_on_both_sides() {
    let sides = JoinFixture::new();
    sides.join(&spec("m1")).await.unwrap();
    unjoin(
        &*sides.host,
        Some(&*sides.member),
        &unjoin_spec(false),
        &|_| {},
    )
    .await
    .unwrap();
    assert_eq!(names(&sides.host, &CLUSTERS), [""; 0]);
    assert_eq!(names(&sides.member, &CLUSTER_ROLES), [""; 0]);
    assert_eq!(names(&sides.member, &CLUSTER_ROLE_BINDINGS), [""; 0]);
    assert_eq!(
        names(&sides.member, &SERVICE_ACCOUNTS),
        ["karmada-impersonator"]
    );
    assert_eq!(names(&sides.member, &NAMESPACES), ["kube-system"]);
    let again = unjoin(&*sides.host, None, &unjoin_spec(false), &|_| {}).await;
    assert!(matches!(again, Err(UnjoinError::NotFound(_))));
}

#[tokio::test(start_paused = true)]
async fn pull_clusters_are_refused() {
    let sides = JoinFixture::new();
    sides
        .host
        .seed(&CLUSTERS, crate::fixture::cluster("m1", "Pull"));
    let rejection = unjoin(&*sides.host, None, &unjoin_spec(true), &|_| {}).await;
    assert!(matches!(rejection, Err(UnjoinError::PullMode(_))));
    assert_eq!(sides.host.writes(), []);
}

#[tokio::test(start_paused = true)]
async fn finalizers_are_removed_only_with_force() {
    let sides = JoinFixture::new();
    sides.join(&spec("m1")).await.unwrap();
    let seed_with_finalizer = |resource: &Gvr, namespace: &str, name: &str, finalizer: &str| {
        let mut object = sides.host.get_object(resource, namespace, name).unwrap_or_else(
            || json!({"apiVersion": resource.api_version(), "kind": "X", "metadata": {"namespace": namespace, "name": name}}),
        );
        object["metadata"]["finalizers"] = json!([finalizer]);
        sides.host.seed(resource, object);
    };
    seed_with_finalizer(&CLUSTERS, "", "m1", "karmada.io/cluster-controller");
    seed_with_finalizer(
        &WORKS,
        "karmada-es-m1",
        "w",
        "karmada.io/execution-controller",
    );
    sides.host.seed(
        &NAMESPACES,
        json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "karmada-es-m1"}, "spec": {"finalizers": ["kubernetes"]}}),
    );
    let late = unjoin(&*sides.host, None, &unjoin_spec(false), &|_| {}).await;
    assert_eq!(
        late.unwrap_err().to_string(),
        "cluster \"m1\" was not deleted within 60 s: 1 works in karmada-es-m1 whose objects the member still has (w); if the member is gone for good, use --force"
    );
    // A controller writes the namespace just then.
    let is_first = AtomicBool::new(true);
    sides.host.on_call(move |call| {
        let is_write = call.verb == "update" && call.resource == Some(&NAMESPACES);
        let is_outdated = is_write && is_first.swap(false, Ordering::Relaxed);
        is_outdated.then(|| Status::conflict(&NAMESPACES, "karmada-es-m1", "modified").into())
    });
    let report = unjoin(&*sides.host, None, &unjoin_spec(true), &|_| {})
        .await
        .unwrap();
    for resource in [&CLUSTERS, &WORKS] {
        assert_eq!(names(&sides.host, resource), [""; 0]);
    }
    assert_eq!(report.abandoned.unwrap().works.count, 1);
    assert_eq!(names(&sides.host, &NAMESPACES), ["karmada-cluster"]);
}

// proves: UNJ-account
#[tokio::test(start_paused = true)]
async fn an_unjoin_accounts_for_everything() {
    let sides = JoinFixture::new();
    sides.join(&spec("m1")).await.unwrap();
    let dry = UnjoinSpec {
        dry_run: true,
        ..unjoin_spec(false)
    };
    sides.host.clear_writes();
    let member: Option<&dyn client::Api> = Some(&*sides.member);
    let lines = unjoin(&*sides.host, member, &dry, &|_| {}).await.unwrap();
    assert!(lines.lines()[0].contains("would be deleted"));
    assert_eq!(sides.host.writes(), []);
    let done = unjoin(&*sides.host, member, &unjoin_spec(false), &|_| {}).await;
    let role = "karmada-controller-manager:karmada-m1";
    assert_eq!(
        done.unwrap().lines(),
        [
            "works: 0 deleted with their 0 objects in the member".to_owned(),
            "execution space: karmada-es-m1 deleted".to_owned(),
            "credentials: karmada-cluster/m1, karmada-cluster/m1-impersonator deleted".to_owned(),
            format!(
                "member: ClusterRoleBinding {role}, ClusterRole {role}, ServiceAccount karmada-cluster/karmada-m1, Namespace karmada-cluster deleted"
            ),
        ]
    );
    assert_eq!(names(&sides.host, &SECRETS), [""; 0]);
}

// proves: UNJ-ends
#[tokio::test(start_paused = true)]
async fn a_member_that_does_not_answer_is_left_by_force() {
    let sides = JoinFixture::new();
    sides.join(&spec("m1")).await.unwrap();
    let hanging = crate::fixture::HangingApi;
    let late = unjoin(&*sides.host, Some(&hanging), &unjoin_spec(false), &|_| {}).await;
    assert!(matches!(late, Err(UnjoinError::MemberTimeout(_))));
    sides.join(&spec("m1")).await.unwrap();
    let report = unjoin(&*sides.host, Some(&hanging), &unjoin_spec(true), &|_| {}).await;
    assert_eq!(report.unwrap().left_in_member.len(), 4);
}

// proves: JOI-identity
#[tokio::test(start_paused = true)]
async fn a_member_is_known_by_its_property_and_by_its_namespace() {
    let sides = JoinFixture::new();
    sides.join(&spec("before")).await.unwrap();
    let property = Gvr::from_static("about.k8s.io", "v1alpha1", "clusterproperties");
    sides.member.seed(
        &property,
        json!({"apiVersion": "about.k8s.io/v1alpha1", "kind": "ClusterProperty",
            "metadata": {"name": "cluster.clusterset.k8s.io"}, "spec": {"value": "edge-1"}}),
    );
    let again = sides.join(&spec("after")).await.unwrap_err();
    assert_eq!(
        again.to_string(),
        "the cluster ID id-1 has been registered as \"before\""
    );
    sides.host.remove(&CLUSTERS, "", "before");
    let joined = sides.join(&spec("after")).await.unwrap();
    assert_eq!(joined.id, "edge-1");
    let third = sides.join(&spec("third")).await.unwrap_err();
    assert!(third.to_string().contains("edge-1"), "{third}");
}

fn preflight_sides() -> JoinFixture {
    let sides = JoinFixture::new();
    sides.host.seed(
        &NAMESPACES,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "plane-1"}}),
    );
    let reviews = Gvr::from_static("authorization.k8s.io", "v1", "selfsubjectaccessreviews");
    for side in [&sides.host, &sides.member] {
        side.respond_to_create(&reviews, |mut review| {
            review["status"] = json!({"allowed": true});
            review
        });
    }
    sides
        .member
        .set_raw_body("/version", r#"{"gitVersion":"v1.30.1"}"#);
    sides.member.set_raw_body("/readyz", "ok");
    sides
}

async fn preflight_lines(sides: &JoinFixture) -> Vec<String> {
    let report = join_preflight(&*sides.host, &*sides.member, &spec("m1")).await;
    let failures = report.failures.iter().map(ToString::to_string);
    failures.chain(report.warnings).collect()
}

// proves: JOI-preflight
#[tokio::test(start_paused = true)]
async fn preflight_finds_what_is_wrong_and_writes_nothing() {
    let sides = preflight_sides();
    assert_eq!(preflight_lines(&sides).await, [""; 0]);

    sides
        .member
        .set_raw_body("/version", r#"{"gitVersion":"v1.18.0"}"#);
    sides
        .member
        .set_now("2026-01-01T02:00:00Z".parse().unwrap());
    let reviews = Gvr::from_static("authorization.k8s.io", "v1", "selfsubjectaccessreviews");
    sides.member.respond_to_create(&reviews, |mut review| {
        let access = &review["spec"]["resourceAttributes"];
        let allowed = access["resource"] == "namespaces" || access["resource"] == "secrets";
        review["status"] = json!({"allowed": allowed});
        review
    });
    let lines = preflight_lines(&sides).await;
    let expected = [
        "[ERROR Version]: the member runs Kubernetes v1.18.0; the oldest tested version is v1.20; upgrade the member",
        "[ERROR Rights]: our user lacks rights in the member: create serviceaccounts in karmada-cluster, create clusterroles.rbac.authorization.k8s.io, escalate clusterroles.rbac.authorization.k8s.io, create clusterrolebindings.rbac.authorization.k8s.io, bind clusterroles.rbac.authorization.k8s.io; use the kubeconfig of a cluster administrator, such as a user bound to cluster-admin",
        "[ERROR ClockSkew]: the clock of the member is 7200 s ahead of that of the control plane; synchronize both with NTP: tokens, certificates and leases depend on the time",
    ];
    assert_eq!(lines, expected);
    assert_eq!(sides.host.writes(), []);
    assert_eq!(sides.member.writes(), []);
}

// proves: JOI-preflight
#[tokio::test(start_paused = true)]
async fn a_member_of_another_control_plane_is_found() {
    let sides = preflight_sides();
    sides.join(&spec("m1")).await.unwrap();
    assert_eq!(preflight_lines(&sides).await, [""; 0], "our own");
    let role = "karmada-controller-manager:karmada-m1";
    let mut claimed = sides.member.get_object(&CLUSTER_ROLES, "", role).unwrap();
    let annotations = &mut claimed["metadata"]["annotations"];
    assert_eq!(annotations["flotilla.io/control-plane-id"], "plane-1");
    annotations["flotilla.io/control-plane-id"] = "plane-2".into();
    sides.member.seed(&CLUSTER_ROLES, claimed.clone());
    let deployments = Gvr::from_static("apps", "v1", "deployments");
    sides.member.seed(
        &deployments,
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": "karmada-system", "name": "karmada-agent"}}),
    );
    let lines = preflight_lines(&sides).await;
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("Deployment karmada-system/karmada-agent"));
    assert!(lines[1].contains("the control plane plane-2 has joined the member as \"m1\""));

    // Without the mark of a control plane, the name alone tells.
    sides
        .member
        .remove(&deployments, "karmada-system", "karmada-agent");
    claimed["metadata"]["annotations"] = json!({});
    sides.member.seed(&CLUSTER_ROLES, claimed.clone());
    let lines = preflight_lines(&sides).await;
    assert!(
        lines[0].contains("was joined as \"m1\" before"),
        "{lines:?}"
    );
    sides.member.remove(&CLUSTER_ROLES, "", role);
    claimed["metadata"]["name"] = "karmada-controller-manager:karmada-other".into();
    sides.member.seed(&CLUSTER_ROLES, claimed);
    let lines = preflight_lines(&sides).await;
    assert!(lines[0].contains("a control plane has joined the member as \"other\""));
}

// proves: JOI-preflight
#[tokio::test(start_paused = true)]
async fn a_member_that_hangs_is_unreachable() {
    let sides = preflight_sides();
    let hanging = crate::fixture::HangingApi;
    let report = join_preflight(&*sides.host, &hanging, &spec("m1")).await;
    let [failure] = report.failures.as_slice() else {
        panic!("{report:?}");
    };
    assert_eq!(failure.check, PreflightCheck::Reachable);
    assert!(
        failure.reason.ends_with("no answer within 10 s"),
        "{failure}"
    );
}

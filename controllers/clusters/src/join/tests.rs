//! Tests of joining and unjoining, with a control plane and a member in memory.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::fake::FakeApi;
use machinery::Gvr;
use openapi::karmada::resources::{CLUSTERS, WORKS};
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
    let taken = another.join(&spec("m1")).await.unwrap_err();
    assert!(matches!(taken, JoinError::NameTaken(_)));
    for bad in ["", "Upper", "a.b", &"x".repeat(49)] {
        let refused = another.join(&spec(bad)).await.unwrap_err();
        assert!(matches!(refused, JoinError::InvalidName(..)), "{bad:?}");
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
                let cut = writes && left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) == 1;
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
    let refused = unjoin(&*sides.host, None, &unjoin_spec(true), &|_| {}).await;
    assert!(matches!(refused, Err(UnjoinError::PullMode(_))));
    assert_eq!(sides.host.writes(), []);
}

#[tokio::test(start_paused = true)]
async fn finalizers_are_removed_only_with_force() {
    let sides = JoinFixture::new();
    sides.join(&spec("m1")).await.unwrap();
    let held = |resource: &Gvr, namespace: &str, name: &str, finalizer: &str| {
        let mut object = sides.host.get_object(resource, namespace, name).unwrap_or_else(
            || json!({"apiVersion": resource.api_version(), "kind": "X", "metadata": {"namespace": namespace, "name": name}}),
        );
        object["metadata"]["finalizers"] = json!([finalizer]);
        sides.host.seed(resource, object);
    };
    held(&CLUSTERS, "", "m1", "karmada.io/cluster-controller");
    held(
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
        "cluster \"m1\" was not deleted within 60 s"
    );
    unjoin(&*sides.host, None, &unjoin_spec(true), &|_| {})
        .await
        .unwrap();
    for resource in [&CLUSTERS, &WORKS] {
        assert_eq!(names(&sides.host, resource), [""; 0]);
    }
    assert_eq!(names(&sides.host, &NAMESPACES), ["karmada-cluster"]);
}

//! Tests of connecting members by their Clusters and Secrets.

use std::time::Duration;

use client::ShutdownToken;
use client_fake::FakeApi;
use serde_json::{Value, json};

use super::*;

static MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");

fn cluster(name: &str, mode: &str, server: &str) -> Value {
    json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
           "spec": {"syncMode": mode, "apiEndpoint": server, "secretRef": {"namespace": "kc", "name": name}}})
}

fn secret(name: &str, token: &str) -> Value {
    use base64::Engine;
    let encode = |t: &str| base64::engine::general_purpose::STANDARD.encode(t);
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "kc"},
           "data": {"token": encode(token), "caBundle": encode("ca")}})
}

fn map(name: &str, managed: bool) -> Value {
    let labels = if managed {
        json!({"karmada.io/managed": "true"})
    } else {
        json!({})
    };
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns", "labels": labels}})
}

type EventLog = Arc<Mutex<Vec<String>>>;

struct MembersFixture {
    host: Arc<FakeApi>,
    member: Arc<FakeApi>,
    members: MemberClusterManager,
    tasks: TaskGroup,
    log: EventLog,
}

impl MembersFixture {
    fn new() -> Self {
        let (host, member) = (FakeApi::new(), FakeApi::new());
        let tasks = TaskGroup::new(ShutdownToken::new());
        let (api, log) = (Arc::clone(&member), EventLog::default());
        let dialled = Arc::clone(&log);
        let connect = move |endpoint: &MemberEndpoint, _: &TaskGroup| {
            dialled
                .lock()
                .push(format!("dial {} {}", endpoint.server, endpoint.token));
            Ok(Arc::clone(&api) as Arc<dyn Api>)
        };
        let informers = InformerFactory::new(&tasks);
        let members =
            MemberClusterManager::start(host.clone(), &informers, Arc::new(connect), &tasks);
        let (objects, connects) = (Arc::clone(&log), Arc::clone(&log));
        members.on_managed_object(move |cluster, _, change| {
            objects.lock().push(format!("{cluster} {}", change.key()));
        });
        members.on_connection_change(move |name, up| connects.lock().push(format!("{name} {up}")));
        Self {
            host,
            member,
            members,
            tasks,
            log,
        }
    }

    async fn expect_events(&self, expected: &[&str]) {
        let equal = async {
            while *self.log.lock() != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(120), equal).await;
        assert!(in_time.is_ok(), "{:?} is not {expected:?}", self.log.lock());
        self.log.lock().clear();
    }

    async fn expect_error(&self, cluster: &str, expected: &str) {
        let reconciled = async {
            while self.members.get(cluster).err().as_deref() != Some(expected) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(120), reconciled).await;
        assert!(in_time.is_ok(), "{:?}", self.members.get(cluster).err());
    }
}

// proves: CRT-watch
#[tokio::test(start_paused = true)]
async fn a_member_follows_its_cluster_and_secret() {
    let s = MembersFixture::new();
    s.host.seed(&CLUSTERS, cluster("m", "Push", "https://one"));
    s.expect_error("m", "the secret \"kc/m\" of cluster \"m\" does not exist")
        .await;
    s.host.seed(&SECRETS, secret("m", "t1"));
    s.expect_events(&["dial https://one t1", "m true"]).await;
    s.member.seed(&MAPS, map("a", true));
    s.member.seed(&MAPS, map("unmanaged", false));
    let first = s.members.get("m").unwrap();
    first.managed_informer(&MAPS);
    s.expect_events(&["m ns/a"]).await;
    let late_log = Arc::clone(&s.log);
    s.members.on_managed_object(move |_, _, change| {
        late_log.lock().push(format!("late {}", change.key()))
    });
    s.expect_events(&["late ns/a"]).await;

    // A change that does not affect the connection has no effect; a new token reconnects.
    let mut labelled = cluster("m", "Push", "https://one");
    labelled["metadata"]["labels"] = json!({"a": "b"});
    s.host.seed(&CLUSTERS, labelled);
    s.host.seed(&SECRETS, secret("m", "t2"));
    s.expect_events(&["dial https://one t2", "m true", "m ns/a", "late ns/a"])
        .await;
    assert!(!Arc::ptr_eq(&first, &s.members.get("m").unwrap()));
    s.member.remove(&MAPS, "ns", "a");
    s.expect_events(&["m ns/a", "late ns/a"]).await;

    s.host.remove(&CLUSTERS, "", "m");
    s.expect_events(&["m false"]).await;
    s.expect_error("m", "cluster \"m\" not found").await;
    assert!(s.members.names().is_empty());
    s.members.close().await;
    s.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_informer_delivers_all_objects_again() {
    let s = MembersFixture::new();
    s.host.seed(&SECRETS, secret("m", "t"));
    s.host.seed(&CLUSTERS, cluster("m", "Push", "https://one"));
    s.expect_events(&["dial https://one t", "m true"]).await;
    s.member.seed(&MAPS, map("a", true));
    let member = s.members.get("m").unwrap();
    assert!(member.find_managed_informer(&MAPS).is_none());
    member.managed_informer(&MAPS);
    s.expect_events(&["m ns/a"]).await;
    assert_eq!(
        member.find_managed_informer(&MAPS).map(|i| i.len()),
        Some(1)
    );
    member.stop_managed_informer(&MAPS);
    member.stop_managed_informer(&MAPS);
    assert!(member.find_managed_informer(&MAPS).is_none());
    // The informer stops in its own task.
    tokio::time::sleep(Duration::from_secs(1)).await;
    s.member.seed(&MAPS, map("b", true));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(s.log.lock().is_empty());
    member.managed_informer(&MAPS);
    s.expect_events(&["m ns/a", "m ns/b"]).await;
    s.member.remove(&MAPS, "ns", "a");
    s.expect_events(&["m ns/a"]).await;
    s.members.close().await;
    s.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn errors_name_what_is_missing() {
    let s = MembersFixture::new();
    let mut bare = cluster("bare", "Push", "https://one");
    bare["spec"]["secretRef"] = Value::Null;
    let mut half = secret("half", "t");
    half["data"]["caBundle"] = json!("");
    let mut garbled = secret("garbled", "t");
    garbled["data"]["token"] = json!("!");
    s.host.seed(&CLUSTERS, bare);
    s.host
        .seed(&CLUSTERS, cluster("pull", "Pull", "https://one"));
    s.host.seed(&CLUSTERS, cluster("nowhere", "Push", ""));
    for (name, stored_secret) in [
        ("half", half),
        ("garbled", garbled),
        ("nowhere", secret("nowhere", "t")),
    ] {
        s.host.seed(&SECRETS, stored_secret);
        if name != "nowhere" {
            s.host.seed(&CLUSTERS, cluster(name, "Push", "https://one"));
        }
    }
    s.expect_error("bare", "cluster \"bare\" has no secretRef")
        .await;
    s.expect_error("pull", "cluster \"pull\" is in pull mode")
        .await;
    s.expect_error("nowhere", "cluster \"nowhere\" has no apiEndpoint")
        .await;
    s.expect_error(
        "half",
        "the secret \"kc/half\" of cluster \"half\" has no \"caBundle\"",
    )
    .await;
    s.expect_error(
        "garbled",
        "the secret of cluster \"garbled\": \"token\" is not base64",
    )
    .await;
    assert!(s.log.lock().is_empty());
    s.members.close().await;
    s.tasks.stop().await;
}

// proves: ADD-scheduler-estimator
#[tokio::test(start_paused = true)]
async fn single_nodes_are_tracked_from_a_change_on_without_a_new_connection() {
    static NODES: Gvr = Gvr::from_static("", "v1", "nodes");
    let s = MembersFixture::new();
    s.host.seed(&SECRETS, secret("m", "t"));
    s.host.seed(&CLUSTERS, cluster("m", "Push", "https://one"));
    s.expect_events(&["dial https://one t", "m true"]).await;
    s.member.seed(&NODES, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}}));
    let member = s.members.get("m").unwrap();
    let wait_until = async |description: &str, holds: &dyn Fn() -> bool| {
        let waited = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(120), waited).await;
        assert!(in_time.is_ok(), "{description}");
    };
    let is_known = || member.resource_summary().is_some();
    let has_nodes = || member.with_nodes(|_| ()).is_some();
    wait_until("a summary", &is_known).await;
    assert!(!has_nodes());
    let tracking = |individual_nodes| MemberTrackingOptions {
        individual_nodes,
        quotas: individual_nodes,
    };
    s.members.set_tracking(tracking(true));
    wait_until("nodes", &has_nodes).await;
    wait_until("quotas", &|| member.quotas("ns").is_some()).await;
    s.members.set_tracking(tracking(false));
    assert!(!has_nodes() && member.quotas("ns").is_none());
    wait_until("a summary again", &is_known).await;
    assert!(s.log.lock().is_empty(), "the connection stays");
    s.members.close().await;
    s.tasks.stop().await;
}

#[test]
fn connector_errors_name_the_setting_and_no_secret() {
    let endpoint = |server: &str, ca: &str, proxy: &str| MemberEndpoint {
        uid: String::new(),
        cluster: "m".into(),
        server: server.into(),
        ca: ca.into(),
        token: "sesame".into(),
        insecure_skip_tls_verification: false,
        disabled_tls_validations: karmada_api::tls_validations::DisabledTlsValidations::default(),
        proxy: proxy.into(),
        proxy_headers: Vec::new(),
    };
    let tasks = TaskGroup::new(ShutdownToken::new());
    let table = [
        (
            endpoint("ftp://x", "", ""),
            "cluster \"m\": server \"ftp://x\" is not an http(s) address",
        ),
        (
            endpoint("https://x", "", "ftp://p"),
            "cluster \"m\": proxy-url has the scheme \"ftp\"; http, https and socks5 are supported",
        ),
        (
            endpoint("https://x", "no PEM", ""),
            "cluster \"m\": x: certificate authority is not PEM",
        ),
    ];
    for (member, expected) in table {
        assert!(!format!("{member:?}").contains("sesame"));
        let error = crate::RemoteMemberConnector::default()
            .connect(&member, &tasks)
            .err();
        assert_eq!(error.as_deref(), Some(expected));
    }
}

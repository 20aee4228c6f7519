//! Tests of connecting members by their Clusters and Secrets.

use std::time::Duration;

use client::Shutdown;
use client::fake::FakeApi;
use serde_json::{Value, json};

use super::*;

static MAPS: Gvr = Gvr::constant("", "v1", "configmaps");

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

type Log = Arc<Mutex<Vec<String>>>;

struct Setup {
    host: Arc<FakeApi>,
    member: Arc<FakeApi>,
    members: Members,
    tasks: Tasks,
    log: Log,
}

impl Setup {
    fn new() -> Self {
        let (host, member) = (FakeApi::new(), FakeApi::new());
        let tasks = Tasks::new(Shutdown::new());
        let (api, log) = (Arc::clone(&member), Log::default());
        let dialled = Arc::clone(&log);
        let connect = move |to: &Endpoint, _: &Tasks| {
            dialled
                .lock()
                .push(format!("dial {} {}", to.server, to.token));
            Ok(Arc::clone(&api) as Arc<dyn Api>)
        };
        let informers = Informers::new(&tasks);
        let members = Members::start(host.clone(), &informers, Arc::new(connect), &tasks);
        let (objects, connects) = (Arc::clone(&log), Arc::clone(&log));
        members.on_object(move |cluster, _, change| {
            objects.lock().push(format!("{cluster} {}", change.key()));
        });
        members.on_connect(move |name, up| connects.lock().push(format!("{name} {up}")));
        Self {
            host,
            member,
            members,
            tasks,
            log,
        }
    }

    async fn expect(&self, expected: &[&str]) {
        let equal = async {
            while *self.log.lock() != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(120), equal).await;
        assert!(in_time.is_ok(), "{:?} is not {expected:?}", self.log.lock());
        self.log.lock().clear();
    }

    async fn why_not(&self, cluster: &str, expected: &str) {
        let told = async {
            while self.members.get(cluster).err().as_deref() != Some(expected) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(120), told).await;
        assert!(in_time.is_ok(), "{:?}", self.members.get(cluster).err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_follows_its_cluster_and_secret() {
    let s = Setup::new();
    s.host.seed(&CLUSTERS, cluster("m", "Push", "https://one"));
    s.why_not("m", "the secret \"kc/m\" of cluster \"m\" does not exist")
        .await;
    s.host.seed(&SECRETS, secret("m", "t1"));
    s.expect(&["dial https://one t1", "m true"]).await;
    s.member.seed(&MAPS, map("a", true));
    s.member.seed(&MAPS, map("unmanaged", false));
    let first = s.members.get("m").unwrap();
    first.managed(&MAPS);
    s.expect(&["m ns/a"]).await;
    let late = Arc::clone(&s.log);
    s.members
        .on_object(move |_, _, change| late.lock().push(format!("late {}", change.key())));
    s.expect(&["late ns/a"]).await;

    // A change that does not affect the connection has no effect; a new token reconnects.
    let mut labelled = cluster("m", "Push", "https://one");
    labelled["metadata"]["labels"] = json!({"a": "b"});
    s.host.seed(&CLUSTERS, labelled);
    s.host.seed(&SECRETS, secret("m", "t2"));
    s.expect(&["dial https://one t2", "m true", "m ns/a", "late ns/a"])
        .await;
    assert!(!Arc::ptr_eq(&first, &s.members.get("m").unwrap()));
    s.member.remove(&MAPS, "ns", "a");
    s.expect(&["m ns/a", "late ns/a"]).await;

    s.host.remove(&CLUSTERS, "", "m");
    s.expect(&["m false"]).await;
    s.why_not("m", "cluster \"m\" not found").await;
    assert!(s.members.names().is_empty());
    s.members.close().await;
    s.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_informer_delivers_all_objects_again() {
    let s = Setup::new();
    s.host.seed(&SECRETS, secret("m", "t"));
    s.host.seed(&CLUSTERS, cluster("m", "Push", "https://one"));
    s.expect(&["dial https://one t", "m true"]).await;
    s.member.seed(&MAPS, map("a", true));
    let member = s.members.get("m").unwrap();
    assert!(member.followed(&MAPS).is_none());
    member.managed(&MAPS);
    s.expect(&["m ns/a"]).await;
    assert_eq!(member.followed(&MAPS).map(|i| i.len()), Some(1));
    member.unfollow(&MAPS);
    member.unfollow(&MAPS);
    assert!(member.followed(&MAPS).is_none());
    // The informer stops in its own task.
    tokio::time::sleep(Duration::from_secs(1)).await;
    s.member.seed(&MAPS, map("b", true));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(s.log.lock().is_empty());
    member.managed(&MAPS);
    s.expect(&["m ns/a", "m ns/b"]).await;
    s.member.remove(&MAPS, "ns", "a");
    s.expect(&["m ns/a"]).await;
    s.members.close().await;
    s.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn errors_name_what_is_missing() {
    let s = Setup::new();
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
    for (name, own) in [
        ("half", half),
        ("garbled", garbled),
        ("nowhere", secret("nowhere", "t")),
    ] {
        s.host.seed(&SECRETS, own);
        if name != "nowhere" {
            s.host.seed(&CLUSTERS, cluster(name, "Push", "https://one"));
        }
    }
    s.why_not("bare", "cluster \"bare\" has no secretRef").await;
    s.why_not("pull", "cluster \"pull\" is in pull mode").await;
    s.why_not("nowhere", "cluster \"nowhere\" has no apiEndpoint")
        .await;
    s.why_not(
        "half",
        "the secret \"kc/half\" of cluster \"half\" has no \"caBundle\"",
    )
    .await;
    s.why_not(
        "garbled",
        "the secret of cluster \"garbled\": \"token\" is not base64",
    )
    .await;
    assert!(s.log.lock().is_empty());
    s.members.close().await;
    s.tasks.stop().await;
}

#[test]
fn connector_errors_name_the_setting_and_no_secret() {
    let endpoint = |server: &str, ca: &str, proxy: &str| Endpoint {
        cluster: "m".into(),
        server: server.into(),
        ca: ca.into(),
        token: "sesame".into(),
        insecure: false,
        proxy: proxy.into(),
        proxy_headers: Vec::new(),
    };
    let tasks = Tasks::new(Shutdown::new());
    let table = [
        (
            endpoint("ftp://x", "", ""),
            "cluster \"m\": server \"ftp://x\" is not an http(s) address",
        ),
        (
            endpoint("https://x", "", "socks5://p"),
            "cluster \"m\": proxy-url has the scheme \"socks5\"; only http proxies are supported",
        ),
        (
            endpoint("https://x", "no PEM", ""),
            "cluster \"m\": x: certificate authority is not PEM",
        ),
    ];
    for (to, expected) in table {
        assert!(!format!("{to:?}").contains("sesame"));
        let error = crate::RemoteConnector::default().connect(&to, &tasks).err();
        assert_eq!(error.as_deref(), Some(expected));
    }
}

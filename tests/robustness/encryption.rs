//! Encryption of secrets at rest, on both engines. The tests read the stored bytes without
//! the server: from the files, from the engine without encryption, with `etcdctl`, and with
//! a kube-apiserver.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use client::{At, ListOptions, WriteOptions};
use harness::cluster::Options;
use harness::etcd::NEW;
use harness::kubectl::{Kubectl, with_each};
use harness::objects::{CONFIG_MAPS, SECRETS, config_map};
use harness::{Cluster, Etcd, Process, Server};
use serde_json::{Value, json};
use storage::encryption::{EncryptedStore, Encryption, PrefixTransformer, Transformer};
use storage::{Embedded, Op, Outcome, Range, Store, Txn};
use tempfile::TempDir;

use crate::refused::{check, refused};

const NS: &str = "default";
const PATIENCE: Duration = Duration::from_secs(30);
const PLAIN: &str = "the-plaintext-of-a-secret";
const OPEN: &str = "the-content-of-a-config-map";
const IDENTITY: &str = "/registry/flotilla/identity";

const BOX_1: &str =
    "{secretbox: {keys: [{name: k1, secret: MTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTE=}]}}";
const GCM_2: &str =
    "{aesgcm: {keys: [{name: k2, secret: MjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjI=}]}}";
const GCM_3: &str =
    "{aesgcm: {keys: [{name: k3, secret: MzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzM=}]}}";
const NONE: &str = "{identity: {}}";

fn config(providers: &[&str]) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
         - {{resources: [secrets], providers: [{}]}}\n",
        providers.join(", ")
    )
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NS},
        "stringData": {"password": PLAIN}})
}

/// The data directory, and the etcd if there is one, of a control plane across restarts.
struct Place {
    dir: TempDir,
    etcd: Option<Etcd>,
}

impl Place {
    fn directory() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, etcd: None }
    }

    fn etcd() -> Option<Self> {
        Some(Self {
            etcd: Some(Etcd::start(NEW, 1)?),
            ..Self::directory()
        })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write_config(&self, text: &str, mode: u32) -> String {
        let file = self.file("encryption.yaml");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        format!("--encryption-provider-config={}", file.display())
    }

    fn arguments(&self, providers: &[&str]) -> Vec<String> {
        let data = format!("--data-dir={}", self.file("data").display());
        let mut all = vec!["serve".to_owned(), "--listen=127.0.0.1:0".to_owned(), data];
        if !providers.is_empty() {
            all.push(self.write_config(&config(providers), 0o600));
        }
        all.extend(
            self.etcd
                .as_ref()
                .map(|e| format!("--etcd-servers={}", e.endpoints())),
        );
        all
    }

    fn serve(&self, providers: &[&str]) -> Process {
        let arguments = self.arguments(providers);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Process::start(
            env!("CARGO_BIN_EXE_flotilla"),
            &arguments,
            &self.file("log"),
        )
        .0
    }

    fn kubeconfig(&self) -> PathBuf {
        self.file("data/kubeconfig")
    }

    fn server(&self) -> Server {
        Server::connect("plane", &self.kubeconfig())
    }

    /// The keys with a prefix and their stored values; no server may be running.
    async fn stored(&self, prefix: &str) -> Vec<(String, Vec<u8>)> {
        if let Some(etcd) = &self.etcd {
            let output = etcd.ctl(&["get", prefix, "--prefix", "-w", "json"]);
            let response: Value = serde_json::from_str(&output).unwrap();
            let decode = |v: &Value| BASE64_STANDARD.decode(v.as_str().unwrap()).unwrap();
            let all = response["kvs"].as_array().cloned().unwrap_or_default();
            let pair = |kv: &Value| {
                let key = String::from_utf8(decode(&kv["key"])).unwrap();
                (key, decode(&kv["value"]))
            };
            return all.iter().map(pair).collect();
        }
        let end = Instant::now() + PATIENCE;
        let store = loop {
            // A program that another test starts inherits the previous lock for a moment,
            // from its fork to its exec.
            match Embedded::open(&self.file("data/store"), storage::Options::default()) {
                Ok(store) => break store,
                Err(why) => assert!(Instant::now() < end, "{why}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let page = store.range(&Range::prefix(prefix)).await.unwrap();
        store.close().await;
        let entries = page.entries.into_iter();
        entries
            .map(|e| (e.key.to_string(), e.value.to_vec()))
            .collect()
    }

    /// All bytes of the engine's files.
    fn disk(&self) -> Vec<u8> {
        let dir = match &self.etcd {
            Some(etcd) => etcd.dir().join("n0"),
            None => self.file("data/store"),
        };
        let mut all = Vec::new();
        read_all(&dir, &mut all);
        all
    }
}

fn read_all(dir: &Path, all: &mut Vec<u8>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, all);
        } else {
            all.extend(std::fs::read(&path).unwrap());
        }
    }
}

fn contains(all: &[u8], text: &str) -> bool {
    all.windows(text.len()).any(|w| w == text.as_bytes())
}

fn has_secret(all: &[u8]) -> bool {
    contains(all, PLAIN) || contains(all, &BASE64_STANDARD.encode(PLAIN))
}

async fn nothing_readable_lies_on_the_disk(place: Place) {
    // Without encryption the check must find the secret.
    {
        let place = Place::directory();
        let process = place.serve(&[]);
        place.server().create(secret("open")).await;
        process.stop();
        assert!(has_secret(&place.disk()));
    }
    for providers in [&[BOX_1, NONE][..], &[GCM_2, BOX_1]] {
        let process = place.serve(providers);
        let server = place.server();
        let name = format!("a{}", providers[0].len());
        server.create(secret(&name)).await;
        server.create(config_map(NS, &name, OPEN)).await;
        let patch = json!({"metadata": {"labels": {"a": "b"}}});
        let patched = server.merge(&SECRETS, NS, &name, patch).await;
        assert_eq!(patched["data"]["password"], BASE64_STANDARD.encode(PLAIN));
        server.create(secret("gone")).await;
        server.delete(&SECRETS, NS, "gone").await;
        process.stop();
        let disk = place.disk();
        assert!(contains(&disk, OPEN) && !has_secret(&disk));
        assert!(!contains(&disk, "PRIVATE KEY"));
    }
}

#[tokio::test]
async fn nothing_readable_lies_in_the_data_directory() {
    nothing_readable_lies_on_the_disk(Place::directory()).await;
}

#[tokio::test]
async fn nothing_readable_lies_in_etcd() {
    let Some(place) = Place::etcd() else { return };
    nothing_readable_lies_on_the_disk(place).await;
}

/// `kubectl get` and `kubectl replace` of every secret, as the Kubernetes documentation
/// describes key rotation. Each kubectl creates a namespace in each round and rewrites the
/// secrets of all rounds up to then.
fn replace_all(place: &Place, round: usize) {
    let area = format!("round{round}");
    let rewrite = |kubectl: &Kubectl| {
        kubectl.output(&format!(
            "create secret generic rotated --from-literal=k={PLAIN}"
        ));
        for round in 0..=round {
            let namespace = format!("round{round}-{}", kubectl.label);
            let all = kubectl.output(&format!("get secrets --namespace {namespace} -o json"));
            assert!(all.contains(&BASE64_STANDARD.encode(PLAIN)), "{all}");
            let (code, output) =
                kubectl.pipe(&format!("replace --namespace {namespace} -f -"), &all);
            assert!(
                code == 0 && output.contains("secret/rotated replaced"),
                "{output}"
            );
        }
    };
    tokio::task::block_in_place(|| {
        with_each(&place.kubeconfig(), place.dir.path(), &area, rewrite);
    });
}

async fn keys_are_rotated(place: Place) {
    const BOX: &str = "k8s:enc:secretbox:v1:k1:";
    const GCM: &str = "k8s:enc:aesgcm:v1:k2:";
    let rounds = [
        (&[][..], "{"),
        (&[BOX_1, NONE], BOX),
        (&[GCM_2, BOX_1], GCM),
        // All secrets were rewritten, so the old key is not needed any more.
        (&[GCM_2], GCM),
        (&[NONE, GCM_2], "{"),
    ];
    for (round, (providers, prefix)) in rounds.into_iter().enumerate() {
        let process = place.serve(providers);
        replace_all(&place, round);
        process.stop();
        let mut stored = place.stored("/registry/secrets/").await;
        assert!(stored.len() > round, "{stored:?}");
        stored.extend(place.stored(IDENTITY).await);
        for (key, value) in stored {
            let value = String::from_utf8_lossy(&value);
            assert!(value.starts_with(prefix), "{providers:?} {key}: {value}");
        }
        let others = place.stored("/registry/configmaps/").await;
        assert!(others.iter().all(|(_, value)| value.starts_with(b"{")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_rotated_by_get_and_replace_in_the_data_directory() {
    keys_are_rotated(Place::directory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_rotated_by_get_and_replace_in_etcd() {
    let Some(place) = Place::etcd() else { return };
    keys_are_rotated(place).await;
}

/// Checks for a 500 that names the object and the missing key.
fn unreadable(answer: client::Result<impl std::fmt::Debug>, key: &str, why: &str) {
    let error = format!("{:?}", answer.unwrap_err());
    check(&error, &["500", key, why]);
    assert!(
        !has_secret(error.as_bytes()) && !error.contains("\\u{"),
        "{error}"
    );
}

#[tokio::test]
async fn a_missing_key_loses_its_own_objects_only() {
    let place = Place::directory();
    let process = place.serve(&[GCM_2, NONE]);
    place.server().create(secret("first")).await;
    place.server().create(config_map(NS, "map", OPEN)).await;
    process.stop();
    // Informers of secrets cannot sync, but the process does not wait for them.
    let process = place.serve(&[GCM_3, NONE]);
    let server = place.server();
    let (key, why) = ("/registry/secrets/default/first", "k8s:enc:aesgcm:v1:k2");
    let at = At::one(&SECRETS, NS, "first");
    unreadable(server.api.get(at).await, key, why);
    let all = At::all(&SECRETS, NS);
    unreadable(
        server.api.list(all, &ListOptions::default()).await,
        key,
        why,
    );
    let options = WriteOptions::default();
    let updated = server.api.update(at, secret("first"), &options).await;
    unreadable(updated, key, why);
    let error = format!("{:?}", server.api.raw("/readyz").await.unwrap_err());
    check(&error, &["informer-sync failed"]);
    // Other objects are served, even of the same resource.
    server.create(secret("second")).await;
    server.until_there(&SECRETS, NS, "second").await;
    let patch = json!({"data": {"k": "changed"}});
    server.merge(&CONFIG_MAPS, NS, "map", patch).await;
    let log = std::fs::read(place.file("log")).unwrap();
    assert!(!has_secret(&log));
    process.stop();
    // With the right key the object is readable again.
    let process = place.serve(&[GCM_2, GCM_3, NONE]);
    for name in ["first", "second"] {
        let read = place.server().get(&SECRETS, NS, name).await.unwrap();
        assert_eq!(read["data"]["password"], BASE64_STANDARD.encode(PLAIN));
    }
    process.stop();
}

/// etcd also stores the keys that all replicas share.
#[tokio::test]
async fn shared_keys_that_cannot_be_decrypted_end_the_start() {
    let Some(place) = Place::etcd() else { return };
    place.serve(&[GCM_2]).stop();
    let servers = place.etcd.as_ref().unwrap().endpoints();
    let flag = place.write_config(&config(&[GCM_3]), 0o600);
    let output = refused(&servers, &[&flag]);
    check(
        &output,
        &[IDENTITY, "cannot be decrypted", "k8s:enc:aesgcm:v1:k2"],
    );
    check(&refused(&servers, &[]), &[IDENTITY, "cannot be decrypted"]);
}

#[test]
fn a_configuration_that_cannot_act_is_refused() {
    let place = Place::directory();
    let fails = |flag: &str, wanted: &[&str]| {
        let mut arguments = place.arguments(&[]);
        arguments.push(flag.to_owned());
        let mut command = Command::new(env!("CARGO_BIN_EXE_flotilla"));
        let out = command.args(&arguments).output().unwrap();
        let output = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{output}");
        check(&output, wanted);
        assert!(
            !output.contains("MTExMTEx") && !output.contains("1111"),
            "{output}"
        );
        assert!(!place.file("data/store").exists(), "the store was opened");
    };
    let missing = "--encryption-provider-config=/nowhere/file";
    fails(
        missing,
        &[
            "cannot read",
            missing.split_once('=').unwrap().1,
            "No such file",
        ],
    );
    let short = config(&[&BOX_1.replace("MTExMTE=", "MTE=")]);
    let flag = place.write_config(&short, 0o600);
    let path = "resources[0].providers[0].secretbox.keys[0].secret";
    fails(
        &flag,
        &["encryption.yaml: ", path, "not of the expected length"],
    );
    // A syntax error quotes no line of the file, which holds keys.
    let flag = place.write_config(&config(&[BOX_1]).replace("]}}", "]"), 0o600);
    fails(&flag, &["not YAML or JSON at line"]);
}

#[test]
fn a_configuration_that_others_may_read_is_told() {
    let place = Place::directory();
    let mut arguments = place.arguments(&[BOX_1, NONE]);
    place.write_config(&config(&[BOX_1, NONE]), 0o644);
    arguments.push("--v=1".to_owned());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let log = place.file("log");
    Process::start(env!("CARGO_BIN_EXE_flotilla"), &arguments, &log)
        .0
        .stop();
    let output = std::fs::read_to_string(&log).unwrap();
    check(
        &output,
        &[
            "encryption.yaml holds encryption keys",
            "0644",
            "0600 is advised",
        ],
    );
}

/// Flotilla and a kube-apiserver each read what the other one encrypted.
#[tokio::test(flavor = "multi_thread")]
async fn a_kube_apiserver_reads_what_we_encrypt_and_we_what_it_encrypts() {
    let Some(etcd) = Etcd::start(NEW, 1) else {
        return;
    };
    let keys = [
        || PrefixTransformer::aes_gcm("k2", &[b'2'; 32]).unwrap(),
        || PrefixTransformer::secretbox("k1", &[b'1'; 32]).unwrap(),
    ];
    let options = storage::etcd::Options {
        servers: vec![etcd.endpoints()],
        prefix: "/host".into(),
        ..storage::etcd::Options::default()
    };
    let engine: Arc<dyn Store> = Arc::new(storage::etcd::Etcd::open(options).await.unwrap());
    let over = |first: usize| {
        let transformer = Transformer::new(keys[first](), vec![keys[1 - first]()]);
        let rules = vec![("/registry/secrets/".to_owned(), Arc::new(transformer))];
        EncryptedStore::new(Arc::clone(&engine), Encryption::new(rules), "/host")
    };
    for (n, name) in ["gcm", "box"].into_iter().enumerate() {
        let value = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": name, "namespace": NS, "uid": "u"},
            "data": {"password": BASE64_STANDARD.encode(PLAIN)}});
        let put = Txn {
            key: format!("/registry/secrets/{NS}/{name}").into(),
            expected: 0,
            op: Op::Put {
                value: Bytes::from(value.to_string()),
                ttl: None,
            },
        };
        let written = over(n).commit(put).await.unwrap();
        assert!(matches!(written, Outcome::Committed { .. }));
    }
    for providers in [[GCM_2, BOX_1], [BOX_1, GCM_2]] {
        let place = Place::directory();
        let flags = [place.write_config(&config(&providers), 0o600)];
        let options = Options {
            name: "host",
            controllers: "",
            flags: &flags,
        };
        let etcd = &etcd;
        let host = tokio::task::block_in_place(|| Cluster::start(&options, etcd));
        let Some(host) = host else { return };
        let server = Server::connect("host", &host.kubeconfig);
        for name in ["gcm", "box"] {
            let read = server.get(&SECRETS, NS, name).await.unwrap();
            assert_eq!(read["data"]["password"], BASE64_STANDARD.encode(PLAIN));
        }
        let name = if providers[0] == GCM_2 {
            "theirs-gcm"
        } else {
            "theirs-box"
        };
        server.create(secret(name)).await;
        let key = format!("/registry/secrets/{NS}/{name}");
        let stored = engine.get(&key).await.unwrap().unwrap().value;
        assert!(stored.starts_with(b"k8s:enc:"));
        let read = over(0).get(&key).await.unwrap().unwrap().value;
        // The prefix of Kubernetes' protobuf encoding.
        assert!(read.starts_with(b"k8s\0") && contains(&read, PLAIN));
    }
}

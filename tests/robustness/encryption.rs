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
use client::{ListOptions, ResourcePath, WriteOptions};
use harness::cluster::KubernetesClusterOptions;
use harness::etcd::VERSION_3_5;
use harness::kubectl::{Kubectl, with_each_kubectl};
use harness::objects::{CONFIG_MAPS, SECRETS, config_map};
use harness::{ApiServerClient, EtcdCluster, KubernetesCluster, ServerProcess};
use serde_json::{Value, json};
use storage::encryption::{
    EncryptedStore, PrefixTransformer, PrefixTransformers, ResourceTransformers,
};
use storage::{EmbeddedStore, RangeRequest, SingleKeyTxn, SingleKeyTxnOp, Store, TxnResponse};
use tempfile::TempDir;

use crate::robustness::startup_errors::{assert_contains_all, startup_error};

const NS: &str = "default";
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
const SECRET_PLAINTEXT: &str = "the-plaintext-of-a-secret";
const CONFIG_MAP_CONTENT: &str = "the-content-of-a-config-map";
const SHARED_KEYS_KEY: &str = "/registry/flotilla/identity";

const SECRETBOX_K1: &str =
    "{secretbox: {keys: [{name: k1, secret: MTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTE=}]}}";
const AESGCM_K2: &str =
    "{aesgcm: {keys: [{name: k2, secret: MjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjI=}]}}";
const AESGCM_K3: &str =
    "{aesgcm: {keys: [{name: k3, secret: MzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzM=}]}}";
const IDENTITY_PROVIDER: &str = "{identity: {}}";

fn encryption_config(providers: &[&str]) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
         - {{resources: [secrets], providers: [{}]}}\n",
        providers.join(", ")
    )
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NS},
        "stringData": {"password": SECRET_PLAINTEXT}})
}

/// The data directory, and the etcd if there is one, of a control plane across restarts.
struct EncryptionTestStorage {
    dir: TempDir,
    etcd: Option<EtcdCluster>,
}

impl EncryptionTestStorage {
    fn with_data_directory() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, etcd: None }
    }

    fn with_etcd() -> Option<Self> {
        Some(Self {
            etcd: Some(EtcdCluster::start(VERSION_3_5, 1)?),
            ..Self::with_data_directory()
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
            all.push(self.write_config(&encryption_config(providers), 0o600));
        }
        all.extend(
            self.etcd
                .as_ref()
                .map(|e| format!("--etcd-servers={}", e.endpoints())),
        );
        all
    }

    fn serve(&self, providers: &[&str]) -> ServerProcess {
        let arguments = self.arguments(providers);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        ServerProcess::start(
            env!("CARGO_BIN_EXE_flotilla"),
            &arguments,
            &self.file("log"),
        )
        .0
    }

    fn kubeconfig(&self) -> PathBuf {
        self.file("data/kubeconfig")
    }

    fn client(&self) -> ApiServerClient {
        ApiServerClient::connect("plane", &self.kubeconfig())
    }

    /// The keys with a prefix and their stored values; no server may be running.
    async fn list_raw(&self, prefix: &str) -> Vec<(String, Vec<u8>)> {
        if let Some(etcd) = &self.etcd {
            let output = etcd.etcdctl(&["get", prefix, "--prefix", "-w", "json"]);
            let response: Value = machinery::json::from_str(&output).unwrap();
            let decode = |v: &Value| BASE64_STANDARD.decode(v.as_str().unwrap()).unwrap();
            let all = response["kvs"].as_array().cloned().unwrap_or_default();
            let pair = |kv: &Value| {
                let key = String::from_utf8(decode(&kv["key"])).unwrap();
                (key, decode(&kv["value"]))
            };
            return all.iter().map(pair).collect();
        }
        let end = Instant::now() + OPEN_TIMEOUT;
        let store = loop {
            // A program that another test starts inherits the previous lock for a moment,
            // from its fork to its exec.
            match EmbeddedStore::open(
                &self.file("data/store"),
                storage::EmbeddedStoreOptions::default(),
            ) {
                Ok(store) => break store,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let page = store.range(&RangeRequest::prefix(prefix)).await.unwrap();
        store.close().await;
        let entries = page.kvs.into_iter();
        entries
            .map(|e| (e.key.to_string(), e.value.to_vec()))
            .collect()
    }

    /// All bytes of the engine's files.
    fn read_disk(&self) -> Vec<u8> {
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

/// Searches files of 64 MiB; the search of strings is that of the standard library, which is optimized.
fn contains_text(all: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(all).contains(text)
}

fn has_secret(all: &[u8]) -> bool {
    contains_text(all, SECRET_PLAINTEXT)
        || contains_text(all, &BASE64_STANDARD.encode(SECRET_PLAINTEXT))
}

async fn check_disk_is_encrypted(storage: EncryptionTestStorage) {
    // Without encryption the check must find the secret.
    {
        let storage = EncryptionTestStorage::with_data_directory();
        let process = storage.serve(&[]);
        storage.client().create(secret("open")).await;
        process.stop();
        assert!(has_secret(&storage.read_disk()));
    }
    for providers in [
        &[SECRETBOX_K1, IDENTITY_PROVIDER][..],
        &[AESGCM_K2, SECRETBOX_K1],
    ] {
        let process = storage.serve(providers);
        let server = storage.client();
        let name = format!("a{}", providers[0].len());
        server.create(secret(&name)).await;
        server
            .create(config_map(NS, &name, CONFIG_MAP_CONTENT))
            .await;
        let patch = json!({"metadata": {"labels": {"a": "b"}}});
        let patched = server.merge_patch(&SECRETS, NS, &name, patch).await;
        assert_eq!(
            patched["data"]["password"],
            BASE64_STANDARD.encode(SECRET_PLAINTEXT)
        );
        server.create(secret("gone")).await;
        server.delete(&SECRETS, NS, "gone").await;
        process.stop();
        let disk = storage.read_disk();
        assert!(contains_text(&disk, CONFIG_MAP_CONTENT) && !has_secret(&disk));
        assert!(!contains_text(&disk, "PRIVATE KEY"));
    }
}

#[tokio::test]
async fn secrets_in_the_data_directory_are_encrypted() {
    check_disk_is_encrypted(EncryptionTestStorage::with_data_directory()).await;
}

#[tokio::test]
async fn secrets_in_etcd_are_encrypted() {
    let Some(storage) = EncryptionTestStorage::with_etcd() else {
        return;
    };
    check_disk_is_encrypted(storage).await;
}

/// `kubectl get` and `kubectl replace` of every secret, as the Kubernetes documentation
/// describes key rotation. Each kubectl creates a namespace in each round and rewrites the
/// secrets of all rounds up to then.
fn replace_all_secrets(storage: &EncryptionTestStorage, round: usize) {
    let area = format!("round{round}");
    let rewrite = |kubectl: &Kubectl| {
        kubectl.output(&format!(
            "create secret generic rotated --from-literal=k={SECRET_PLAINTEXT}"
        ));
        for round in 0..=round {
            let namespace = format!("round{round}-{}", kubectl.label);
            let all = kubectl.output(&format!("get secrets --namespace {namespace} -o json"));
            assert!(
                all.contains(&BASE64_STANDARD.encode(SECRET_PLAINTEXT)),
                "{all}"
            );
            let (code, output) =
                kubectl.run_with_input(&format!("replace --namespace {namespace} -f -"), &all);
            assert!(
                code == 0 && output.contains("secret/rotated replaced"),
                "{output}"
            );
        }
    };
    tokio::task::block_in_place(|| {
        with_each_kubectl(&storage.kubeconfig(), storage.dir.path(), &area, rewrite);
    });
}

async fn check_key_rotation(storage: EncryptionTestStorage) {
    const BOX: &str = "k8s:enc:secretbox:v1:k1:";
    const GCM: &str = "k8s:enc:aesgcm:v1:k2:";
    let rounds = [
        (&[][..], "{"),
        (&[SECRETBOX_K1, IDENTITY_PROVIDER], BOX),
        (&[AESGCM_K2, SECRETBOX_K1], GCM),
        // All secrets were rewritten, so the old key is not needed any more.
        (&[AESGCM_K2], GCM),
        (&[IDENTITY_PROVIDER, AESGCM_K2], "{"),
    ];
    for (round, (providers, prefix)) in rounds.into_iter().enumerate() {
        let process = storage.serve(providers);
        replace_all_secrets(&storage, round);
        process.stop();
        let mut stored = storage.list_raw("/registry/secrets/").await;
        assert!(stored.len() > round, "{stored:?}");
        stored.extend(storage.list_raw(SHARED_KEYS_KEY).await);
        for (key, value) in stored {
            let value = String::from_utf8_lossy(&value);
            assert!(value.starts_with(prefix), "{providers:?} {key}: {value}");
        }
        let others = storage.list_raw("/registry/configmaps/").await;
        assert!(others.iter().all(|(_, value)| value.starts_with(b"{")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_rotated_by_get_and_replace_in_the_data_directory() {
    check_key_rotation(EncryptionTestStorage::with_data_directory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_rotated_by_get_and_replace_in_etcd() {
    let Some(storage) = EncryptionTestStorage::with_etcd() else {
        return;
    };
    check_key_rotation(storage).await;
}

/// Checks for a 500 that names the object and the missing key.
fn assert_unreadable(answer: client::Result<impl std::fmt::Debug>, key: &str, message: &str) {
    let error = format!("{:?}", answer.unwrap_err());
    assert_contains_all(&error, &["500", key, message]);
    assert!(
        !has_secret(error.as_bytes()) && !error.contains("\\u{"),
        "{error}"
    );
}

#[tokio::test]
async fn missing_key_affects_only_its_own_objects() {
    let storage = EncryptionTestStorage::with_data_directory();
    let process = storage.serve(&[AESGCM_K2, IDENTITY_PROVIDER]);
    storage.client().create(secret("first")).await;
    storage
        .client()
        .create(config_map(NS, "map", CONFIG_MAP_CONTENT))
        .await;
    process.stop();
    // Informers of secrets cannot sync, but the process does not wait for them.
    let process = storage.serve(&[AESGCM_K3, IDENTITY_PROVIDER]);
    let server = storage.client();
    let (key, message) = ("/registry/secrets/default/first", "k8s:enc:aesgcm:v1:k2");
    let at = ResourcePath::object(&SECRETS, NS, "first");
    assert_unreadable(server.api.get(at).await, key, message);
    let all = ResourcePath::collection(&SECRETS, NS);
    assert_unreadable(
        server.api.list(all, &ListOptions::default()).await,
        key,
        message,
    );
    let options = WriteOptions::default();
    let updated = server
        .api
        .update(at, secret("first").into(), &options)
        .await;
    assert_unreadable(updated, key, message);
    let error = format!("{:?}", server.api.get_raw("/readyz").await.unwrap_err());
    assert_contains_all(&error, &["informer-sync failed"]);
    // Other objects are served, even of the same resource.
    server.create(secret("second")).await;
    server.wait_until_exists(&SECRETS, NS, "second").await;
    let patch = json!({"data": {"k": "changed"}});
    server.merge_patch(&CONFIG_MAPS, NS, "map", patch).await;
    let log = std::fs::read(storage.file("log")).unwrap();
    assert!(!has_secret(&log));
    process.stop();
    // With the right key the object is readable again.
    let process = storage.serve(&[AESGCM_K2, AESGCM_K3, IDENTITY_PROVIDER]);
    for name in ["first", "second"] {
        let read = storage.client().get(&SECRETS, NS, name).await.unwrap();
        assert_eq!(
            read["data"]["password"],
            BASE64_STANDARD.encode(SECRET_PLAINTEXT)
        );
    }
    process.stop();
}

/// etcd also stores the keys that all replicas share.
#[tokio::test]
async fn shared_keys_that_cannot_be_decrypted_end_the_start() {
    let Some(storage) = EncryptionTestStorage::with_etcd() else {
        return;
    };
    storage.serve(&[AESGCM_K2]).stop();
    let servers = storage.etcd.as_ref().unwrap().endpoints();
    let flag = storage.write_config(&encryption_config(&[AESGCM_K3]), 0o600);
    let output = startup_error(&servers, &[&flag]);
    assert_contains_all(
        &output,
        &[
            SHARED_KEYS_KEY,
            "cannot be decrypted",
            "k8s:enc:aesgcm:v1:k2",
        ],
    );
    assert_contains_all(
        &startup_error(&servers, &[]),
        &[SHARED_KEYS_KEY, "cannot be decrypted"],
    );
}

#[test]
fn invalid_configuration_ends_the_start() {
    let storage = EncryptionTestStorage::with_data_directory();
    let fails = |flag: &str, expected: &[&str]| {
        let mut arguments = storage.arguments(&[]);
        arguments.push(flag.to_owned());
        let mut command = Command::new(env!("CARGO_BIN_EXE_flotilla"));
        let out = harness::process::run(command.args(&arguments));
        let output = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{output}");
        assert_contains_all(&output, expected);
        assert!(
            !output.contains("MTExMTEx") && !output.contains("1111"),
            "{output}"
        );
        assert!(!storage.file("data/store").exists(), "the store was opened");
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
    let short = encryption_config(&[&SECRETBOX_K1.replace("MTExMTE=", "MTE=")]);
    let flag = storage.write_config(&short, 0o600);
    let path = "resources[0].providers[0].secretbox.keys[0].secret";
    fails(
        &flag,
        &["encryption.yaml: ", path, "not of the expected length"],
    );
    // A syntax error quotes no line of the file, which holds keys.
    let flag = storage.write_config(
        &encryption_config(&[SECRETBOX_K1]).replace("]}}", "]"),
        0o600,
    );
    fails(&flag, &["not YAML or JSON at line"]);
}

#[test]
fn configuration_readable_by_others_is_logged() {
    let storage = EncryptionTestStorage::with_data_directory();
    let mut arguments = storage.arguments(&[SECRETBOX_K1, IDENTITY_PROVIDER]);
    storage.write_config(
        &encryption_config(&[SECRETBOX_K1, IDENTITY_PROVIDER]),
        0o644,
    );
    arguments.push("--v=1".to_owned());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let log = storage.file("log");
    ServerProcess::start(env!("CARGO_BIN_EXE_flotilla"), &arguments, &log)
        .0
        .stop();
    let output = std::fs::read_to_string(&log).unwrap();
    assert_contains_all(
        &output,
        &["encryption.yaml has encryption keys", "0644", "use 0600"],
    );
}

/// Flotilla and a kube-apiserver each read what the other one encrypted.
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn kube_apiserver_and_flotilla_decrypt_each_others_secrets() {
    let Some(etcd) = EtcdCluster::start(VERSION_3_5, 1) else {
        return;
    };
    let keys = [
        || PrefixTransformer::aes_gcm("k2", &[b'2'; 32]).unwrap(),
        || PrefixTransformer::secretbox("k1", &[b'1'; 32]).unwrap(),
    ];
    let options = storage::etcd::EtcdOptions {
        servers: vec![etcd.endpoints()],
        prefix: "/host".into(),
        ..storage::etcd::EtcdOptions::default()
    };
    let engine: Arc<dyn Store> = Arc::new(storage::etcd::EtcdStore::open(options).await.unwrap());
    let over = |first: usize| {
        let transformer = PrefixTransformers::new(keys[first](), vec![keys[1 - first]()]);
        let rules = vec![("/registry/secrets/".to_owned(), Arc::new(transformer))];
        EncryptedStore::new(
            Arc::clone(&engine),
            ResourceTransformers::new(rules),
            "/host",
        )
    };
    for (n, name) in ["gcm", "box"].into_iter().enumerate() {
        let value = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": name, "namespace": NS, "uid": "u"},
            "data": {"password": BASE64_STANDARD.encode(SECRET_PLAINTEXT)}});
        let put = SingleKeyTxn {
            key: format!("/registry/secrets/{NS}/{name}").into(),
            expected: 0,
            op: SingleKeyTxnOp::Put {
                value: Bytes::from(value.to_string()),
                ttl: None,
            },
        };
        let written = over(n).commit(put).await.unwrap();
        assert!(matches!(written, TxnResponse::Committed { .. }));
    }
    for providers in [[AESGCM_K2, SECRETBOX_K1], [SECRETBOX_K1, AESGCM_K2]] {
        let storage = EncryptionTestStorage::with_data_directory();
        let flags = [storage.write_config(&encryption_config(&providers), 0o600)];
        let options = KubernetesClusterOptions {
            name: "host",
            controllers: "",
            flags: &flags,
        };
        let etcd = &etcd;
        let host = tokio::task::block_in_place(|| KubernetesCluster::start(&options, etcd));
        let Some(host) = host else { return };
        let server = ApiServerClient::connect("host", &host.kubeconfig);
        for name in ["gcm", "box"] {
            let read = server.get(&SECRETS, NS, name).await.unwrap();
            assert_eq!(
                read["data"]["password"],
                BASE64_STANDARD.encode(SECRET_PLAINTEXT)
            );
        }
        let name = if providers[0] == AESGCM_K2 {
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
        assert!(read.starts_with(b"k8s\0") && contains_text(&read, SECRET_PLAINTEXT));
    }
}

//! Data of other versions: Flotilla opens the data of the previous release without loss, and
//! rejects the data of a newer release without changing it.
//!
//! `tests/fixtures/upgrade/record` made the fixtures with the real binary of the git revision
//! in their names.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use client::{ResourcePath, WriteOptions};
use harness::etcd::VERSION_3_5;
use harness::etcdctl::EtcdKeyValue;
use harness::objects::{CONFIG_MAPS, SECRETS, WORKS, gvr};
use harness::{ApiServerClient, EtcdCluster, ServerProcess};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::robustness::ReplicaProcess;
use crate::robustness::startup_errors::{assert_contains_all, startup_error};

const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");
const NAMESPACE: &str = "shop";
const FORMAT_KEY: &str = "/registry/flotilla/format";
const FIXTURE_REVISION: &str = "e3bebb2";
/// The bytes of `user_version` in SQLite's header.
const USER_VERSION_BYTES: std::ops::Range<usize> = 60..64;
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);

fn fixture_path(suffix: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/upgrade");
    folder.join(format!("{FIXTURE_REVISION}.{suffix}"))
}

fn decompress_fixture(suffix: &str) -> Vec<u8> {
    let file = std::fs::File::open(fixture_path(suffix)).unwrap();
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(file)
        .read_to_end(&mut content)
        .unwrap();
    content
}

/// Unpacks the data directory of the previous release.
fn unpack_data_directory() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(fixture_path("data.tar.gz"));
    assert!(tar.arg("-C").arg(dir.path()).status().unwrap().success());
    dir
}

fn restore_etcd() -> Option<EtcdCluster> {
    let dir = tempfile::tempdir().unwrap();
    let snapshot = dir.path().join("snapshot");
    std::fs::write(&snapshot, decompress_fixture("etcd.gz")).unwrap();
    EtcdCluster::restore(VERSION_3_5, &snapshot, &[])
}

/// `flotilla serve` on a data directory.
fn serve(dir: &Path) -> (ServerProcess, ApiServerClient) {
    let data = dir.display().to_string();
    let arguments = ["serve", "--listen=127.0.0.1:0", "--data-dir", &data];
    let (process, _) = ServerProcess::start(BINARY, &arguments, &dir.join("log"));
    (
        process,
        ApiServerClient::connect("upgraded", &dir.join("kubeconfig")),
    )
}

/// The object without the fields that controllers may change over time.
fn without_changing_fields(mut object: Value) -> Value {
    object.as_object_mut().unwrap().remove("status");
    let cluster = object["kind"] == "Cluster";
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.remove("resourceVersion");
    if cluster {
        metadata.remove("generation");
        object["spec"].as_object_mut().unwrap().remove("taints");
    }
    object
}

/// Checks that every object that the previous release served exists and can be written.
async fn check_nothing_lost(server: &ApiServerClient, shown: &str) {
    let shown: Value = machinery::json::from_slice(&decompress_fixture(shown)).unwrap();
    let items = shown["items"].as_array().unwrap();
    assert!(items.len() > 30, "{}", items.len());
    for before in items {
        let text = |field: &str| before["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let now = server.get(gvr(before), namespace, name).await;
        let now = now.unwrap_or_else(|| panic!("{} {namespace}/{name} is lost", before["kind"]));
        assert_eq!(
            without_changing_fields(now),
            without_changing_fields(before.clone())
        );
    }
    assert!(server.get(&CONFIG_MAPS, NAMESPACE, "gone").await.is_none());
    let revision = |o: &Value| {
        o["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let settings = items.iter().find(|o| o["metadata"]["name"] == "settings");
    let now = server
        .get(&CONFIG_MAPS, NAMESPACE, "settings")
        .await
        .unwrap();
    assert_eq!(revision(&now), revision(settings.unwrap()));
    let mut next = now.clone();
    next["data"]["color"] = "red".into();
    let at = ResourcePath::object(&CONFIG_MAPS, NAMESPACE, "settings");
    let written = server
        .api
        .update(at, next.into(), &WriteOptions::default())
        .await;
    let written = written.unwrap().value().unwrap();
    assert_eq!(
        written["data"],
        json!({"color": "red", "text": "line\nline"})
    );
}

fn read_user_version(dir: &Path) -> u32 {
    let file = std::fs::read(dir.join("store/store.db")).unwrap();
    u32::from_be_bytes(file[USER_VERSION_BYTES].try_into().unwrap())
}

#[tokio::test]
async fn a_data_directory_of_the_release_before_opens_without_loss() {
    let dir = unpack_data_directory();
    let authority = std::fs::read(dir.path().join("pki/ca.crt")).unwrap();
    let (process, server) = serve(dir.path());
    check_nothing_lost(&server, "data.json.gz").await;
    process.stop();
    assert_eq!(
        std::fs::read(dir.path().join("pki/ca.crt")).unwrap(),
        authority
    );
    assert_eq!(read_user_version(dir.path()), 3);
}

#[tokio::test]
async fn an_etcd_of_the_release_before_opens_without_loss() {
    let Some(etcd) = restore_etcd() else { return };
    assert!(etcd.etcdctl(&["get", FORMAT_KEY]).is_empty());
    let replica = ReplicaProcess::start("upgraded", &etcd.endpoints(), &[]);
    check_nothing_lost(&replica.server, "etcd.json.gz").await;
    let format = etcd.etcdctl(&["get", FORMAT_KEY, "--print-value-only"]);
    assert_eq!(format.trim(), "{\"format\":1}");
}

#[tokio::test]
async fn format_key_is_below_the_etcd_prefix() {
    let Some(etcd) = EtcdCluster::start(VERSION_3_5, 1) else {
        return;
    };
    let _replica = ReplicaProcess::start("one", &etcd.endpoints(), &["--etcd-prefix=/one"]);
    let keys = etcd.etcdctl(&["get", "", "--prefix", "--keys-only"]);
    let formats: Vec<&str> = keys.lines().filter(|k| k.contains("format")).collect();
    assert_eq!(formats, ["/one/flotilla/format"]);
}

#[test]
fn a_data_directory_of_a_newer_release_is_refused_and_untouched() {
    let dir = unpack_data_directory();
    let file = dir.path().join("store/store.db");
    let mut content = std::fs::read(&file).unwrap();
    content[USER_VERSION_BYTES].copy_from_slice(&4_u32.to_be_bytes());
    std::fs::write(&file, &content).unwrap();
    let mut serve = Command::new(BINARY);
    serve
        .args(["serve", "--listen=127.0.0.1:0", "--data-dir"])
        .arg(dir.path());
    let out = harness::process::run(&serve);
    let output = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{output}");
    let parts = [
        "store.db has format 4",
        "knows only formats 1 to 3",
        "a newer one",
    ];
    assert_contains_all(&output, &parts);
    assert_eq!(std::fs::read(&file).unwrap(), content);
    assert!(!dir.path().join("kubeconfig").exists());
}

#[test]
fn an_etcd_of_a_newer_release_is_refused_and_untouched() {
    let Some(etcd) = restore_etcd() else { return };
    etcd.etcdctl(&["put", FORMAT_KEY, "{\"format\":5}"]);
    let revision = || {
        let output = etcd.etcdctl(&["get", "none", "-w", "fields"]);
        let line = output.lines().find(|l| l.starts_with("\"Revision\""));
        line.unwrap().to_owned()
    };
    let before = revision();
    let output = startup_error(&etcd.endpoints(), &[]);
    let parts = [
        "/registry/flotilla/format has format 5",
        "knows only formats 1 to 4",
    ];
    assert_contains_all(&output, &parts);
    assert_eq!(revision(), before);
    etcd.etcdctl(&["put", FORMAT_KEY, "three"]);
    assert_contains_all(
        &startup_error(&etcd.endpoints(), &[]),
        &["does not hold a format version"],
    );
}

/// A running replica ends when a newer one has raised the format.
#[tokio::test]
async fn a_replica_ends_when_the_format_is_raised_beyond_it() {
    let Some(etcd) = EtcdCluster::start(VERSION_3_5, 1) else {
        return;
    };
    let mut replica = ReplicaProcess::start("old", &etcd.endpoints(), &[]);
    replica.server.list(&SECRETS, "").await;
    etcd.etcdctl(&["put", FORMAT_KEY, "{\"format\":5}"]);
    let ended = replica.wait_for_exit(EXIT_TIMEOUT).await;
    assert_eq!(ended.code(), Some(1));
    assert_contains_all(
        &replica.log(),
        &["has format 5", "knows only formats 1 to 4"],
    );
}

/// One replica stores Works as differences, the other one does not have the flag.
// proves: WRK-stored-once-converted
#[tokio::test]
async fn replicas_with_and_without_deltas_share_an_etcd() {
    let Some(etcd) = EtcdCluster::start(VERSION_3_5, 1) else {
        return;
    };
    let with_deltas = ReplicaProcess::start("deltas", &etcd.endpoints(), &["--etcd-deltas"]);
    let format = etcd.etcdctl(&["get", FORMAT_KEY, "--print-value-only"]);
    assert_eq!(format.trim(), "{\"format\":3}");
    let without = ReplicaProcess::start("without", &etcd.endpoints(), &[]);
    let prefix = "/registry/work.karmada.io/works/";
    let is_delta = |kv: &EtcdKeyValue| kv.value.starts_with(b"flotilla:delta:v1:/registry/work");
    for cluster in ["one", "two"] {
        let namespace = format!("karmada-es-{cluster}");
        with_deltas.server.create_namespace(&namespace).await;
        with_deltas.server.create(work(&namespace)).await;
    }
    let stored = etcd.list_prefix(prefix);
    assert!(stored.len() == 2 && stored.iter().all(is_delta));
    assert_eq!(etcd.list_prefix("/registry/flotilla/bases/").len(), 1);
    let works = without.server.list(&WORKS, "").await;
    assert_eq!(works.len(), 2);
    for work in works {
        let manifest = &work["spec"]["workload"]["manifests"][0];
        assert_eq!(manifest["data"]["text"], "configuration ".repeat(300));
    }
    let patch = json!({"metadata": {"labels": {"written-by": "without"}}});
    without
        .server
        .merge_patch(&WORKS, "karmada-es-one", "settings", patch)
        .await;
    let stored = etcd.list_prefix(prefix);
    assert_eq!(
        stored.iter().map(is_delta).collect::<Vec<_>>(),
        [false, true]
    );
    let now = with_deltas.server.get(&WORKS, "karmada-es-one", "settings");
    assert_eq!(
        now.await.unwrap()["metadata"]["labels"]["written-by"],
        "without"
    );
}

fn work(namespace: &str) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {"namespace": namespace, "name": "settings"},
        "spec": {"workload": {"manifests": [{
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": "shop", "name": "settings"},
            "data": {"text": "configuration ".repeat(300)},
        }]}},
    })
}

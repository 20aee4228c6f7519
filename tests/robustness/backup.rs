//! Takes backups while a writer never stops and restores them into a new data directory: every
//! object byte for byte, no resourceVersion twice, 410 for revisions from before.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use client::{Api, Error, ListOptions, ResourcePath, WatchOptions, WriteOptions};
use futures_util::StreamExt;
use harness::objects::{CONFIG_MAPS, config_map, deployment, policy, secret, widget};
use harness::process::{RunningCommand, run};
use harness::{ApiServerClient, EtcdCluster, ServerProcess};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use storage::backup::{BackupReader, BackupRecord, BackupSource};
use storage::{EmbeddedStore, EmbeddedStoreOptions, Store};
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_flotilla");
pub(crate) const NAMESPACE: &str = "kept";
/// More than one page of a backup.
const MAPS: usize = 600;
pub(crate) const SECRET_PLAINTEXT: &str = "the-plaintext-of-a-secret";
const ENCRYPTION: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n\
    resources:\n- {resources: [secrets], providers: [{secretbox: {keys: \
    [{name: k1, secret: MTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTE=}]}}, {identity: {}}]}\n";
const AUDIT_POLICY: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
/// Lists whose items are compared.
const LISTS: [&str; 7] = [
    "/api/v1/namespaces/kept/configmaps",
    "/api/v1/namespaces/kept/secrets",
    // Controllers record events when they start.
    "/api/v1/namespaces/kept/events?fieldSelector=metadata.name%3Devent",
    "/apis/example.org/v1/namespaces/kept/widgets",
    "/apis/apps/v1/namespaces/kept/deployments",
    "/apis/policy.karmada.io/v1alpha1/namespaces/kept/propagationpolicies",
    // Controllers aggregate others when they start.
    "/apis/rbac.authorization.k8s.io/v1/clusterroles?fieldSelector=metadata.name%3Dcluster-admin",
];

/// A directory with the files of servers, and a running server.
pub(crate) struct BackupTestServer {
    dir: TempDir,
    process: ServerProcess,
    pub(crate) client: ApiServerClient,
}

pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Serves with encryption and audit, on the etcd if there is one.
pub(crate) fn serve(
    dir: &Path,
    data: &Path,
    etcd: Option<&EtcdCluster>,
) -> (ServerProcess, ApiServerClient) {
    let (encryption, audit) = (dir.join("encryption.yaml"), dir.join("audit.yaml"));
    fs::write(&encryption, ENCRYPTION).unwrap();
    fs::write(&audit, AUDIT_POLICY).unwrap();
    let mut arguments = vec![
        "serve".to_owned(),
        "--listen=127.0.0.1:0".to_owned(),
        format!("--data-dir={}", data.display()),
        format!("--encryption-provider-config={}", encryption.display()),
        format!("--audit-policy-file={}", audit.display()),
        format!("--audit-log-path={}", dir.join("audit.log").display()),
    ];
    arguments.extend(etcd.map(|etcd| format!("--etcd-servers={}", etcd.endpoints())));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (process, _) = ServerProcess::start(PROGRAM, &arguments, &dir.join("log"));
    let client = ApiServerClient::connect("server", &data.join("kubeconfig"));
    (process, client)
}

impl BackupTestServer {
    pub(crate) async fn start() -> Self {
        Self::start_on(None).await
    }

    pub(crate) async fn start_on(etcd: Option<&EtcdCluster>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (process, client) = serve(dir.path(), &dir.path().join("data"), etcd);
        let server = Self {
            dir,
            process,
            client,
        };
        server.create_objects().await;
        server
    }

    /// `kill -9`; returns the directory of the files and the data directory.
    pub(crate) fn kill(self) -> (TempDir, PathBuf) {
        let data = self.file("data");
        drop(self.process);
        (self.dir, data)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn create_objects(&self) {
        let server = &self.client;
        server.create_namespace(NAMESPACE).await;
        server.create(harness::objects::widget_definition()).await;
        server
            .create(secret(NAMESPACE, "secret", SECRET_PLAINTEXT))
            .await;
        let about = deployment(NAMESPACE, "web", 1);
        server
            .create(policy(NAMESPACE, "policy", &about, &["m1"]))
            .await;
        server.create(about).await;
        let event = json!({"apiVersion": "v1", "kind": "Event",
            "metadata": {"name": "event", "namespace": NAMESPACE},
            "involvedObject": {"kind": "Secret", "name": "secret", "namespace": NAMESPACE},
            "reason": "Created", "message": "m", "type": "Normal"});
        server.create(event).await;
        harness::api_server_client::wait_until("widgets are served", async || {
            let widget = widget(NAMESPACE, "widget", 1);
            server.try_create(widget).await.is_ok()
        })
        .await;
        let maps = (0..MAPS).map(|n| {
            server.create(config_map(
                NAMESPACE,
                &format!("map{n:04}"),
                &n.to_string().repeat(40),
            ))
        });
        futures_util::stream::iter(maps)
            .buffer_unordered(32)
            .collect::<Vec<_>>()
            .await;
    }

    /// Runs `flotilla backup FILE` as the administrator.
    pub(crate) fn back_up(&self, file: &Path, more: &[&str]) -> Output {
        flotilla(
            &[
                &[
                    "backup",
                    &text(file),
                    "--kubeconfig",
                    &text(&self.file("data/kubeconfig")),
                ],
                more,
            ]
            .concat(),
        )
    }
}

pub(crate) fn flotilla(arguments: &[&str]) -> Output {
    tokio::task::block_in_place(|| run(Command::new(PROGRAM).args(arguments)))
}

pub(crate) fn assert_success(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
pub(crate) fn assert_refused(output: &Output, parts: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    crate::robustness::startup_errors::assert_contains_all(&error, parts);
}

/// Writes until it is told to stop, and keeps the highest acknowledged resourceVersion.
pub(crate) struct EndlessWriter {
    stop: Arc<AtomicBool>,
    writes: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<u64>,
}

impl EndlessWriter {
    pub(crate) fn start(api: &Arc<dyn Api>) -> Self {
        let (stop, writes) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let task = tokio::spawn(write_until(
            Arc::clone(api),
            Arc::clone(&stop),
            Arc::clone(&writes),
        ));
        Self { stop, writes, task }
    }

    /// Waits until it has written that many more times.
    pub(crate) async fn wait_for_writes(&self, more: u64) {
        let goal = self.writes.load(Ordering::Acquire) + more;
        harness::api_server_client::wait_until("more writes", async || {
            self.writes.load(Ordering::Acquire) >= goal
        })
        .await;
    }

    pub(crate) async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.task.await.unwrap()
    }
}

/// Changes objects at the beginning, in the middle and at the end of the keys.
async fn write_until(api: Arc<dyn Api>, stop: Arc<AtomicBool>, writes: Arc<AtomicU64>) -> u64 {
    let mut acknowledged = 0;
    for n in 0_u64.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let name = ["map0000", "map0300", "map0599"][n as usize % 3];
        let at = ResourcePath::object(&CONFIG_MAPS, NAMESPACE, name);
        let patch = client::Patch::Merge(json!({"data": {"written": n.to_string()}}));
        let options = WriteOptions::default();
        let written = api.patch(at, patch, &options).await.unwrap();
        acknowledged = acknowledged.max(revision_of(&written.value().unwrap()));
        let at = ResourcePath::collection(&CONFIG_MAPS, NAMESPACE);
        let created = config_map(NAMESPACE, &format!("later{n}"), "v");
        let written = api.create(at, created.into(), &options).await.unwrap();
        acknowledged = acknowledged.max(revision_of(&written.value().unwrap()));
        writes.fetch_add(1, Ordering::AcqRel);
    }
    acknowledged
}

pub(crate) fn revision_of(object: &serde_json::Value) -> u64 {
    let revision = &object["metadata"]["resourceVersion"];
    revision.as_str().unwrap().parse().unwrap()
}

#[derive(Deserialize)]
struct RawList {
    items: Vec<Box<RawValue>>,
}

/// The items of the lists, byte by byte; of one revision if one is named.
pub(crate) async fn raw_items(server: &ApiServerClient, revision: Option<u64>) -> Vec<Vec<String>> {
    let mut lists = Vec::new();
    for path in LISTS {
        let query = revision.map_or_else(String::new, |revision| {
            let mark = if path.contains('?') { '&' } else { '?' };
            format!("{mark}resourceVersion={revision}&resourceVersionMatch=Exact")
        });
        let list = server.api.get_raw(&format!("{path}{query}")).await.unwrap();
        let list: RawList = machinery::json::from_slice(&list).unwrap();
        assert!(!list.items.is_empty(), "{path}");
        let items = list.items.iter().map(|item| item.get().to_owned());
        lists.push(items.collect());
    }
    lists
}

/// Panics with the first difference.
pub(crate) fn assert_same_items<T: PartialEq + std::fmt::Debug>(
    actual: &[Vec<T>],
    expected: &[Vec<T>],
) {
    for ((actual, expected), path) in actual.iter().zip(expected).zip(LISTS) {
        for (actual, expected) in actual.iter().zip(expected) {
            assert_eq!(actual, expected, "{path}");
        }
        assert_eq!(actual.len(), expected.len(), "{path}");
    }
}

/// Copies the authority and the token key, as an operator has to.
fn copy_keys(from: &Path, to: &Path) {
    fs::create_dir(to.join("pki")).unwrap();
    for entry in fs::read_dir(from.join("pki")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join("pki").join(entry.file_name())).unwrap();
    }
}

/// All keys of a stopped server's store as they were at a revision.
async fn stored_records(data: &Path, revision: Option<u64>) -> Vec<BackupRecord> {
    let end = Instant::now() + Duration::from_secs(90);
    let store = loop {
        // A program that another test starts inherits the lock for a moment, from its fork to
        // its exec.
        match EmbeddedStore::open(&data.join("store"), EmbeddedStoreOptions::default()) {
            Ok(store) => break store,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let revision = match revision {
        Some(revision) => revision,
        None => store.revision().await.unwrap(),
    };
    let mut records: Vec<BackupRecord> = Vec::new();
    loop {
        let after = records.last().map_or("", |last| &last.key).to_owned();
        let page = store.snapshot_page(&after, revision).await.unwrap();
        records.extend(page.records);
        if page.is_last {
            store.close().await;
            return records;
        }
    }
}

/// Checks that a resourceVersion of before the restore is answered with 410.
pub(crate) async fn assert_gone(server: &ApiServerClient, revision: u64) {
    let at = ResourcePath::collection(&CONFIG_MAPS, NAMESPACE);
    let options = WatchOptions {
        resource_version: revision.to_string(),
        ..WatchOptions::default()
    };
    let first = match server.api.watch(at, &options).await {
        Err(error) => Err(error),
        Ok(mut events) => events.next().await.unwrap(),
    };
    let error = first.map(drop).unwrap_err();
    assert!(
        matches!(&error, Error::Status(s) if s.code == 410),
        "{error}"
    );
}

async fn first_page(server: &ApiServerClient) -> ListOptions {
    let at = ResourcePath::collection(&CONFIG_MAPS, NAMESPACE);
    let mut options = ListOptions {
        limit: 1,
        ..ListOptions::default()
    };
    let page = server.api.list(at, &options).await.unwrap();
    options.continue_token = page.continue_token;
    assert!(!options.continue_token.is_empty());
    options
}

pub(crate) fn header_revision(file: &Path) -> u64 {
    BackupReader::open(file).unwrap().header().revision
}

// proves: BAK-online, BAK-equal, BAK-revisions, BAK-encrypted, BAK-expiry
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_writes_is_restored_byte_by_byte_and_old_revisions_are_gone() {
    let server = BackupTestServer::start().await;
    let continued = first_page(&server.client).await;
    let writer = EndlessWriter::start(&server.client.api);
    writer.wait_for_writes(5).await;
    let file = server.file("backup");
    let output = assert_success(&server.back_up(&file, &[]));
    let revision = header_revision(&file);
    assert!(
        output.contains(&format!(" at revision {revision}, ")),
        "{output}"
    );
    writer.wait_for_writes(5).await;
    let recorded = raw_items(&server.client, Some(revision)).await;
    let acknowledged = writer.stop().await;
    assert!(acknowledged > revision);
    let (dir, data) = server.kill();
    check_file(&dir, &file);

    let new = dir.path().join("new");
    let restored = flotilla(&["restore", &text(&file), "--data-dir", &text(&new)]);
    let output = assert_success(&restored);
    let begins = revision + 1_000_000_000;
    assert!(
        output.contains(&format!("begins at revision {begins}")),
        "{output}"
    );
    let stored = stored_records(&new, None).await;
    assert!(stored == stored_records(&data, Some(revision)).await);
    let event = stored
        .iter()
        .find(|r| &*r.key == "/registry/events/kept/event");
    assert!(event.unwrap().expires_at_ms.is_some());

    copy_keys(&data, &new);
    let (_process, server) = serve(dir.path(), &new, None);
    assert_same_items(&raw_items(&server, None).await, &recorded);
    let created = server.create(config_map(NAMESPACE, "new", "v")).await;
    assert!(revision_of(&created) > begins.max(acknowledged));
    for old in [1, revision, acknowledged, begins - 1] {
        assert_gone(&server, old).await;
    }
    let at = ResourcePath::collection(&CONFIG_MAPS, NAMESPACE);
    let error = server.api.list(at, &continued).await.unwrap_err();
    assert!(error.is_expired(), "{error}");
}

/// The file is the owner's alone, has no plaintext of Secrets, and is in the audit log.
fn check_file(dir: &TempDir, file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(
        fs::metadata(file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let mut reader = BackupReader::open(file).unwrap();
    let plain = [
        SECRET_PLAINTEXT.to_owned(),
        BASE64_STANDARD.encode(SECRET_PLAINTEXT),
    ];
    let mut secrets = 0;
    while let Some(record) = reader.next_record().unwrap() {
        let value = String::from_utf8_lossy(&record.value);
        assert!(!plain.iter().any(|p| value.contains(p.as_str())));
        secrets += u64::from(value.starts_with("k8s:enc:secretbox:v1:k1:"));
    }
    assert!(secrets > 0);
    let audit = fs::read_to_string(dir.path().join("audit.log")).unwrap();
    assert!(audit.contains(r#""requestURI":"/flotilla/backup""#));
    let left = fs::read_dir(dir.path()).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(
        !left
            .into_iter()
            .any(|name| name.starts_with(".flotilla-backup-"))
    );
}

/// A kubeconfig of the administrator that impersonates a user.
fn impersonating(server: &BackupTestServer, user: &str) -> String {
    let admin = fs::read_to_string(server.file("data/kubeconfig")).unwrap();
    let file = server.file("impersonating");
    fs::write(
        &file,
        admin.replace("  user:\n", &format!("  user:\n    as: {user}\n")),
    )
    .unwrap();
    text(&file)
}

// proves: BAK-access
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_needs_the_right_to_its_path() {
    let server = BackupTestServer::start().await;
    let kubeconfig = impersonating(&server, "operator");
    let file = server.file("backup");
    let back_up = ["backup", &text(&file), "--kubeconfig", &kubeconfig];
    let rejection = flotilla(&back_up);
    assert_refused(
        &rejection,
        &[r#"forbidden: User "operator" cannot get path "/flotilla/backup""#],
    );
    assert!(!file.exists());
    let api = "rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": "backup"},
        "rules": [{"nonResourceURLs": ["/flotilla/backup"], "verbs": ["get"]}]});
    let binding = json!({"apiVersion": api, "kind": "ClusterRoleBinding",
        "metadata": {"name": "backup"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "backup"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "operator"}]});
    server.client.create(role).await;
    server.client.create(binding).await;
    harness::api_server_client::wait_until("the right is there", async || {
        flotilla(&back_up).status.success()
    })
    .await;
    let again = flotilla(&back_up);
    assert_refused(
        &again,
        &["exists; choose another name, or replace it with --force"],
    );
    assert_success(&flotilla(&[&back_up[..], &["--force"]].concat()));
    let output = assert_success(&flotilla(&["backup", &text(&file), "--verify"]));
    assert!(output.contains("is whole: "), "{output}");
}

// proves: BAK-verified
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_backup_is_refused_and_nothing_is_written() {
    let server = BackupTestServer::start().await;
    let file = server.file("backup");
    assert_success(&server.back_up(&file, &[]));
    let undamaged = fs::read(&file).unwrap();
    let flipped = {
        let mut bytes = undamaged.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        bytes
    };
    let future = [b"flotilla-backup 2\n", &undamaged[18..]].concat();
    for (bytes, error) in [
        (&undamaged[..undamaged.len() - 1], "it is not complete"),
        (&undamaged[..undamaged.len() / 2], "it is not complete"),
        (&flipped[..], "it is damaged: "),
        (&future[..], "it has format 2 of backups, and this version"),
        (b"{}", "it is not a backup of Flotilla"),
        (b"", "it is not complete"),
    ] {
        let other = server.file("other");
        fs::write(&other, bytes).unwrap();
        let new = server.file("new");
        let restored = flotilla(&["restore", &text(&other), "--data-dir", &text(&new)]);
        assert_refused(&restored, &["cannot use the backup ", error]);
        assert!(!new.exists());
        let verified = flotilla(&["backup", &text(&other), "--verify"]);
        assert_refused(&verified, &["cannot use the backup ", error]);
    }
    let data = text(&server.file("data"));
    let running = flotilla(&["restore", &text(&file), "--data-dir", &data, "--force"]);
    assert_refused(&running, &["is in use by process"]);
    let BackupTestServer { dir, process, .. } = server;
    process.stop();
    let there = flotilla(&["restore", &text(&file), "--data-dir", &data]);
    assert_refused(
        &there,
        &["exists; choose another data directory", "--force"],
    );
    assert_success(&flotilla(&[
        "restore",
        &text(&file),
        "--data-dir",
        &data,
        "--force",
    ]));
    let (_process, server) = serve(dir.path(), Path::new(&data), None);
    assert!(!raw_items(&server, None).await.is_empty());
}

/// Starts a restore and kills it while it writes. Returns whether it was in time.
async fn kill_restore(file: &Path, data: &Path) -> bool {
    let mut restore = Command::new(PROGRAM);
    restore.args(["restore", &text(file), "--data-dir", &text(data)]);
    let mut restore = RunningCommand::start(&restore);
    let building = data.join("store/restore-incomplete/store.db");
    while restore.child.try_wait().unwrap().is_none() && !building.exists() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(restore);
    data.join("store/restore-incomplete").exists()
}

// proves: BAK-cut-off
#[tokio::test(flavor = "multi_thread")]
async fn no_server_starts_where_a_restore_was_killed() {
    let server = BackupTestServer::start().await;
    for n in 0..30 {
        let large = config_map(NAMESPACE, &format!("large{n}"), &"x".repeat(1_000_000));
        server.client.create(large).await;
    }
    let file = server.file("backup");
    assert_success(&server.back_up(&file, &[]));
    let mut attempt = 0;
    let data = loop {
        let data = server.file(&format!("new{attempt}"));
        if kill_restore(&file, &data).await {
            break data;
        }
        attempt += 1;
        assert!(attempt < 20, "every restore ended before it was killed");
    };
    let started = flotilla(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        &text(&data),
    ]);
    assert_refused(
        &started,
        &["a restore into the data directory was not completed"],
    );
    assert_success(&flotilla(&[
        "restore",
        &text(&file),
        "--data-dir",
        &text(&data),
    ]));
    let recorded = raw_items(&server.client, Some(header_revision(&file))).await;
    let (dir, old) = server.kill();
    copy_keys(&old, &data);
    let (_process, server) = serve(dir.path(), &data, None);
    assert_same_items(&raw_items(&server, None).await, &recorded);
}

//! Backup of what Flotilla keeps in etcd, and restore into an etcd: every value byte for
//! byte, 410 for the resourceVersions of before, nothing that starts where it was cut off.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use harness::objects::{SECRETS, config_map};
use harness::process::RunningCommand;
use harness::{ApiServerClient, EtcdCluster, etcd};
use serde_json::Value;
use storage::backup::BackupReader;

use crate::robustness::backup::{
    BackupTestServer, EndlessWriter, NAMESPACE, PROGRAM, SECRET_PLAINTEXT, assert_gone,
    assert_refused, assert_same_items, assert_success, flotilla, header_revision, raw_items,
    revision_of, serve, text,
};

const FORMAT_KEY: &str = "/registry/flotilla/format";

/// The values below the prefix and whether they have a lease, by key.
fn stored_values(etcd: &EtcdCluster) -> BTreeMap<String, (Vec<u8>, bool)> {
    let all = tokio::task::block_in_place(|| etcd.list_prefix("/registry/"));
    let all = all.into_iter().filter(|stored| stored.key != FORMAT_KEY);
    all.map(|stored| (stored.key, (stored.value, stored.lease != 0)))
        .collect()
}

fn backed_up_values(file: &Path) -> BTreeMap<String, (Vec<u8>, bool)> {
    let mut reader = BackupReader::open(file).unwrap();
    let mut all = BTreeMap::new();
    while let Some(record) = reader.next_record().unwrap() {
        let expires = record.expires_at_ms.is_some();
        all.insert(record.key.to_string(), (record.value.to_vec(), expires));
    }
    all
}

/// The items of the lists without their resourceVersions, which etcd assigns anew.
async fn items(server: &ApiServerClient, revision: Option<u64>) -> Vec<Vec<Value>> {
    let lists = raw_items(server, revision).await.into_iter();
    let unversioned = |item: String| {
        let mut item: Value = machinery::json::from_str(&item).unwrap();
        item["metadata"]["resourceVersion"].take();
        item
    };
    lists
        .map(|list| list.into_iter().map(unversioned).collect())
        .collect()
}

// proves: BAK-etcd, BAK-online, BAK-expiry
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_etcd_is_restored_and_old_revisions_are_gone() {
    let Some(etcd) = EtcdCluster::start(etcd::VERSION_3_5, 1) else {
        return;
    };
    let server = BackupTestServer::start_on(Some(&etcd)).await;
    let writer = EndlessWriter::start(&server.client.api);
    writer.wait_for_writes(5).await;
    let file = server.file("backup");
    assert_success(&server.back_up(&file, &[]));
    let revision = header_revision(&file);
    writer.wait_for_writes(5).await;
    let recorded = items(&server.client, Some(revision)).await;
    let acknowledged = writer.stop().await;
    let (dir, data) = server.kill();

    let servers = format!("--etcd-servers={}", etcd.endpoints());
    tokio::task::block_in_place(|| etcd.etcdctl(&["put", "/registrz/other", "kept"]));
    let before = stored_values(&etcd);
    let rejection = flotilla(&["restore", &text(&file), &servers]);
    assert_refused(
        &rejection,
        &["keys lie below the etcd prefix /registry", "--force"],
    );
    assert!(stored_values(&etcd) == before);
    assert_success(&flotilla(&["restore", &text(&file), &servers, "--force"]));
    let values = backed_up_values(&file);
    assert!(values["/registry/events/kept/event"].1);
    assert!(stored_values(&etcd) == values);
    let others = tokio::task::block_in_place(|| etcd.list_prefix("/registrz/"));
    assert_eq!(others[0].value, b"kept");

    let (_process, server) = serve(dir.path(), &data, Some(&etcd));
    assert_same_items(&items(&server, None).await, &recorded);
    let created = server.create(config_map(NAMESPACE, "new", "v")).await;
    assert!(revision_of(&created) > acknowledged);
    for old in [revision, acknowledged] {
        assert_gone(&server, old).await;
    }
}

// proves: BAK-etcd-behind
#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_would_use_revisions_again_is_refused() {
    let Some(etcd) = EtcdCluster::start(etcd::VERSION_3_5, 1) else {
        return;
    };
    let server = BackupTestServer::start().await;
    let file = server.file("backup");
    assert_success(&server.back_up(&file, &[]));
    let servers = format!("--etcd-servers={}", etcd.endpoints());
    let rejection = flotilla(&["restore", &text(&file), &servers]);
    assert_refused(
        &rejection,
        &[
            "etcd is at revision 1 and the backup at",
            "--bump-revision 1000000000",
        ],
    );
    assert!(stored_values(&etcd).is_empty());
    let other = flotilla(&["restore", &text(&file), &servers, "--etcd-prefix=/other"]);
    assert_refused(&other, &["bound to the prefix /registry"]);
}

// proves: BAK-etcd-behind
#[tokio::test(flavor = "multi_thread")]
async fn a_new_etcd_with_a_raised_revision_takes_the_backup_of_an_embedded_store() {
    let Some(etcd) = EtcdCluster::start(etcd::VERSION_3_5, 1) else {
        return;
    };
    let server = BackupTestServer::start().await;
    let writer = EndlessWriter::start(&server.client.api);
    writer.wait_for_writes(5).await;
    let file = server.file("backup");
    assert_success(&server.back_up(&file, &[]));
    writer.wait_for_writes(5).await;
    let acknowledged = writer.stop().await;
    let snapshot = server.file("snapshot");
    let (dir, _) = server.kill();
    tokio::task::block_in_place(|| etcd.etcdctl(&["snapshot", "save", &text(&snapshot)]));
    let bump = ["--bump-revision=1000000000", "--mark-compacted"];
    let etcd = EtcdCluster::restore(etcd::VERSION_3_5, &snapshot, &bump).unwrap();
    let servers = format!("--etcd-servers={}", etcd.endpoints());
    assert_success(&flotilla(&["restore", &text(&file), &servers]));
    assert!(stored_values(&etcd) == backed_up_values(&file));

    let data = dir.path().join("new");
    let (_process, server) = serve(dir.path(), &data, Some(&etcd));
    let secret = server.get(&SECRETS, NAMESPACE, "secret").await.unwrap();
    assert_eq!(
        secret["data"]["k"],
        BASE64_STANDARD.encode(SECRET_PLAINTEXT)
    );
    let created = server.create(config_map(NAMESPACE, "new", "v")).await;
    assert!(revision_of(&created) > acknowledged);
    for old in [header_revision(&file), acknowledged] {
        assert_gone(&server, old).await;
    }
}

// proves: BAK-cut-off
#[tokio::test(flavor = "multi_thread")]
async fn no_server_starts_on_an_etcd_where_a_restore_was_killed() {
    let Some(etcd) = EtcdCluster::start(etcd::VERSION_3_5, 1) else {
        return;
    };
    let server = BackupTestServer::start_on(Some(&etcd)).await;
    let file = server.file("backup");
    assert_success(&server.back_up(&file, &[]));
    let (dir, data) = server.kill();
    let servers = format!("--etcd-servers={}", etcd.endpoints());
    let mut attempt = 0;
    while !kill_restore(&file, &servers, &etcd).await {
        attempt += 1;
        assert!(attempt < 20, "every restore ended before it was killed");
    }
    let started = flotilla(&[
        "serve",
        "--listen=127.0.0.1:0",
        "--data-dir",
        &text(&data),
        &servers,
    ]);
    assert_refused(&started, &["was not completed", "--force"]);
    let again = flotilla(&["restore", &text(&file), &servers]);
    assert_refused(&again, &["keys lie below the etcd prefix"]);
    assert_success(&flotilla(&["restore", &text(&file), &servers, "--force"]));
    assert!(stored_values(&etcd) == backed_up_values(&file));
    let (_process, server) = serve(dir.path(), &data, Some(&etcd));
    assert!(!raw_items(&server, None).await.is_empty());
}

/// Starts a restore and kills it after it has begun to write. Returns whether it was in time.
async fn kill_restore(file: &Path, servers: &str, etcd: &EtcdCluster) -> bool {
    let mut restore = Command::new(PROGRAM);
    restore.args(["restore", &text(file), servers, "--force"]);
    let mut restore = RunningCommand::start(&restore);
    let is_restoring = || {
        let format = tokio::task::block_in_place(|| etcd.list_prefix(FORMAT_KEY));
        format.iter().any(|f| f.value == b"{\"restoring\":true}")
    };
    while restore.child.try_wait().unwrap().is_none() && !is_restoring() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(restore);
    is_restoring()
}

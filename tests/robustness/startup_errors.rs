//! Startup errors: `flotilla serve` ends with one line that gives the reason.

use std::path::Path;
use std::process::Command;

use harness::{EtcdCluster, etcd};

use crate::robustness::ReplicaProcess;

/// Runs `flotilla serve`, which must fail, and returns its error line.
pub(crate) fn startup_error(servers: &str, more: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut serve = Command::new(env!("CARGO_BIN_EXE_flotilla"));
    serve
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir.path())
        .args(["--etcd-servers", servers])
        .args(more);
    let out = harness::process::run(&serve);
    assert!(!out.status.success());
    assert!(out.stdout.is_empty(), "nothing is ready");
    let output = String::from_utf8(out.stderr).unwrap();
    let errors: Vec<&str> = output
        .lines()
        .filter(|l| l.starts_with("error: "))
        .collect();
    assert_eq!(errors.len(), 1, "{output}");
    assert!(output.ends_with(&format!("{}\n", errors[0])), "{output}");
    errors[0].to_owned()
}

pub(crate) fn assert_contains_all(output: &str, parts: &[&str]) {
    for part in parts {
        assert!(output.contains(part), "{part:?} is not in: {output}");
    }
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

#[tokio::test]
async fn etcd_certificates_must_match() {
    let Some(etcd) = EtcdCluster::start_tls(etcd::VERSION_3_5, 1) else {
        return;
    };
    let tls = etcd.tls().unwrap();
    let servers = etcd.endpoints();
    let (ca, certificate, key) = (
        path_text(&tls.ca),
        path_text(&tls.certificate),
        path_text(&tls.key),
    );
    let right = [
        "--etcd-cafile",
        &ca,
        "--etcd-certfile",
        &certificate,
        "--etcd-keyfile",
        &key,
    ];
    let replica = ReplicaProcess::start("tls", &servers, &right);
    replica.server.api.get_raw("/readyz").await.unwrap();

    // Without `--etcd-cafile` the server's certificate is not trusted.
    let output = startup_error(&servers, &right[2..]);
    let parts = [
        "error: cannot use etcd: etcd at ",
        &servers,
        "invalid peer certificate",
    ];
    assert_contains_all(&output, &parts);
    // The server requires a client certificate.
    let output = startup_error(&servers, &right[..2]);
    assert_contains_all(
        &output,
        &["cannot use etcd", &servers, "CertificateRequired"],
    );
    let output = startup_error(&servers, &["--etcd-cafile", "/nowhere/ca.crt"]);
    assert_contains_all(
        &output,
        &["--etcd-cafile", "/nowhere/ca.crt", "No such file"],
    );
    let output = startup_error(&servers, &["--etcd-cafile", &key]);
    assert_contains_all(&output, &["cannot use etcd"]);
}

/// etcd answers no plain HTTP on a TLS port; the start waits half a minute.
#[harness::slow]
#[test]
fn tls_must_be_spoken() {
    let Some(etcd) = EtcdCluster::start_tls(etcd::VERSION_3_5, 1) else {
        return;
    };
    let plain = etcd.endpoints().replace("https://", "http://");
    assert_contains_all(&startup_error(&plain, &[]), &["cannot use etcd", &plain]);
}

#[test]
fn data_of_another_program_is_not_changed() {
    let Some(etcd) = EtcdCluster::start(etcd::VERSION_3_4, 1) else {
        return;
    };
    etcd.etcdctl(&["put", "/registry/namespaces/default", "k8s\u{1}protobuf"]);
    let output = startup_error(&etcd.endpoints(), &[]);
    assert_contains_all(&output, &["/registry", "another program", "--etcd-prefix"]);
    let keys = etcd.etcdctl(&["get", "/", "--prefix", "--keys-only"]);
    assert_eq!(keys.trim(), "/registry/namespaces/default");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let replica =
            ReplicaProcess::start("beside", &etcd.endpoints(), &["--etcd-prefix", "/flotilla"]);
        replica.server.api.get_raw("/readyz").await.unwrap();
    });
    let keys = etcd.etcdctl(&["get", "/", "--prefix", "--keys-only"]);
    let is_own = |key: &&str| key.starts_with("/flotilla/");
    let keys: Vec<&str> = keys.lines().filter(|k| !k.is_empty()).collect();
    assert!(keys.iter().filter(|k| is_own(k)).count() > 10);
    assert_eq!(keys.iter().filter(|k| !is_own(k)).count(), 1, "{keys:?}");
}

#[test]
fn urls_must_be_urls() {
    let output = startup_error("127.0.0.1:2379", &[]);
    assert_contains_all(
        &output,
        &["cannot use etcd", "127.0.0.1:2379", "https://HOST:PORT"],
    );
}

/// The start waits half a minute, because etcd may be starting, and reports that.
#[harness::slow]
#[test]
fn etcd_does_not_answer() {
    let nobody = format!("http://127.0.0.1:{}", harness::port::free_port());
    let output = startup_error(&nobody, &[]);
    assert_contains_all(
        &output,
        &["cannot use etcd", &nobody, "did not answer within 30 s"],
    );
}

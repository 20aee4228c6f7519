//! Startup errors: `flotilla serve` ends with one line that gives the reason.

use std::path::Path;
use std::process::Command;

use harness::{Etcd, etcd};

use crate::Replica;

/// Runs `flotilla serve`, which must fail, and returns its error line.
pub(crate) fn refused(servers: &str, more: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_flotilla"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir.path())
        .args(["--etcd-servers", servers])
        .args(more)
        .output()
        .unwrap();
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

pub(crate) fn check(output: &str, parts: &[&str]) {
    for part in parts {
        assert!(output.contains(part), "{part:?} is not in: {output}");
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[tokio::test]
async fn certificates_must_fit() {
    let Some(etcd) = Etcd::start_tls(etcd::NEW, 1) else {
        return;
    };
    let tls = etcd.tls().unwrap();
    let servers = etcd.endpoints();
    let (ca, certificate, key) = (text(&tls.ca), text(&tls.certificate), text(&tls.key));
    let right = [
        "--etcd-cafile",
        &ca,
        "--etcd-certfile",
        &certificate,
        "--etcd-keyfile",
        &key,
    ];
    let replica = Replica::start("tls", &servers, &right);
    replica.server.api.raw("/readyz").await.unwrap();

    // Without `--etcd-cafile` the server's certificate is not trusted.
    let output = refused(&servers, &right[2..]);
    let parts = [
        "error: cannot use etcd: etcd at ",
        &servers,
        "invalid peer certificate",
    ];
    check(&output, &parts);
    // The server requires a client certificate.
    let output = refused(&servers, &right[..2]);
    check(
        &output,
        &["cannot use etcd", &servers, "CertificateRequired"],
    );
    let output = refused(&servers, &["--etcd-cafile", "/nowhere/ca.crt"]);
    check(
        &output,
        &["--etcd-cafile", "/nowhere/ca.crt", "No such file"],
    );
    let output = refused(&servers, &["--etcd-cafile", &key]);
    check(&output, &["cannot use etcd"]);
}

/// etcd answers no plain HTTP on a TLS port; the start waits half a minute.
#[harness::slow]
#[test]
fn tls_must_be_spoken() {
    let Some(etcd) = Etcd::start_tls(etcd::NEW, 1) else {
        return;
    };
    let plain = etcd.endpoints().replace("https://", "http://");
    check(&refused(&plain, &[]), &["cannot use etcd", &plain]);
}

#[test]
fn another_programs_data_is_left_alone() {
    let Some(etcd) = Etcd::start(etcd::OLD, 1) else {
        return;
    };
    etcd.ctl(&["put", "/registry/namespaces/default", "k8s\u{1}protobuf"]);
    let output = refused(&etcd.endpoints(), &[]);
    check(&output, &["/registry", "another program", "--etcd-prefix"]);
    let keys = etcd.ctl(&["get", "/", "--prefix", "--keys-only"]);
    assert_eq!(keys.trim(), "/registry/namespaces/default");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let replica = Replica::start("beside", &etcd.endpoints(), &["--etcd-prefix", "/flotilla"]);
        replica.server.api.raw("/readyz").await.unwrap();
    });
    let keys = etcd.ctl(&["get", "/", "--prefix", "--keys-only"]);
    let ours = |key: &&str| key.starts_with("/flotilla/");
    let keys: Vec<&str> = keys.lines().filter(|k| !k.is_empty()).collect();
    assert!(keys.iter().filter(|k| ours(k)).count() > 10);
    assert_eq!(keys.iter().filter(|k| !ours(k)).count(), 1, "{keys:?}");
}

#[test]
fn urls_must_be_urls() {
    let output = refused("127.0.0.1:2379", &[]);
    check(
        &output,
        &["cannot use etcd", "127.0.0.1:2379", "https://HOST:PORT"],
    );
}

/// The start waits half a minute, because etcd may be starting, and reports that.
#[harness::slow]
#[test]
fn nobody_there() {
    let nobody = format!("http://127.0.0.1:{}", harness::port::free());
    let output = refused(&nobody, &[]);
    check(
        &output,
        &["cannot use etcd", &nobody, "did not answer within 30 s"],
    );
}

//! Errors at startup: the process prints one line, exits with code 1, and changes no data.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::api::test_server::{ApiTestServer, BINARY};

/// Runs a command, which must fail with one line on standard error that contains all fragments.
fn assert_fails(arguments: &[&str], fragments: &[&str]) {
    let out = harness::process::run(Command::new(BINARY).args(arguments));
    let errors = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{arguments:?}: {errors}");
    assert!(out.stdout.is_empty(), "{arguments:?}");
    assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
    assert!(errors.starts_with("error: "), "{errors}");
    for fragment in fragments {
        assert!(errors.contains(fragment), "no {fragment:?} in {errors}");
    }
}

#[test]
fn flags_of_another_mode_are_rejected_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let serve = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        data.to_str().unwrap(),
    ];
    let aggregated = ["--kubeconfig", "/nowhere/kubeconfig"];
    let host = "only behind another API server (--kubeconfig or --in-cluster)";
    let alone = "only when Flotilla serves alone";
    let elected = "only with leader election (--etcd-servers or --leader-elect)";
    for (flags, reason) in [
        (&["--service-name", "f"][..], host),
        (&["--service-namespace", "f"], host),
        (&["--service-port", "443"], host),
        (&["--host-workloads", "propagate"], host),
        (&["--leader-elect-lease-duration", "30s"], elected),
        (
            &[aggregated[0], aggregated[1], "--tls-san", "f.example"],
            alone,
        ),
    ] {
        let flag = flags.iter().rfind(|f| f.starts_with("--")).unwrap();
        assert_fails(&[&serve[..], flags].concat(), &[flag, reason]);
    }
    assert!(!data.exists(), "a failed start creates nothing");
}

#[test]
fn a_data_directory_in_which_others_could_place_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("planted"), "").unwrap();
    std::fs::set_permissions(&data, Permissions::from_mode(0o777)).unwrap();
    assert_serve_fails(
        &data,
        "127.0.0.1:0",
        &["every user can write to it (mode 777)"],
    );
    assert_eq!(std::fs::read_dir(&data).unwrap().count(), 1);
}

fn assert_serve_fails(data: &Path, listen: &str, fragments: &[&str]) {
    let data = data.to_str().unwrap();
    assert_fails(
        &["serve", "--data-dir", data, "--listen", listen],
        fragments,
    );
}

#[test]
fn a_port_in_use_is_named() {
    let test_server = ApiTestServer::shared();
    let dir = tempfile::tempdir().unwrap();
    let fragments = [test_server.address.as_str(), "is in use", "--listen"];
    assert_serve_fails(&dir.path().join("data"), &test_server.address, &fragments);
}

#[test]
fn a_directory_in_use_is_not_touched() {
    let test_server = ApiTestServer::shared();
    assert_serve_fails(
        &test_server.data_dir(),
        "127.0.0.1:0",
        &["is in use by process", "choose another directory"],
    );
    assert_eq!(test_server.get("/readyz").code, 200);
}

#[test]
fn damaged_and_foreign_stores_are_not_touched() {
    let foreign = {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let test_server = ApiTestServer::start();
        std::fs::create_dir_all(data.join("store")).unwrap();
        std::fs::copy(
            test_server.data_dir().join("pki/ca.crt"),
            data.join("store/store.db"),
        )
        .unwrap();
        let before = std::fs::read(data.join("store/store.db")).unwrap();
        assert_serve_fails(
            &data,
            "127.0.0.1:0",
            &[
                "store.db is damaged or not a store",
                "restore it from a backup",
            ],
        );
        assert_eq!(std::fs::read(data.join("store/store.db")).unwrap(), before);
        dir
    };
    let file = foreign.path().join("file");
    std::fs::write(&file, "text").unwrap();
    assert_serve_fails(&file, "127.0.0.1:0", &[file.to_str().unwrap()]);
    let keys = foreign.path().join("keys");
    std::fs::create_dir_all(keys.join("pki")).unwrap();
    for name in ["ca.crt", "ca.key"] {
        std::fs::write(keys.join("pki").join(name), "junk").unwrap();
    }
    assert_serve_fails(
        &keys,
        "127.0.0.1:0",
        &["pki/ca.", "restore it from a backup"],
    );
}

#[test]
fn an_invalid_kubeconfig_is_named() {
    let test_server = ApiTestServer::shared();
    let dir = tempfile::tempdir().unwrap();
    let own = test_server.kubeconfig();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (bad, empty, none) = (path("bad"), path("empty"), path("none"));
    std::fs::write(&bad, "{{{").unwrap();
    std::fs::write(&empty, "").unwrap();
    let own = own.to_str().unwrap();
    for (cluster, control, fragments) in [
        (bad.as_str(), own, [bad.as_str(), "not a kubeconfig"]),
        (&empty, own, [&empty, "no current-context"]),
        (&none, own, [&none, "no such file"]),
        (own, &bad, [&bad, "not a kubeconfig"]),
    ] {
        let join = ["join", "m1", "--cluster-kubeconfig", cluster];
        assert_fails(
            &[&join[..], &["--kubeconfig", control]].concat(),
            &fragments,
        );
    }
    let clusters = test_server
        .get("/apis/cluster.karmada.io/v1alpha1/clusters")
        .json();
    assert_eq!(clusters["items"], serde_json::json!([]));
}

#[test]
fn an_invalid_audit_policy_is_refused_with_its_field() {
    let dir = tempfile::tempdir().unwrap();
    let (data, policy) = (dir.path().join("data"), dir.path().join("policy.yaml"));
    let text = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: All}]}";
    std::fs::write(&policy, text).unwrap();
    let [path, policy] = [&data, &policy].map(|path| path.to_str().unwrap());
    let log = ["--audit-log-path", "-", "--listen", "127.0.0.1:0"];
    let flags = ["serve", "--data-dir", path, "--audit-policy-file", policy];
    let field = "rules[0].level: Unsupported value: \"All\"";
    assert_fails(
        &[&flags[..], &log].concat(),
        &["--audit-policy-file", field],
    );
    assert!(!data.exists(), "a failed start creates nothing");
}

#[test]
fn audit_modes_and_formats_that_are_not_served_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().display().to_string();
    for (flag, fragment) in [
        ("--audit-log-mode=blocking", "requests never wait"),
        (
            "--audit-webhook-mode=blocking-strict",
            "requests never wait",
        ),
        ("--audit-log-format=legacy", "use json"),
    ] {
        assert_fails(&["serve", "--data-dir", &data, flag], &[flag, fragment]);
    }
}

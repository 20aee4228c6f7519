//! Tests of the keys and certificates in a directory.

use super::*;
use std::os::unix::fs::PermissionsExt;

fn at(day: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + day * DAY_SECONDS as i64).unwrap()
}

#[test]
fn files_are_reused_and_renewed() {
    let dir = tempfile::tempdir().unwrap();
    let names = vec!["10.1.2.3".to_owned(), "Hub.example".to_owned()];
    let first = Pki::open(dir.path(), &names, at(0)).unwrap();
    let reopened = Pki::open(dir.path(), &names, at(1)).unwrap();
    assert_eq!(
        first.serving.certificate_pem,
        reopened.serving.certificate_pem
    );
    assert_eq!(first.admin.certificate_pem, reopened.admin.certificate_pem);
    assert_eq!(first.token_key_pem, reopened.token_key_pem);

    let renamed = Pki::open(dir.path(), &[], at(1)).unwrap();
    assert_ne!(
        first.serving.certificate_pem,
        renamed.serving.certificate_pem
    );
    assert_eq!(first.admin.certificate_pem, renamed.admin.certificate_pem);

    let renewed = Pki::open(dir.path(), &[], at(340)).unwrap();
    assert_ne!(renewed.admin.certificate_pem, renamed.admin.certificate_pem);
    assert_eq!(renewed.ca_pem, first.ca_pem);

    let mode = |name: &str| {
        fs::metadata(dir.path().join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    for key in ["ca.key", "server.key", "admin.key", "sa.key"] {
        assert_eq!(mode(key), 0o600, "{key}");
    }
}

#[test]
fn admin_is_in_system_masters() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path(), &[], at(0)).unwrap();
    let der = CertificateDer::from_pem_slice(pki.admin.certificate_pem.as_bytes()).unwrap();
    let user = pki.verifier().unwrap().authenticate(&[der], at(1)).unwrap();
    assert_eq!(user.name, "kubernetes-admin");
    assert!(user.in_group(SYSTEM_PRIVILEGED_GROUP));
    let config = pki.admin_kubeconfig("https://127.0.0.1:6443", &pki.ca_pem);
    assert!(config.contains("server: \"https://127.0.0.1:6443\""));
    assert!(!config.contains("fleet"));
    let config = pki.admin_kubeconfig_with_fleet("https://127.0.0.1:6443", &pki.ca_pem);
    for path in ["fleet", "fleet-tree"] {
        assert!(config.contains(&format!("server: \"https://127.0.0.1:6443/{path}\"")));
    }
    assert!(config.contains("current-context: flotilla\n"));
}

#[test]
fn client_certificates_have_every_group_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path(), &[], at(0)).unwrap();
    let groups: Vec<String> = ["b", "a", "g\u{fc}"].map(str::to_owned).into();
    for groups in [&groups[..], &[]] {
        let signed = pki.sign_client_certificate("ann", groups, at(0)).unwrap();
        let der = CertificateDer::from_pem_slice(signed.certificate_pem.as_bytes()).unwrap();
        let user = pki.verifier().unwrap().authenticate(&[der], at(1)).unwrap();
        assert_eq!(user.name, "ann");
        let (last, certificate_groups) = user.groups.split_last().unwrap();
        assert_eq!(certificate_groups, groups);
        assert_eq!(last, "system:authenticated");
    }
}

#[test]
fn malformed_files_yield_advice() {
    let check = |file: &str, content: Option<&str>, expect: &str| {
        let dir = tempfile::tempdir().unwrap();
        Pki::open(dir.path(), &[], at(0)).unwrap();
        match content {
            Some(text) => fs::write(dir.path().join(file), text).unwrap(),
            None => fs::remove_file(dir.path().join(file)).unwrap(),
        }
        let error = Pki::open(dir.path(), &[], at(0)).err().unwrap().to_string();
        assert!(error.contains(file) && error.contains(expect), "{error}");
    };
    check("ca.crt", Some("x"), "remove ca.crt and ca.key");
    check("ca.key", Some("x"), "remove ca.crt and ca.key");
    check("ca.key", None, "missing beside ca.crt");
    check("server.crt", Some("x"), "remove it");
    check("sa.key", Some("x"), "service account tokens");
}

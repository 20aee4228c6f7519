//! Serving certificates, authorities and token keys that files of the operator provide.

use std::path::Path;
use std::time::{Duration, Instant};

use auth::pki::Pki;
use auth::token::{ServiceAccountClaims, ServiceAccountTokens};
use harness::raw_http::{RawHttpRequest, TestTlsClientConfig};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::test_server::{ApiTestServer, start_error};

fn write(dir: &Path, name: &str, content: &str) -> String {
    let file = dir.join(name);
    std::fs::write(&file, content).unwrap();
    file.display().to_string()
}

/// Whether a client that trusts `ca` alone reaches the server by a name.
fn trusts(server: &ApiTestServer, ca: &str, name: &str) -> bool {
    let client = TestTlsClientConfig::new(ca, None);
    let (address, name) = (server.address.clone(), name.to_owned());
    let attempt = std::thread::spawn(move || {
        let request = RawHttpRequest::new(&address, &client, "GET", "/livez");
        request.server_name(&name).send().code
    });
    attempt.join().is_ok_and(|code| code == 200)
}

fn wait_until(description: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(90);
    while !check() {
        assert!(Instant::now() < end, "{description}");
        harness::sleep_blocking(Duration::from_millis(50));
    }
}

#[test]
fn serving_certificates_of_files_are_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let now = Timestamp::now();
    let open = |name: &str, names: &[&str]| {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        Pki::open(&dir.path().join(name), &names, now).unwrap()
    };
    let (first, second) = (open("first", &[]), open("second", &[]));
    let sni = open("sni", &["api.example"]);
    let files = dir.path();
    let certificate = write(files, "tls.crt", &first.serving.certificate_pem);
    let key = write(files, "tls.key", &first.serving.key_pem);
    let sni_certificate = write(files, "sni.crt", &sni.serving.certificate_pem);
    let sni_key = write(files, "sni.key", &sni.serving.key_pem);
    let root_ca = write(files, "root.crt", &first.ca_pem);
    let by_name = format!("{sni_certificate},{sni_key}:api.example");
    let server = ApiTestServer::start_with(&[
        "--tls-cert-file",
        &certificate,
        "--tls-private-key-file",
        &key,
        "--tls-sni-cert-key",
        &by_name,
        "--root-ca-file",
        &root_ca,
    ]);
    assert!(trusts(&server, &first.ca_pem, "localhost"));
    assert!(!trusts(&server, &second.ca_pem, "localhost"));
    assert!(trusts(&server, &sni.ca_pem, "api.example"));
    assert!(!trusts(&server, &first.ca_pem, "api.example"));
    let kubeconfig = std::fs::read_to_string(server.kubeconfig()).unwrap();
    let authority = |pem: &str| {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(pem)
    };
    assert!(kubeconfig.contains(&authority(&first.ca_pem)));
    // A certificate without its key is not served; the former one stays until both fit.
    write(files, "tls.crt", &second.serving.certificate_pem);
    assert!(trusts(&server, &first.ca_pem, "localhost"));
    write(files, "tls.key", &second.serving.key_pem);
    write(files, "root.crt", &second.ca_pem);
    wait_until("the new certificate is never served", || {
        trusts(&server, &second.ca_pem, "localhost")
    });
    wait_until("the new root is never published", || {
        let kubeconfig = std::fs::read_to_string(server.kubeconfig()).unwrap();
        kubeconfig.contains(&authority(&second.ca_pem))
    });
    let bad = write(files, "bad.crt", "no certificate");
    let flags = ["--tls-cert-file", &bad, "--tls-private-key-file", &key];
    assert!(start_error(&flags).contains("--tls-cert-file"));
    let error = start_error(&["--tls-cert-file", &certificate]);
    assert!(error.contains("--tls-private-key-file"), "{error}");
}

#[test]
fn tokens_of_a_former_signing_key_stay_valid_while_it_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let keys: Vec<rcgen::KeyPair> = [
        &rcgen::PKCS_RSA_SHA256,
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
    ]
    .map(|algorithm| rcgen::KeyPair::generate_for(algorithm).unwrap())
    .into();
    let [new, former, stranger] = &keys[..] else {
        unreachable!()
    };
    let signing = write(dir.path(), "new.key", &new.serialize_pem());
    let public = write(dir.path(), "new.pub", &new.public_key_pem());
    let former_public = write(dir.path(), "former.pub", &former.public_key_pem());
    let server = ApiTestServer::start_with(&[
        "--service-account-signing-key-file",
        &signing,
        "--service-account-key-file",
        &public,
        "--service-account-key-file",
        &former_public,
    ]);
    let account = json!({"metadata": {"name": "bot"}});
    let created = server.post("/api/v1/namespaces/default/serviceaccounts", &account);
    assert_eq!(created.code, 201, "{}", created.text());
    let uid = created.json()["metadata"]["uid"]
        .as_str()
        .unwrap()
        .to_owned();
    let token_of = |key: &rcgen::KeyPair| {
        let signer = ServiceAccountTokens::new(&key.serialize_pem()).unwrap();
        let now = Timestamp::now();
        let claims = ServiceAccountClaims {
            namespace: "default".into(),
            account: "bot".into(),
            account_uid: uid.clone(),
            bound: None,
            secret: None,
            audiences: vec![signer.issuer().to_owned()],
            expires: Some(now.as_second() + 600),
            not_before: Some(now.as_second()),
            id: "j".into(),
        };
        signer.issue(&claims, now).unwrap()
    };
    let code = |token: &str| {
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let request = RawHttpRequest::new(&server.address, &server.anonymous, "POST", path);
        let request = request.header("Authorization", &format!("Bearer {token}"));
        request.json(&json!({})).send().code
    };
    assert_eq!(code(&token_of(former)), 201);
    assert_eq!(code(&token_of(stranger)), 401);
    let path = "/api/v1/namespaces/default/serviceaccounts/bot/token";
    let issued = server.post(path, &json!({"spec": {}})).json();
    assert_eq!(code(issued["status"]["token"].as_str().unwrap()), 201);
    let keys = server.get("/openid/v1/jwks").json();
    let kinds: Vec<&Value> = keys["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|k| &k["alg"])
        .collect();
    assert_eq!(kinds, ["RS256", "ES256"]);
    let document = server.get("/.well-known/openid-configuration").json();
    let algorithms = &document["id_token_signing_alg_values_supported"];
    assert_eq!(*algorithms, json!(["ES256", "RS256"]));
    let error = start_error(&["--service-account-signing-key-file", &signing]);
    assert!(error.contains("--service-account-key-file"), "{error}");
    let error = start_error(&["--service-account-key-file", &path.replace('/', "_")]);
    assert!(error.contains("cannot read"), "{error}");
}

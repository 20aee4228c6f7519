//! Bootstrap tokens: the command that manages them, what they authenticate, the signed
//! ConfigMap by which their holders trust the server, and the certificates that agents obtain
//! with them.

use std::path::Path;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::certificate_requests::certificate_request;
use harness::raw_http::{RawHttpRequest, RawHttpResponse};
use serde_json::{Value, json};

use crate::api::http_requests::wait_until;
use crate::api::test_server::{ApiTestServer, BINARY};

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const REVIEW: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

fn flotilla(kubeconfig: &Path, line: &str) -> (bool, String, String) {
    let output = Command::new(BINARY)
        .args(line.split_whitespace())
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (
        output.status.success(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Creates a token with the command, and returns what it prints.
pub(crate) fn create_token(server: &ApiTestServer, flags: &str) -> String {
    let (created, output, error) = flotilla(&server.kubeconfig(), &format!("token create {flags}"));
    assert!(created, "{error}");
    output
}

fn request_with<'a>(
    server: &'a ApiTestServer,
    token: &str,
    method: &'a str,
    path: &'a str,
) -> RawHttpRequest<'a> {
    RawHttpRequest::new(&server.address, &server.anonymous, method, path)
        .header("Authorization", &format!("Bearer {token}"))
}

fn review(server: &ApiTestServer, token: &str) -> RawHttpResponse {
    request_with(server, token, "POST", REVIEW)
        .json(&json!({}))
        .send()
}

fn cluster_info(server: &ApiTestServer) -> Value {
    let request = RawHttpRequest::new(&server.address, &server.anonymous, "GET", CLUSTER_INFO);
    let reply = request.send();
    assert_eq!(reply.code, 200, "{}", reply.text());
    reply.json()["data"].clone()
}

// proves: TOK-authenticate, TOK-expire
#[test]
fn a_token_authenticates_until_it_is_deleted() {
    let server = ApiTestServer::shared();
    let token = create_token(&server, "--description edge");
    let (id, secret) = token.split_once('.').unwrap();
    let reply = review(&server, &token);
    assert_eq!(reply.code, 201, "{}", reply.text());
    let user = &reply.json()["status"]["userInfo"];
    assert_eq!(user["username"], format!("system:bootstrap:{id}"));
    assert_eq!(
        user["groups"],
        json!([
            "system:bootstrappers",
            "system:bootstrappers:karmada:default-cluster-token",
            "system:authenticated"
        ])
    );
    let listed = flotilla(&server.kubeconfig(), "token list").1;
    let line = listed
        .lines()
        .find(|line| line.starts_with(&token))
        .unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    let shown = ["23h", "authentication,signing", "edge"];
    assert_eq!([cells[1], cells[3], cells[4]], shown, "{listed}");
    assert!(listed.starts_with("TOKEN "), "{listed}");

    assert_eq!(
        review(&server, &format!("{id}.{}", "0".repeat(16))).code,
        401
    );
    let signing = create_token(&server, "--usages signing");
    assert_eq!(review(&server, &signing).code, 401);
    let path = format!("{SECRETS}/bootstrap-token-{id}");
    let request = request_with(&server, &token, "GET", &path).send();
    assert_eq!(request.code, 403, "a token reads no secrets");

    let (deleted, output, error) = flotilla(&server.kubeconfig(), &format!("token delete {token}"));
    assert!(deleted, "{error}");
    assert_eq!(output, format!("bootstrap token {id:?} deleted"));
    // Deletions reach the authenticator by its cache, as in Kubernetes.
    wait_until("the token is refused", || {
        (review(&server, &token).code == 401).then_some(())
    });
    let (deleted, _, error) = flotilla(&server.kubeconfig(), &format!("token delete {id}"));
    assert!(!deleted && error.contains("not found"), "{error}");
    let (deleted, _, error) = flotilla(&server.kubeconfig(), &format!("token delete {secret}"));
    assert!(
        !deleted && error.contains("didn't match pattern"),
        "{error}"
    );
    assert!(!error.contains(secret), "{error}");
}

#[test]
fn an_expired_token_is_refused_and_deleted() {
    let server = ApiTestServer::shared();
    let token = create_token(&server, "--ttl 1s");
    let id = &token[..6];
    let path = format!("{SECRETS}/bootstrap-token-{id}");
    wait_until("the token is gone", || {
        (server.get(&path).code == 404).then_some(())
    });
    assert_eq!(review(&server, &token).code, 401);
    let key = format!("jws-kubeconfig-{id}");
    wait_until("its signature is gone", || {
        cluster_info(&server)[&key].is_null().then_some(())
    });
}

// proves: TOK-cluster-info
#[test]
fn everybody_reads_the_address_and_a_token_signs_it() {
    let server = ApiTestServer::shared();
    let command = create_token(&server, "--print-register-command");
    let words: Vec<&str> = command.split_whitespace().collect();
    assert_eq!(words[..2], ["flotilla", "register"], "{command}");
    assert_eq!(words[2], server.address, "{command}");
    assert_eq!(words[3], "--token");
    assert_eq!(words[5], "--discovery-token-ca-cert-hash");
    let pin = words[6].strip_prefix("sha256:").unwrap();
    assert!(pin.len() == 64 && pin.bytes().all(|b| b.is_ascii_hexdigit()));
    let (id, secret) = words[4].split_once('.').unwrap();
    let data = wait_until("the signature", || {
        let data = cluster_info(&server);
        data[format!("jws-kubeconfig-{id}")]
            .is_string()
            .then_some(data)
    });
    let kubeconfig = data["kubeconfig"].as_str().unwrap();
    let parsed: Value = serde_saphyr::from_str(kubeconfig).unwrap();
    let cluster = &parsed["clusters"][0]["cluster"];
    assert_eq!(cluster["server"], format!("https://{}", server.address));
    let ca = std::fs::read_to_string(server.data_dir().join("pki/ca.crt")).unwrap();
    assert_eq!(cluster["certificate-authority-data"], STANDARD.encode(ca));
    let signature = data[format!("jws-kubeconfig-{id}")].as_str().unwrap();
    let (header, rest) = signature.split_once('.').unwrap();
    let expected = json!({"alg": "HS256", "kid": id}).to_string();
    let decoded = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(header)
        .unwrap();
    assert_eq!(String::from_utf8(decoded).unwrap(), expected);
    assert!(rest.starts_with('.') && !signature.contains(secret));

    // A change by somebody else is put right.
    let changed = json!({"data": {"kubeconfig": "elsewhere"}});
    let request = server.request("PATCH", CLUSTER_INFO);
    let reply = request
        .body("application/merge-patch+json", changed.to_string())
        .send();
    assert_eq!(reply.code, 200, "{}", reply.text());
    wait_until("the address", || {
        (cluster_info(&server)["kubeconfig"] == kubeconfig).then_some(())
    });
}

fn request_certificate(server: &ApiTestServer, token: &str, name: &str, user: &str, group: &str) {
    let request = certificate_request(user, group, &[]);
    let body = json!({"apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"signerName": "kubernetes.io/kube-apiserver-client",
            "request": STANDARD.encode(request.request_pem),
            "usages": ["digital signature", "key encipherment", "client auth"]}});
    let reply = request_with(server, token, "POST", CSRS).json(&body).send();
    assert_eq!(reply.code, 201, "{}", reply.text());
}

// proves: CSR-agent
#[test]
fn certificates_of_agents_are_approved_for_tokens_and_no_others() {
    let server = ApiTestServer::shared();
    let token = create_token(&server, "");
    let other = create_token(&server, "--groups system:bootstrappers:other");
    let agents = "system:karmada:agents";
    let agent = "system:karmada:agent:csr-m1";
    request_certificate(&server, &token, "agent-group", agent, "system:nodes");
    request_certificate(&server, &token, "agent-name", "system:admin", agents);
    request_certificate(&server, &token, "agent-csr-m1", agent, agents);
    let reply = request_with(&server, &other, "POST", CSRS)
        .json(&json!({}))
        .send();
    assert_eq!(reply.code, 403, "{}", reply.text());
    let status = wait_until("the certificate", || {
        let path = format!("{CSRS}/agent-csr-m1");
        let status = request_with(&server, &token, "GET", &path).send().json()["status"].clone();
        status["certificate"].is_string().then_some(status)
    });
    let condition = &status["conditions"][0];
    assert_eq!(condition["reason"], "AutoApproved");
    assert_eq!(
        condition["message"],
        "Auto approving karmada agent certificate after SubjectAccessReview."
    );
    // They were created before.
    for name in ["agent-group", "agent-name"] {
        let status = server.get(&format!("{CSRS}/{name}")).json()["status"].clone();
        assert!(status["conditions"].is_null(), "{name}: {status}");
    }
}

// proves: TOK-flag
#[test]
fn tokens_may_be_turned_off() {
    let server = ApiTestServer::start_with(&["--enable-bootstrap-token-auth=false"]);
    let token = create_token(&server, "");
    assert_eq!(review(&server, &token).code, 401);
    let request = RawHttpRequest::new(&server.address, &server.admin, "GET", CLUSTER_INFO);
    assert_eq!(request.send().code, 404);
}

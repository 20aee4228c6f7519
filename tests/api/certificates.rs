//! CertificateSigningRequests: validation, approval, signatures, and the certificates that
//! result.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::certificate_requests::certificate_request;
use harness::raw_http::{RawHttpRequest, RawHttpResponse, TestTlsClientConfig};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

use crate::api::access::wait_until_code;
use crate::api::kubectl::{fails, succeeds, succeeds_with_input, with_each_kubectl};
use crate::api::test_server::ApiTestServer;

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const API_SERVER_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const TIMEOUT: Duration = Duration::from_secs(90);

fn csr(name: &str, signer: &str, request_pem: &str, usages: &[&str]) -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {"signerName": signer, "request": STANDARD.encode(request_pem),
            "usages": usages}})
}

fn condition(kind: &str) -> Value {
    json!({"status": {"conditions": [{"type": kind, "status": "True", "reason": "Test"}]}})
}

fn assert_code(code: u16, reply: &RawHttpResponse) {
    assert_eq!(reply.code, code, "{}", reply.text());
}

impl ApiTestServer {
    fn merge(&self, path: &str, patch: &Value) -> RawHttpResponse {
        let request = self.request("PATCH", path);
        request
            .body("application/merge-patch+json", patch.to_string())
            .send()
    }

    /// Waits until a request has a certificate or has failed, and returns its status.
    fn wait_for_signer(&self, name: &str) -> Value {
        let end = Instant::now() + TIMEOUT;
        loop {
            let status = self.get(&format!("{CSRS}/{name}")).json()["status"].clone();
            let failed = |c: &Value| c["type"] == "Failed";
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            if status["certificate"].is_string() || conditions.iter().any(failed) {
                return status;
            }
            assert!(Instant::now() < end, "{name} is not signed: {status}");
        }
    }

    /// A client with an issued certificate.
    fn client(&self, status: &Value, key_pem: &str) -> TestTlsClientConfig {
        let pem = STANDARD
            .decode(status["certificate"].as_str().unwrap())
            .unwrap();
        let ca = std::fs::read_to_string(self.data_dir().join("pki/ca.crt")).unwrap();
        let pem = String::from_utf8(pem).unwrap();
        TestTlsClientConfig::new(&ca, Some((&pem, key_pem)))
    }
}

#[test]
fn an_approved_request_becomes_a_certificate_of_its_subject() {
    let server = ApiTestServer::shared();
    let signing_request = certificate_request("csr-ann", "csr-staff", &[]);
    let mut body = csr(
        "csr-ann",
        API_SERVER_CLIENT,
        &signing_request.request_pem,
        &["client auth"],
    );
    // The server records the requesting user, whatever the request says.
    body["spec"]["username"] = "system:admin".into();
    body["spec"]["groups"] = json!(["system:masters"]);
    body["spec"]["expirationSeconds"] = 3600.into();
    body["status"] = condition("Approved")["status"].clone();
    let rule = json!({"apiGroups": ["certificates.k8s.io"], "verbs": ["*"],
        "resources": ["certificatesigningrequests", "certificatesigningrequests/approval",
            "certificatesigningrequests/status"]});
    server.grant("csr-requester", "csr-requester", None, &rule);
    let created = wait_until_code(201, || {
        server
            .request_as("csr-requester", "POST", CSRS)
            .json(&body)
            .send()
    });
    let spec = created.json()["spec"].clone();
    assert_eq!(spec["username"], "csr-requester");
    assert_eq!(spec["groups"], json!(["system:authenticated"]));
    assert!(
        created.json()["status"]["conditions"].is_null(),
        "{}",
        created.text()
    );

    // The spec does not change, and approval needs a right on the signer.
    let path = format!("{CSRS}/csr-ann");
    let changed = server.merge(&path, &json!({"spec": {"usages": ["server auth"]}}));
    assert_code(200, &changed);
    assert_eq!(changed.json()["spec"], spec);
    let approval = format!("{path}/approval");
    let denied = server.merge_as("csr-requester", &approval, &condition("Approved"));
    assert_code(403, &denied);
    let message = denied.json()["message"].as_str().unwrap().to_owned();
    let denial = "user not permitted to approve requests with signerName \"kubernetes.io/kube-apiserver-client\"";
    assert!(message.ends_with(denial), "{message}");
    let status = format!("{path}/status");
    let signed = json!({"status": {"certificate": STANDARD.encode("x")}});
    assert_code(403, &server.merge_as("csr-requester", &status, &signed));
    assert_code(422, &server.merge(&status, &condition("Approved")));
    assert_code(422, &server.merge(&status, &signed));
    assert_code(200, &server.merge_as("csr-requester", &status, &json!({})));

    let right = |verb: &str, signer: &str| {
        json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"],
            "resourceNames": [signer], "verbs": [verb]})
    };
    server.grant(
        "csr-approver",
        "csr-approver",
        None,
        &right("approve", "kubernetes.io/*"),
    );
    server.grant("csr-approver", "csr-approver-writes", None, &rule);
    server.grant(
        "csr-requester",
        "csr-other",
        None,
        &right("approve", "example.com/own"),
    );
    let approved = wait_until_code(200, || {
        server.merge_as("csr-approver", &approval, &condition("Approved"))
    });
    let set = approved.json()["status"]["conditions"][0].clone();
    assert!(set["lastUpdateTime"].is_string() && set["lastTransitionTime"].is_string());
    let status = server.wait_for_signer("csr-ann");
    let client = server.client(&status, &signing_request.key_pem);
    let review = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let request = RawHttpRequest::new(&server.address, &client, "POST", review);
    let user = request.json(&json!({})).send();
    assert_code(201, &user);
    let user = user.json()["status"]["userInfo"].clone();
    assert_eq!(user["username"], "csr-ann");
    assert_eq!(user["groups"], json!(["csr-staff", "system:authenticated"]));

    // An earlier decision stays.
    let conditions = json!({"status": {"conditions": []}});
    assert_code(422, &server.merge(&approval, &conditions));
    assert_code(422, &server.merge(&format!("{path}/status"), &conditions));
    let other = json!({"status": {"certificate": STANDARD.encode("other")}});
    assert_code(422, &server.merge(&format!("{path}/status"), &other));
    let kept = server.merge(&approval, &other);
    assert_code(200, &kept);
    assert_eq!(kept.json()["status"]["certificate"], status["certificate"]);
}

#[test]
fn malformed_requests_are_refused() {
    let server = ApiTestServer::shared();
    let request = certificate_request("csr-bad", "", &[]).request_pem;
    let auth: &[&str] = &["client auth"];
    let with = |field: &str, value: Value| {
        let mut body = csr("csr-bad", API_SERVER_CLIENT, &request, auth);
        body["spec"][field] = value;
        body
    };
    let table = [
        (
            with("request", STANDARD.encode("no PEM").into()),
            422,
            "spec.request",
        ),
        (with("request", "".into()), 422, "spec.request"),
        (with("usages", json!([])), 422, "spec.usages"),
        (
            with("usages", json!(["client auth", "fly"])),
            422,
            "spec.usages[1]",
        ),
        (
            with("usages", json!(["client auth", "client auth"])),
            422,
            "spec.usages[1]",
        ),
        (with("signerName", "".into()), 422, "spec.signerName"),
        (
            with("signerName", "kubernetes.io/legacy-unknown".into()),
            422,
            "spec.signerName",
        ),
        (
            with("signerName", "nodomain".into()),
            422,
            "spec.signerName",
        ),
        (
            with("signerName", "nodots/name".into()),
            422,
            "spec.signerName",
        ),
        (
            with("signerName", "example.com/a/b".into()),
            422,
            "spec.signerName",
        ),
        (
            with("signerName", "example.com/A".into()),
            422,
            "spec.signerName",
        ),
        (
            with("expirationSeconds", 599.into()),
            422,
            "spec.expirationSeconds",
        ),
    ];
    for (body, code, field) in table {
        let reply = server.post(CSRS, &body);
        assert_code(code, &reply);
        assert_eq!(
            reply.json()["details"]["causes"][0]["field"],
            field,
            "{}",
            reply.text()
        );
    }
    let masters = certificate_request("csr-bad", "system:masters", &[]).request_pem;
    let reply = server.post(CSRS, &csr("csr-bad", API_SERVER_CLIENT, &masters, auth));
    assert_code(403, &reply);
    assert!(
        reply.text().contains("system:masters group is not allowed"),
        "{}",
        reply.text()
    );
}

#[test]
fn signers_refuse_what_they_do_not_sign() {
    let server = ApiTestServer::shared();
    let client = certificate_request("csr-c", "", &[]).request_pem;
    let serving = certificate_request("system:node:a", "system:nodes", &["a"]).request_pem;
    let kubelet: &[&str] = &["digital signature", "server auth"];
    let table: [(&str, &str, &str, &[&str], &str); 4] = [
        (
            "csr-usage",
            API_SERVER_CLIENT,
            &client,
            &["server auth"],
            "invalid usage",
        ),
        (
            "csr-node",
            KUBELET_CLIENT,
            &client,
            &["digital signature", "client auth"],
            "organization",
        ),
        (
            "csr-serving",
            KUBELET_SERVING,
            &client,
            kubelet,
            "organization",
        ),
        ("csr-signed", KUBELET_SERVING, &serving, kubelet, ""),
    ];
    for (name, signer, pem, usages, message) in table {
        assert_code(201, &server.post(CSRS, &csr(name, signer, pem, usages)));
        let approval = format!("{CSRS}/{name}/approval");
        assert_code(200, &server.merge(&approval, &condition("Approved")));
        let status = server.wait_for_signer(name);
        assert_eq!(
            status["certificate"].is_string(),
            message.is_empty(),
            "{status}"
        );
        if !message.is_empty() {
            let failed = &status["conditions"][1];
            assert_eq!(failed["reason"], "SignerValidationFailure");
            assert!(
                failed["message"].as_str().unwrap().contains(message),
                "{status}"
            );
        }
    }
    // Another signer's request waits for that signer, and a denied one for nobody.
    for (name, signer, decision) in [
        ("csr-foreign", "example.com/own", "Approved"),
        ("csr-denied", API_SERVER_CLIENT, "Denied"),
    ] {
        assert_code(
            201,
            &server.post(CSRS, &csr(name, signer, &client, &["client auth"])),
        );
        let approval = format!("{CSRS}/{name}/approval");
        assert_code(200, &server.merge(&approval, &condition(decision)));
    }
    let both = json!({"status": {"conditions": [
        {"type": "Denied", "status": "True"}, {"type": "Approved", "status": "True"}]}});
    let approval = format!("{CSRS}/csr-denied/approval");
    assert_code(422, &server.merge(&approval, &both));
    for name in ["csr-foreign", "csr-denied"] {
        let status = server.get(&format!("{CSRS}/{name}")).json()["status"].clone();
        assert!(status["certificate"].is_null(), "{status}");
        assert_eq!(
            status["conditions"].as_array().unwrap().len(),
            1,
            "{status}"
        );
    }
}

#[test]
fn kubelets_with_the_right_are_approved_without_an_administrator() {
    let server = ApiTestServer::shared();
    let usages = ["digital signature", "key encipherment", "client auth"];
    let request = certificate_request("system:node:b", "system:nodes", &[]);
    let body = |name: &str| csr(name, KUBELET_CLIENT, &request.request_pem, &usages);
    let create = |user: &str, name: &str| {
        server
            .request_as(user, "POST", CSRS)
            .json(&body(name))
            .send()
    };
    let rule = |resource: &str| {
        json!({"apiGroups": ["certificates.k8s.io"], "resources": [resource],
            "verbs": ["create"]})
    };
    for user in ["csr-bootstrap", "csr-stranger", "system:node:b"] {
        server.grant(
            user,
            &format!("csr-{user}"),
            None,
            &rule("certificatesigningrequests"),
        );
    }
    wait_until_code(201, || create("csr-stranger", "csr-stranger"));
    let nodes = rule("certificatesigningrequests/nodeclient");
    server.grant("csr-bootstrap", "csr-nodeclient", None, &nodes);
    let own = rule("certificatesigningrequests/selfnodeclient");
    server.grant("system:node:b", "csr-selfnodeclient", None, &own);
    server.grant("csr-stranger", "csr-stranger-self", None, &own);
    for (user, name) in [
        ("csr-bootstrap", "csr-first"),
        ("system:node:b", "csr-renewed"),
    ] {
        let right = ["nodeclient", "selfnodeclient"];
        let right = right[usize::from(user != "csr-bootstrap")];
        let review = json!({"spec": {"resourceAttributes": {"group": "certificates.k8s.io",
            "resource": "certificatesigningrequests", "subresource": right, "verb": "create"}}});
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let end = Instant::now() + TIMEOUT;
        while server
            .request_as(user, "POST", path)
            .json(&review)
            .send()
            .json()["status"]["allowed"]
            != true
        {
            assert!(Instant::now() < end, "{user} has no right");
        }
        wait_until_code(201, || create(user, name));
        let status = server.wait_for_signer(name);
        assert_eq!(
            status["conditions"][0]["reason"], "AutoApproved",
            "{status}"
        );
        assert!(status["certificate"].is_string(), "{status}");
    }
    let stranger = server.get(&format!("{CSRS}/csr-stranger")).json();
    assert!(stranger["status"]["conditions"].is_null(), "{stranger}");
}

#[test]
fn kubectl_approves_and_denies_certificates() {
    with_each_kubectl("csr", |kubectl| {
        let request = certificate_request("csr-kubectl", "", &[]).request_pem;
        let file = |decision: &str| {
            let name = format!("{}-{decision}", kubectl.namespace);
            csr(&name, API_SERVER_CLIENT, &request, &["client auth"]).to_string()
        };
        kubectl.run_commands(&[
            succeeds_with_input("create -f -", &file("yes"), &["created"]),
            succeeds_with_input("create -f -", &file("no"), &["created"]),
            succeeds(
                "get csr NS-yes",
                &[API_SERVER_CLIENT, "kubernetes-admin", "<none>", "Pending"],
            ),
            succeeds("certificate approve NS-yes", &["NS-yes approved"]),
            succeeds("certificate deny NS-no", &["NS-no denied"]),
            succeeds("get csr NS-no", &["Denied", "!Issued"]),
            fails("certificate approve NS-absent", &["not found"]),
            succeeds(
                "describe csr NS-no",
                &["Requesting User: kubernetes-admin", "Status: Denied"],
            ),
        ]);
        let end = Instant::now() + TIMEOUT;
        while !kubectl.output("get csr NS-yes").contains("Approved,Issued") {
            assert!(
                Instant::now() < end,
                "{} is never issued",
                kubectl.namespace
            );
        }
    });
}

// proves: CRT-server
#[test]
fn the_ends_of_the_servers_certificates_are_a_metric() {
    let server = ApiTestServer::shared();
    let metrics = server.get("/metrics").text();
    let day = 24.0 * 60.0 * 60.0;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap().as_secs_f64();
    for (certificate, days) in [("serving", 364.0), ("signing", 3649.0)] {
        let name = format!(
            "flotilla_certificate_expiration_timestamp_seconds{{certificate=\"{certificate}\"}} "
        );
        let value = metrics.lines().find_map(|line| line.strip_prefix(&name));
        let expires: f64 = value
            .unwrap_or_else(|| panic!("no {name}"))
            .parse()
            .unwrap();
        let left = (expires - now) / day;
        assert!(left > days && left < days + 2.0, "{certificate}: {left}");
    }
}

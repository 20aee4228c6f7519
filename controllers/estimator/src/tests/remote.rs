//! Tests of requests to estimators of clusters and of local estimates.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use client::Api;
use members::Detail;
use openapi::karmada::binding::Component;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::PrivateKeyDer;
use scheduler::core::{Answer, Source};
use scheduler::{Asked, Candidate, Estimators, Question};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

use super::lab::{Lab, NODES, QUOTAS, SERVICES, node, until};
use super::peer::{Peer, Says};
use crate::{Estimator, Files, Options};

const ALL: Detail = Detail {
    nodes: true,
    quotas: true,
};

fn service(cluster: &str, kind: &str, to: SocketAddr) -> Value {
    json!({"metadata": {"name": format!("karmada-scheduler-estimator-{cluster}"), "namespace": "karmada-system"},
           "spec": {"type": kind, "externalName": to.ip().to_string(),
                    "ports": [{"port": 10352, "targetPort": to.port()}]}})
}

fn start(lab: &Lab, options: Options) -> Arc<dyn Estimators> {
    let api: Arc<dyn Api> = lab.host.clone();
    Estimator::start(&api, &lab.informers, &lab.members, options, &lab.tasks)
}

/// Options with a timeout that is short enough for tests to wait for.
fn short() -> Options {
    Options {
        timeout: Duration::from_millis(500),
        quotas: true,
        ..Options::default()
    }
}

async fn ask(
    estimators: &Arc<dyn Estimators>,
    subject: Asked<'_>,
    clusters: &[&str],
) -> Vec<Answer> {
    let question = Question {
        object: "kind=Deployment, name=n/web".into(),
        asked: subject,
    };
    let candidate = |cluster: &&str| Candidate {
        cluster: (*cluster).into(),
        assumed: Vec::new(),
    };
    let candidates: Vec<Candidate> = clusters.iter().map(candidate).collect();
    estimators.ask(&question, &candidates).await
}

fn deployed(room: i64) -> Answer {
    Answer::Room(room, Source::Estimator)
}

// proves: EST-ask, EST-not-available, EST-wrong-cluster, EST-timeout
#[tokio::test]
async fn an_estimator_answers_for_its_cluster() {
    let lab = Lab::new(Detail::default());
    let peer = Peer::start("m1", Says::Room(7), None).await;
    let other = Peer::start("other", Says::Room(9), None).await;
    lab.join("m1", "Push", 10);
    lab.join("m2", "Push", 10);
    lab.host
        .seed(&SERVICES, service("m1", "ExternalName", peer.address));
    lab.host
        .seed(&SERVICES, service("m2", "ExternalName", other.address));
    let estimators = start(&lab, short());
    estimators.ready().await;

    let one = json!({"resourceRequest": {"cpu": "1"}});
    let replicas = Asked::Replicas(Some(&one));
    let components = [Component {
        name: "c".into(),
        replicas: 1,
        replica_requirements: None,
    }];
    let sets = Asked::Sets {
        namespace: "n",
        components: &components,
    };
    let answers = ask(&estimators, replicas, &["m2", "m1"]).await;
    assert_eq!(answers, [Answer::Failed, deployed(7)]);
    assert_eq!(ask(&estimators, sets, &["m1"]).await, [deployed(7)]);
    assert_eq!(
        peer.heard(),
        [
            "MaxAvailableReplicas m1 kind=Deployment, name=n/web",
            "MaxAvailableComponentSets m1 kind=Deployment, name=n/web"
        ]
    );
    for (says, expected) in [
        (Says::Room(0), deployed(0)),
        (Says::Room(-1), Answer::Unknown),
        (Says::Error, Answer::Failed),
        (Says::Nothing, Answer::Failed),
        (Says::Room(3), deployed(3)),
    ] {
        peer.says(says);
        let answers = ask(&estimators, Asked::Replicas(None), &["m1"]).await;
        assert_eq!(answers, [expected], "{says:?}");
    }
    // A request that cannot be encoded is not sent.
    peer.heard();
    let wrong = json!({"resourceRequest": {"cpu": "much"}});
    let answers = ask(&estimators, Asked::Replicas(Some(&wrong)), &["m1"]).await;
    assert_eq!(answers, [Answer::Failed]);
    assert!(peer.heard().is_empty());
    lab.tasks.stop().await;
}

// proves: EST-service, EST-unreachable
#[tokio::test]
async fn connections_follow_the_service() {
    let lab = Lab::new(ALL);
    lab.member.seed(&NODES, node("a 4 10"));
    let peer = Peer::start("m1", Says::Room(7), None).await;
    lab.join("m1", "Push", 10);
    lab.listed("m1", false).await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = nobody.local_addr().unwrap();
    drop(nobody);
    let estimators = start(&lab, short());
    estimators.ready().await;
    let one = json!({"resourceRequest": {"cpu": "1"}});
    let soon = async |expected: Answer| {
        until(async || ask(&estimators, Asked::Replicas(Some(&one)), &["m1"]).await == [expected])
            .await;
    };
    let by_nodes = Answer::Room(4, Source::Nodes);
    soon(by_nodes).await;
    lab.host
        .seed(&SERVICES, service("m1", "ExternalName", gone));
    soon(Answer::Failed).await;
    lab.host
        .seed(&SERVICES, service("m1", "ExternalName", peer.address));
    soon(deployed(7)).await;
    lab.host
        .seed(&SERVICES, service("m1", "ClusterIP", peer.address));
    soon(Answer::Failed).await;
    let moved = Peer::start("m1", Says::Room(8), None).await;
    lab.host
        .seed(&SERVICES, service("m1", "ExternalName", moved.address));
    soon(deployed(8)).await;
    // The estimator returns at the same address.
    moved.stop().await;
    soon(Answer::Failed).await;
    let again = Peer::start_at(moved.address, "m1", Says::Room(9), None).await;
    soon(deployed(9)).await;
    // The estimator is removed for good.
    again.stop().await;
    lab.host.remove(
        &SERVICES,
        "karmada-system",
        "karmada-scheduler-estimator-m1",
    );
    soon(by_nodes).await;
    lab.tasks.stop().await;
}

// proves: EST-own, EST-quota-gate
#[tokio::test]
async fn clusters_without_an_estimator_are_estimated_by_nodes_and_quotas() {
    let lab = Lab::new(ALL);
    lab.member.seed(&NODES, node("a 4 10"));
    lab.member.seed(
        &QUOTAS,
        json!({"metadata": {"name": "q", "namespace": "n"},
               "spec": {"scopes": ["PriorityClass"]},
               "status": {"hard": {"cpu": "3"}, "used": {"cpu": "1"}}}),
    );
    lab.join("m1", "Push", 10);
    lab.join("far", "Pull", 10);
    let (counting, plain) = (start(&lab, short()), start(&lab, Options::default()));
    counting.ready().await;
    lab.listed("m1", true).await;
    let request = |class: &str| json!({"namespace": "n", "priorityClassName": class, "resourceRequest": {"cpu": "1"}});
    let (high, none) = (request("high"), request(""));
    let clusters = ["m1", "far", "unknown"];
    for (estimators, requirements, room, source) in [
        (&counting, &high, 2, Source::ResourceQuota),
        (&counting, &none, 4, Source::Nodes),
        (&plain, &high, 4, Source::Nodes),
    ] {
        let answers = ask(estimators, Asked::Replicas(Some(requirements)), &clusters).await;
        let own = Answer::Room(room, source);
        assert_eq!(answers, [own, Answer::Unknown, Answer::Unknown]);
    }
    let wrong = json!({"nodeClaim": {"tolerations": 1}});
    let answers = ask(&counting, Asked::Replicas(Some(&wrong)), &["m1"]).await;
    assert_eq!(answers, [Answer::Failed]);
    // A cluster without nodes has no capacity.
    lab.member.remove(&NODES, "", "a");
    let nothing = [Answer::Room(0, Source::Nodes)];
    until(async || ask(&plain, Asked::Replicas(None), &["m1"]).await == nothing).await;
    lab.member.remove(&QUOTAS, "n", "q");
    let member = lab.members.get("m1").unwrap();
    until(async || member.quotas("n").is_some_and(|q| q.is_empty())).await;
    lab.tasks.stop().await;
}

// proves: EST-not-known
#[tokio::test]
async fn a_member_that_is_not_synced_has_no_estimate() {
    let lab = Lab::new(Detail::default());
    lab.member.seed(&NODES, node("a 4 10"));
    lab.join("m1", "Push", 10);
    let estimators = start(&lab, short());
    estimators.ready().await;
    until(async || lab.members.get("m1").is_ok_and(|m| m.summary().is_some())).await;
    let answers = ask(&estimators, Asked::Replicas(None), &["m1"]).await;
    assert_eq!(answers, [Answer::Unknown]);
    lab.tasks.stop().await;
}

// proves: EST-pull-mode
#[tokio::test]
async fn clusters_in_pull_mode_are_called_unless_disabled() {
    let lab = Lab::new(Detail::default());
    let peer = Peer::start("far", Says::Room(7), None).await;
    lab.join("far", "Pull", 10);
    lab.host
        .seed(&SERVICES, service("far", "ExternalName", peer.address));
    for (not_in_pull_mode, expected) in [(false, deployed(7)), (true, Answer::Unknown)] {
        let options = Options {
            not_in_pull_mode,
            ..short()
        };
        let estimators = start(&lab, options);
        estimators.ready().await;
        let answers = ask(&estimators, Asked::Replicas(None), &["far"]).await;
        assert_eq!(answers, [expected]);
    }
    lab.tasks.stop().await;
}

/// Certificates of a server at 127.0.0.1 and of a client, issued by one authority.
struct Pki {
    dir: TempDir,
    acceptor: TlsAcceptor,
}

impl Pki {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let issue = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            (params.signed_by(&key, &ca).unwrap(), key)
        };
        let dir = TempDir::new().unwrap();
        let (certificate, key) = issue("client");
        for (file, text) in [
            ("ca.crt", ca.pem()),
            ("client.crt", certificate.pem()),
            ("client.key", key.serialize_pem()),
        ] {
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        let (certificate, key) = issue("127.0.0.1");
        let mut roots = RootCertStore::empty();
        roots.add(ca.der().clone()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        server.alpn_protocols = vec![b"h2".to_vec()];
        Self {
            dir,
            acceptor: TlsAcceptor::from(Arc::new(server)),
        }
    }

    fn files(&self, ca: bool, certificate: bool, insecure: bool) -> Files {
        let file = |name: &str| self.dir.path().join(name);
        Files {
            ca: ca.then(|| file("ca.crt")),
            certificate: certificate.then(|| (file("client.crt"), file("client.key"))),
            insecure,
        }
    }
}

// proves: EST-tls
#[tokio::test]
async fn both_sides_present_certificates_if_configured() {
    let pki = Pki::new();
    let peer = Peer::start("m1", Says::Room(7), Some(pki.acceptor.clone())).await;
    let mut missing = pki.files(true, true, false);
    missing.ca = Some(pki.dir.path().join("none.crt"));
    let why = missing.check().unwrap_err();
    assert!(why.contains("none.crt: "), "{why}");
    pki.files(true, true, false).check().unwrap();
    for (tls, expected) in [
        (Some(pki.files(true, true, false)), deployed(7)),
        (Some(pki.files(false, true, true)), deployed(7)),
        // The system's authorities do not include the server's.
        (Some(pki.files(false, true, false)), Answer::Failed),
        (Some(pki.files(true, false, false)), Answer::Failed),
        (Some(missing), Answer::Failed),
        (None, Answer::Failed),
    ] {
        let lab = Lab::new(Detail::default());
        lab.join("m1", "Push", 10);
        lab.host
            .seed(&SERVICES, service("m1", "ExternalName", peer.address));
        let text = format!("{tls:?}");
        let estimators = start(&lab, Options { tls, ..short() });
        estimators.ready().await;
        let answers = ask(&estimators, Asked::Replicas(None), &["m1"]).await;
        assert_eq!(answers, [expected], "{text}");
        lab.tasks.stop().await;
    }
}

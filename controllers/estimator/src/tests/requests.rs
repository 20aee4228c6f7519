//! Tests of requests to estimators of clusters and of local estimates.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use karmada_api::binding::Component;
use members::MemberTrackingOptions;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::PrivateKeyDer;
use scheduler::core::{AccurateEstimate, EstimateSource};
use scheduler::{ClusterToEstimate, EstimateRequest, EstimateSubject, ReplicaEstimator};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

use super::fake_estimator::{FakeEstimator, FakeEstimatorResponse};
use super::fixture::{EstimatorMembersFixture, NODES, QUOTAS, SERVICES, node, wait_until};
use crate::{AccurateEstimator, EstimatorOptions, EstimatorTlsClientConfig};

const FULL_DETAIL: MemberTrackingOptions = MemberTrackingOptions {
    individual_nodes: true,
    quotas: true,
};

pub(super) fn service(cluster: &str, kind: &str, to: SocketAddr) -> Value {
    json!({"metadata": {"name": format!("karmada-scheduler-estimator-{cluster}"), "namespace": "karmada-system"},
           "spec": {"type": kind, "externalName": to.ip().to_string(),
                    "ports": [{"port": 10352, "targetPort": to.port()}]}})
}

pub(super) fn start(
    test_fixture: &EstimatorMembersFixture,
    options: EstimatorOptions,
) -> Arc<dyn ReplicaEstimator> {
    AccurateEstimator::start(&test_fixture.connect(options), &test_fixture.members)
}

/// Options with a timeout that is short enough for tests to wait for.
pub(super) fn short_timeout_options() -> EstimatorOptions {
    EstimatorOptions {
        timeout: Duration::from_millis(500),
        quotas: true,
        ..EstimatorOptions::default()
    }
}

pub(super) async fn max_available(
    estimators: &Arc<dyn ReplicaEstimator>,
    subject: EstimateSubject<'_>,
    clusters: &[&str],
) -> Vec<AccurateEstimate> {
    let question = EstimateRequest {
        object: "kind=Deployment, name=n/web".into(),
        subject,
    };
    let candidate = |cluster: &&str| ClusterToEstimate {
        cluster: (*cluster).into(),
        assumed: Vec::new(),
    };
    let candidates: Vec<ClusterToEstimate> = clusters.iter().map(candidate).collect();
    estimators.max_available(&question, &candidates).await
}

pub(super) fn estimator_answer(room: i64) -> AccurateEstimate {
    AccurateEstimate::Available(room, EstimateSource::Estimator)
}

// proves: EST-ask, EST-not-available, EST-wrong-cluster, EST-timeout
#[tokio::test]
async fn an_estimator_answers_for_its_cluster() {
    let test_fixture = EstimatorMembersFixture::new(MemberTrackingOptions::default());
    let peer = FakeEstimator::start("m1", FakeEstimatorResponse::Available(7), None).await;
    let other = FakeEstimator::start("other", FakeEstimatorResponse::Available(9), None).await;
    test_fixture.join("m1", "Push", 10);
    test_fixture.join("m2", "Push", 10);
    test_fixture
        .host
        .seed(&SERVICES, service("m1", "ExternalName", peer.address));
    test_fixture
        .host
        .seed(&SERVICES, service("m2", "ExternalName", other.address));
    let estimators = start(&test_fixture, short_timeout_options());
    estimators.wait_ready().await;

    let one = json!({"resourceRequest": {"cpu": "1"}});
    let replicas = EstimateSubject::Replicas(Some(&one));
    let components = [Component {
        name: "c".into(),
        replicas: 1,
        replica_requirements: None,
    }];
    let sets = EstimateSubject::Sets {
        namespace: "n",
        components: &components,
    };
    let answers = max_available(&estimators, replicas, &["m2", "m1"]).await;
    assert_eq!(answers, [AccurateEstimate::Failed, estimator_answer(7)]);
    assert_eq!(
        max_available(&estimators, sets, &["m1"]).await,
        [estimator_answer(7)]
    );
    assert_eq!(
        peer.requests(),
        [
            "MaxAvailableReplicas m1 kind=Deployment, name=n/web",
            "MaxAvailableComponentSets m1 kind=Deployment, name=n/web"
        ]
    );
    for (says, expected) in [
        (FakeEstimatorResponse::Available(0), estimator_answer(0)),
        (
            FakeEstimatorResponse::Available(-1),
            AccurateEstimate::Unknown,
        ),
        (FakeEstimatorResponse::Error, AccurateEstimate::Failed),
        (FakeEstimatorResponse::Nothing, AccurateEstimate::Failed),
        (FakeEstimatorResponse::Available(3), estimator_answer(3)),
    ] {
        peer.set_response(says);
        let answers = max_available(&estimators, EstimateSubject::Replicas(None), &["m1"]).await;
        assert_eq!(answers, [expected], "{says:?}");
    }
    // A request that cannot be encoded is not sent.
    peer.requests();
    let wrong = json!({"resourceRequest": {"cpu": "much"}});
    let answers = max_available(
        &estimators,
        EstimateSubject::Replicas(Some(&wrong)),
        &["m1"],
    )
    .await;
    assert_eq!(answers, [AccurateEstimate::Failed]);
    assert!(peer.requests().is_empty());
    test_fixture.tasks.stop().await;
}

// proves: EST-service, EST-unreachable
#[tokio::test]
async fn connections_follow_the_service() {
    let test_fixture = EstimatorMembersFixture::new(FULL_DETAIL);
    test_fixture.member.seed(&NODES, node("a 4 10"));
    let peer = FakeEstimator::start("m1", FakeEstimatorResponse::Available(7), None).await;
    test_fixture.join("m1", "Push", 10);
    test_fixture.wait_until_listed("m1", false).await;
    // Ports that this test closes are not those of other tests, which use 127.0.0.1.
    let nobody = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let gone = nobody.local_addr().unwrap();
    drop(nobody);
    let estimators = start(&test_fixture, short_timeout_options());
    estimators.wait_ready().await;
    let one = json!({"resourceRequest": {"cpu": "1"}});
    let soon = async |expected: AccurateEstimate| {
        wait_until(async || {
            max_available(&estimators, EstimateSubject::Replicas(Some(&one)), &["m1"]).await
                == [expected]
        })
        .await;
    };
    let by_nodes = AccurateEstimate::Available(4, EstimateSource::Nodes);
    soon(by_nodes).await;
    test_fixture
        .host
        .seed(&SERVICES, service("m1", "ExternalName", gone));
    soon(AccurateEstimate::Failed).await;
    test_fixture
        .host
        .seed(&SERVICES, service("m1", "ExternalName", peer.address));
    soon(estimator_answer(7)).await;
    test_fixture
        .host
        .seed(&SERVICES, service("m1", "ClusterIP", peer.address));
    soon(AccurateEstimate::Failed).await;
    let moved = FakeEstimator::start_at(
        ([127, 0, 0, 2], 0).into(),
        "m1",
        FakeEstimatorResponse::Available(8),
        None,
    )
    .await;
    test_fixture
        .host
        .seed(&SERVICES, service("m1", "ExternalName", moved.address));
    soon(estimator_answer(8)).await;
    // The estimator returns at the same address.
    moved.stop().await;
    soon(AccurateEstimate::Failed).await;
    let again = FakeEstimator::start_at(
        moved.address,
        "m1",
        FakeEstimatorResponse::Available(9),
        None,
    )
    .await;
    soon(estimator_answer(9)).await;
    // The estimator is removed for good.
    again.stop().await;
    test_fixture.host.remove(
        &SERVICES,
        "karmada-system",
        "karmada-scheduler-estimator-m1",
    );
    soon(by_nodes).await;
    test_fixture.tasks.stop().await;
}

// proves: EST-own, EST-quota-gate
#[tokio::test]
async fn clusters_without_an_estimator_are_estimated_by_nodes_and_quotas() {
    let test_fixture = EstimatorMembersFixture::new(FULL_DETAIL);
    test_fixture.member.seed(&NODES, node("a 4 10"));
    test_fixture.member.seed(
        &QUOTAS,
        json!({"metadata": {"name": "q", "namespace": "n"},
               "spec": {"scopes": ["PriorityClass"]},
               "status": {"hard": {"cpu": "3"}, "used": {"cpu": "1"}}}),
    );
    test_fixture.join("m1", "Push", 10);
    test_fixture.join("far", "Pull", 10);
    let (counting, plain) = (
        start(&test_fixture, short_timeout_options()),
        start(&test_fixture, EstimatorOptions::default()),
    );
    counting.wait_ready().await;
    test_fixture.wait_until_listed("m1", true).await;
    let request = |class: &str| json!({"namespace": "n", "priorityClassName": class, "resourceRequest": {"cpu": "1"}});
    let (high, none) = (request("high"), request(""));
    let clusters = ["m1", "far", "unknown"];
    for (estimators, requirements, room, source) in [
        (&counting, &high, 2, EstimateSource::ResourceQuota),
        (&counting, &none, 4, EstimateSource::Nodes),
        (&plain, &high, 4, EstimateSource::Nodes),
    ] {
        let answers = max_available(
            estimators,
            EstimateSubject::Replicas(Some(requirements)),
            &clusters,
        )
        .await;
        let own = AccurateEstimate::Available(room, source);
        assert_eq!(
            answers,
            [own, AccurateEstimate::Unknown, AccurateEstimate::Unknown]
        );
    }
    let wrong = json!({"nodeClaim": {"tolerations": 1}});
    let answers = max_available(&counting, EstimateSubject::Replicas(Some(&wrong)), &["m1"]).await;
    assert_eq!(answers, [AccurateEstimate::Failed]);
    // A cluster without nodes has no capacity.
    test_fixture.member.remove(&NODES, "", "a");
    let nothing = [AccurateEstimate::Available(0, EstimateSource::Nodes)];
    wait_until(async || {
        max_available(&plain, EstimateSubject::Replicas(None), &["m1"]).await == nothing
    })
    .await;
    test_fixture.member.remove(&QUOTAS, "n", "q");
    let member = test_fixture.members.get("m1").unwrap();
    wait_until(async || member.quotas("n").is_some_and(|q| q.is_empty())).await;
    test_fixture.tasks.stop().await;
}

// proves: EST-not-known
#[tokio::test]
async fn a_member_that_is_not_synced_has_no_estimate() {
    let test_fixture = EstimatorMembersFixture::new(MemberTrackingOptions::default());
    test_fixture.member.seed(&NODES, node("a 4 10"));
    test_fixture.join("m1", "Push", 10);
    let estimators = start(&test_fixture, short_timeout_options());
    estimators.wait_ready().await;
    wait_until(async || {
        test_fixture
            .members
            .get("m1")
            .is_ok_and(|m| m.resource_summary().is_some())
    })
    .await;
    let answers = max_available(&estimators, EstimateSubject::Replicas(None), &["m1"]).await;
    assert_eq!(answers, [AccurateEstimate::Unknown]);
    test_fixture.tasks.stop().await;
}

// proves: EST-pull-mode
#[tokio::test]
async fn clusters_in_pull_mode_are_called_unless_disabled() {
    let test_fixture = EstimatorMembersFixture::new(MemberTrackingOptions::default());
    let peer = FakeEstimator::start("far", FakeEstimatorResponse::Available(7), None).await;
    test_fixture.join("far", "Pull", 10);
    test_fixture
        .host
        .seed(&SERVICES, service("far", "ExternalName", peer.address));
    for (not_in_pull_mode, expected) in [
        (false, estimator_answer(7)),
        (true, AccurateEstimate::Unknown),
    ] {
        let options = EstimatorOptions {
            skip_pull_clusters: not_in_pull_mode,
            ..short_timeout_options()
        };
        let estimators = start(&test_fixture, options);
        estimators.wait_ready().await;
        let answers = max_available(&estimators, EstimateSubject::Replicas(None), &["far"]).await;
        assert_eq!(answers, [expected]);
    }
    test_fixture.tasks.stop().await;
}

/// Certificates of a server at 127.0.0.1 and of a client, issued by one authority.
pub(super) struct EstimatorTestPki {
    pub(super) dir: TempDir,
    acceptor: TlsAcceptor,
}

impl EstimatorTestPki {
    pub(super) fn new() -> Self {
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
        std::fs::write(dir.path().join("server.crt"), certificate.pem()).unwrap();
        std::fs::write(dir.path().join("server.key"), key.serialize_pem()).unwrap();
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

    pub(super) fn files(
        &self,
        ca: bool,
        certificate: bool,
        insecure: bool,
    ) -> EstimatorTlsClientConfig {
        let file = |name: &str| self.dir.path().join(name);
        EstimatorTlsClientConfig {
            ca: ca.then(|| file("ca.crt")),
            certificate: certificate.then(|| (file("client.crt"), file("client.key"))),
            insecure,
        }
    }
}

// proves: EST-tls
#[tokio::test]
async fn both_sides_present_certificates_if_configured() {
    let pki = EstimatorTestPki::new();
    let peer = FakeEstimator::start(
        "m1",
        FakeEstimatorResponse::Available(7),
        Some(pki.acceptor.clone()),
    )
    .await;
    let mut missing = pki.files(true, true, false);
    missing.ca = Some(pki.dir.path().join("none.crt"));
    let error = missing.check().unwrap_err();
    assert!(error.contains("none.crt: "), "{error}");
    pki.files(true, true, false).check().unwrap();
    for (tls, expected) in [
        (Some(pki.files(true, true, false)), estimator_answer(7)),
        (Some(pki.files(false, true, true)), estimator_answer(7)),
        // The system's authorities do not include the server's.
        (
            Some(pki.files(false, true, false)),
            AccurateEstimate::Failed,
        ),
        (
            Some(pki.files(true, false, false)),
            AccurateEstimate::Failed,
        ),
        (Some(missing), AccurateEstimate::Failed),
        (None, AccurateEstimate::Failed),
    ] {
        let test_fixture = EstimatorMembersFixture::new(MemberTrackingOptions::default());
        test_fixture.join("m1", "Push", 10);
        test_fixture
            .host
            .seed(&SERVICES, service("m1", "ExternalName", peer.address));
        let text = format!("{tls:?}");
        let estimators = start(
            &test_fixture,
            EstimatorOptions {
                tls,
                ..short_timeout_options()
            },
        );
        estimators.wait_ready().await;
        let answers = max_available(&estimators, EstimateSubject::Replicas(None), &["m1"]).await;
        assert_eq!(answers, [expected], "{text}");
        test_fixture.tasks.stop().await;
    }
}

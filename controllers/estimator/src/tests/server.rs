//! Tests of the estimator's server, called by the scheduler's client over gRPC.

use std::net::SocketAddr;
use std::sync::Arc;

use client::Api;
use client_fake::FakeApi;
use karmada_api::FeatureGates;
use karmada_api::binding::Component;
use karmada_api::resources::BINDINGS;
use members::MemberTrackingOptions;
use prost::Message;
use scheduler::EstimateSubject;
use scheduler::core::AccurateEstimate;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::fixture::{EstimatorMembersFixture, NODES, PODS, QUOTAS, SERVICES, node, pod};
use super::requests::{
    EstimatorTestPki, estimator_answer, max_available, service, short_timeout_options, start,
};
use super::scheduling;
use crate::grpc_client::{MAX_AVAILABLE_COMPONENT_SETS_PATH, UNSCHEDULABLE_REPLICAS_PATH};
use crate::protobuf::{
    ComponentMessage, ComponentReplicaRequirements, MaxAvailableComponentSetsRequest,
    MaxAvailableComponentSetsResponse, ObjectReferenceMessage, QuantityMessage,
    UnschedulableReplicasRequest, UnschedulableReplicasResponse,
};
use crate::{EstimatorOptions, EstimatorServer, EstimatorServerOptions, EstimatorTlsServerConfig};

/// Starts an estimator beside a member.
async fn serve(
    test_fixture: &EstimatorMembersFixture,
    cluster: &str,
    member: &Arc<FakeApi>,
    tls: Option<EstimatorTlsServerConfig>,
) -> SocketAddr {
    let api: Arc<dyn Api> = member.clone();
    let options = EstimatorServerOptions {
        cluster: cluster.into(),
        tls,
        quotas: true,
    };
    let server = EstimatorServer::sync(&api, options, &test_fixture.tasks).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    server.unwrap().serve(listener);
    address
}

fn member(nodes: &[&str]) -> Arc<FakeApi> {
    let api = FakeApi::new();
    for text in nodes {
        api.seed(&NODES, node(text));
    }
    api
}

fn join(test_fixture: &EstimatorMembersFixture, cluster: &str, address: SocketAddr) {
    test_fixture.join(cluster, "Pull", 1000);
    let service = service(cluster, "ExternalName", address);
    test_fixture.host.seed(&SERVICES, service);
}

// proves: EST-server
#[tokio::test]
async fn the_server_estimates_by_the_rules_of_local_estimates() {
    let test_fixture = EstimatorMembersFixture::new(MemberTrackingOptions::default());
    // Free: a 3 cpu and 9 pods, b 8 and 3, c 4 and 10 behind a taint, d is cordoned.
    let api = member(&[
        "a 4 10 zone=1",
        "b 8 3 zone=2",
        "c 4 10 !k=v:NoSchedule",
        "d 9 9 cordoned",
    ]);
    api.seed(&PODS, pod("p", "a", "1"));
    let quota = json!({"metadata": {"name": "q", "namespace": "bounded"},
                       "spec": {"hard": {"cpu": "5"}},
                       "status": {"hard": {"cpu": "5"}, "used": {"cpu": "1"}}});
    api.seed(&QUOTAS, quota);
    join(
        &test_fixture,
        "m1",
        serve(&test_fixture, "m1", &api, None).await,
    );
    let estimators = start(&test_fixture, short_timeout_options());
    estimators.wait_ready().await;
    let zone = |operator: &str, values: Value| {
        json!({"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "zone", "operator": operator, "values": values}]}]})
    };
    let tolerations = json!([{"key": "k", "operator": "Exists"}]);
    let cpu =
        |cpu: &str, claim: Value| json!({"resourceRequest": {"cpu": cpu}, "nodeClaim": claim});
    for (requirements, expected) in [
        (Value::Null, 9 + 3),
        (cpu("1", Value::Null), 3 + 3),
        (cpu("500m", Value::Null), 6 + 3),
        (cpu("1", json!({"nodeSelector": {"zone": "1"}})), 3),
        (
            cpu("1", json!({"hardNodeAffinity": zone("In", json!(["2"]))})),
            3,
        ),
        (
            cpu(
                "1",
                json!({"hardNodeAffinity": zone("DoesNotExist", json!([]))}),
            ),
            0,
        ),
        (cpu("1", json!({"tolerations": tolerations})), 3 + 3 + 4),
        (
            json!({"resourceRequest": {"cpu": "1"}, "namespace": "bounded"}),
            4,
        ),
        (json!({"resourceRequest": {"gpu.x/y": "1"}}), 2 + 2),
    ] {
        let subject = EstimateSubject::Replicas(Some(&requirements).filter(|r| !r.is_null()));
        let answers = max_available(&estimators, subject, &["m1"]).await;
        assert_eq!(answers, [estimator_answer(expected)], "{requirements}");
    }
    let components =
        [("leader", 1, "2"), ("worker", 2, "1")].map(|(name, replicas, cpu)| Component {
            name: name.into(),
            replicas,
            replica_requirements: Some(json!({"resourceRequest": {"cpu": cpu}})),
        });
    let subject = EstimateSubject::Sets {
        namespace: "n",
        components: &components,
    };
    // First: leader and worker on a, worker on b. A second leader and worker fill b's pods.
    let answers = max_available(&estimators, subject, &["m1"]).await;
    assert_eq!(answers, [estimator_answer(1)]);
    test_fixture.tasks.stop().await;
}

// proves: EST-server
#[tokio::test]
async fn the_scheduler_places_replicas_by_the_answers_of_servers() {
    let test_fixture = EstimatorMembersFixture::new(MemberTrackingOptions::default());
    for (cluster, nodes) in [("m1", ["a 3 10", "b 1 10"]), ("m2", ["a 1 10", "b 1 10"])] {
        let address = serve(&test_fixture, cluster, &member(&nodes), None).await;
        join(&test_fixture, cluster, address);
    }
    scheduling::start(&test_fixture, FeatureGates::default());
    let placement = scheduling::dynamic_placement();
    let binding = scheduling::binding("web", 6, &placement);
    test_fixture.host.seed(&BINDINGS, binding);
    let expected = json!([{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 2}]);
    assert_eq!(scheduling::clusters(&test_fixture, "web").await, expected);
    test_fixture.tasks.stop().await;
}

// proves: EST-wrong-cluster, EST-server
#[tokio::test]
async fn the_server_rejects_requests_for_other_clusters() {
    let test_fixture = EstimatorMembersFixture::new(MemberTrackingOptions::default());
    let address = serve(&test_fixture, "other", &member(&["a 4 10"]), None).await;
    join(&test_fixture, "m1", address);
    let estimators = start(&test_fixture, short_timeout_options());
    estimators.wait_ready().await;
    let answers = max_available(&estimators, EstimateSubject::Replicas(None), &["m1"]).await;
    assert_eq!(answers, [AccurateEstimate::Failed]);
    let own = count_unschedulable(address, "other").await.unwrap_err();
    assert!(own.message().contains("not found"), "{own}");
    let status = count_unschedulable(address, "m1").await.unwrap_err();
    let expected = "cluster name does not match, got: m1, desire: other";
    assert_eq!(
        (status.code(), status.message()),
        (tonic::Code::Unknown, expected)
    );
    test_fixture.tasks.stop().await;
}

// proves: EST-server
#[tokio::test]
async fn the_server_bounds_requests_and_rejects_invalid_ones() {
    let test_fixture = EstimatorMembersFixture::new(MemberTrackingOptions::default());
    let address = serve(&test_fixture, "m1", &member(&["a 4 10"]), None).await;
    let component = |bytes: &[u8]| ComponentMessage {
        name: "c".into(),
        replicas: 1,
        replica_requirements: Some(ComponentReplicaRequirements {
            resource_request: [("cpu".to_owned(), bytes.to_vec())].into(),
            ..Default::default()
        }),
    };
    let cpu = QuantityMessage {
        text: Some("1".into()),
    };
    let cpu = component(&cpu.encode_to_vec());
    let invalid = QuantityMessage {
        text: Some("x".into()),
    };
    for (components, expected) in [
        (vec![cpu.clone()], Ok(4)),
        (
            vec![cpu; 10_001],
            Err("10001 components, at most 10000 are allowed"),
        ),
        (
            vec![component(&[0xff])],
            Err("component \"c\": resourceRequest[cpu]: "),
        ),
        (
            vec![component(&invalid.encode_to_vec())],
            Err("the replica requirements are invalid"),
        ),
    ] {
        let request = MaxAvailableComponentSetsRequest {
            cluster: "m1".into(),
            components,
            ..Default::default()
        };
        let path = MAX_AVAILABLE_COMPONENT_SETS_PATH;
        let answer: Result<MaxAvailableComponentSetsResponse, _> =
            call(address, path, request).await;
        match (answer, expected) {
            (Ok(answer), Ok(sets)) => assert_eq!(answer.max_sets, sets),
            (Err(status), Err(text)) => assert!(status.message().contains(text), "{status}"),
            (answer, expected) => panic!("{answer:?} instead of {expected:?}"),
        }
    }
    test_fixture.tasks.stop().await;
}

async fn call<Q, A>(address: SocketAddr, path: &'static str, message: Q) -> Result<A, tonic::Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut grpc = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static(path);
    let codec = tonic_prost::ProstCodec::default();
    let response = grpc.unary(tonic::Request::new(message), path, codec).await;
    response.map(tonic::Response::into_inner)
}

async fn count_unschedulable(address: SocketAddr, cluster: &str) -> Result<i32, tonic::Status> {
    let request = UnschedulableReplicasRequest {
        cluster: cluster.into(),
        resource: Some(ObjectReferenceMessage {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: "n".into(),
            name: "web".into(),
        }),
        unschedulable_threshold: 0,
    };
    let response: UnschedulableReplicasResponse =
        call(address, UNSCHEDULABLE_REPLICAS_PATH, request).await?;
    Ok(response.unschedulable_replicas)
}

// proves: EST-server-tls
#[tokio::test]
async fn the_server_verifies_clients_unless_disabled() {
    let pki = EstimatorTestPki::new();
    let file = |name: &str| pki.dir.path().join(name);
    let config = |client_ca: bool| EstimatorTlsServerConfig {
        certificate: file("server.crt"),
        key: file("server.key"),
        client_ca: client_ca.then(|| file("ca.crt")),
    };
    config(true).check().unwrap();
    let missing = EstimatorTlsServerConfig {
        key: file("none.key"),
        ..config(true)
    };
    let error = missing.check().unwrap_err();
    assert!(error.contains("none.key: "), "{error}");
    let answer = estimator_answer(10);
    for (server, client, expected) in [
        (config(true), Some(pki.files(true, true, false)), answer),
        (
            config(true),
            Some(pki.files(true, false, false)),
            AccurateEstimate::Failed,
        ),
        (config(false), Some(pki.files(true, false, false)), answer),
        (config(false), None, AccurateEstimate::Failed),
    ] {
        let test_fixture = EstimatorMembersFixture::new(MemberTrackingOptions::default());
        let text = format!("{server:?} {client:?}");
        let address = serve(&test_fixture, "m1", &member(&["a 4 10"]), Some(server)).await;
        join(&test_fixture, "m1", address);
        let options = EstimatorOptions {
            tls: client,
            ..short_timeout_options()
        };
        let estimators = start(&test_fixture, options);
        estimators.wait_ready().await;
        let answers = max_available(&estimators, EstimateSubject::Replicas(None), &["m1"]).await;
        assert_eq!(answers, [expected], "{text}");
        test_fixture.tasks.stop().await;
    }
}

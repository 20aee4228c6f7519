//! Every kind of Karmada is served standalone; `tests/aggregated/registration.rs` has the same
//! behind a host.

use harness::karmada_kinds::assert_karmada_kinds_are_served;

use crate::api::test_server::ApiTestServer;

// proves: KND-served
#[tokio::test]
async fn every_kind_of_karmada_is_served() {
    let server = ApiTestServer::shared();
    assert_karmada_kinds_are_served(&server.kubeconfig()).await;
}

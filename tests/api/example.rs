//! The example of "How to add an API test" in `tests/README.md`, so that it compiles and passes.

use serde_json::json;

use crate::api::test_server::ApiTestServer;

#[test]
fn a_stored_config_map_is_returned() {
    let server = ApiTestServer::shared();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "example"}});
    let reply = server.post("/api/v1/namespaces/default/configmaps", &map);
    assert_eq!(reply.code, 201, "{}", reply.text());
}

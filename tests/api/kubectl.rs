//! Runs two versions of kubectl against servers of these tests.

use std::sync::Arc;

pub(crate) use harness::kubectl::{
    Kubectl, fails, fails_with_input, succeeds, succeeds_with_input,
};

use crate::api::test_server::ApiTestServer;

/// Runs a scenario on the shared server with each kubectl, each in a new namespace.
pub(crate) fn with_each_kubectl(area: &str, scenario: impl Fn(&Kubectl) + Sync) {
    with_each_kubectl_at(&ApiTestServer::shared(), area, scenario);
}

/// Like [`with_each_kubectl`], on another server.
pub(crate) fn with_each_kubectl_at(
    test_server: &Arc<ApiTestServer>,
    area: &str,
    scenario: impl Fn(&Kubectl) + Sync,
) {
    let folder = test_server.create_dir(".");
    harness::kubectl::with_each_kubectl(&test_server.kubeconfig(), &folder, area, scenario);
}

//! Runs two versions of kubectl against servers of these tests.

use std::sync::Arc;

pub(crate) use harness::kubectl::{Kubectl, ok, refused, refused_with, with};

use crate::plane::Plane;

/// Runs a scenario on the shared server with each kubectl, each in a new namespace.
pub(crate) fn with_each(area: &str, scenario: impl Fn(&Kubectl) + Sync) {
    with_each_at(&Plane::shared(), area, scenario);
}

/// Like [`with_each_kubectl`], on another server.
pub(crate) fn with_each_at(
    test_server: &Arc<Plane>,
    area: &str,
    scenario: impl Fn(&Kubectl) + Sync,
) {
    let folder = test_server.folder(".");
    harness::kubectl::with_each(&test_server.kubeconfig(), &folder, area, scenario);
}

//! The two kubectls at planes of these tests.

use std::sync::Arc;

pub(crate) use harness::kubectl::{Kubectl, ok, refused, refused_with, with};

use crate::plane::Plane;

/// Runs the story with each kubectl, each in a new namespace.
pub(crate) fn with_each(area: &str, story: impl Fn(&Kubectl) + Sync) {
    with_each_at(&Plane::shared(), area, story);
}

/// The same at a server of the test's own.
pub(crate) fn with_each_at(plane: &Arc<Plane>, area: &str, story: impl Fn(&Kubectl) + Sync) {
    let folder = plane.folder(".");
    harness::kubectl::with_each(&plane.kubeconfig(), &folder, area, story);
}

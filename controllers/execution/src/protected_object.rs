//! Names the objects of a member that are neither written nor deleted. A member may be the cluster
//! in which the control plane runs: there a template is its own copy, and a namespace may hold the
//! control plane.

use karmada_api::well_known_keys::is_reserved_namespace;
use machinery::Object;

use crate::manifest::EncodedManifest;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtectedObject {
    /// The template of the manifest: the member is the server that stores it.
    Template,
    /// A namespace in which a control plane keeps its own objects.
    ControlPlaneNamespace,
}

impl ProtectedObject {
    pub(crate) fn of(manifest: &EncodedManifest, observed: &Object) -> Option<Self> {
        let is_namespace = manifest.api_version == "v1" && manifest.kind == "Namespace";
        if is_namespace && is_reserved_namespace(&manifest.name) {
            return Some(Self::ControlPlaneNamespace);
        }
        let template = manifest.template_uid();
        (!template.is_empty() && template == *observed.uid()).then_some(Self::Template)
    }

    /// Why the object is not written.
    pub(crate) fn message(self, object: &str, cluster: &str) -> String {
        match self {
            Self::Template => format!(
                "{object} in cluster {cluster} is the template itself, since the control plane runs in this cluster; it is not changed"
            ),
            Self::ControlPlaneNamespace => format!(
                "{object} in cluster {cluster} is a namespace of the control plane; it is not changed"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use karmada_api::well_known_keys::TEMPLATE_UID;
    use serde_json::json;

    use super::*;

    // proves: HST-template, HST-namespace
    #[test]
    fn templates_and_namespaces_of_the_control_plane_are_protected() {
        use ProtectedObject::{ControlPlaneNamespace, Template};
        for (kind, name, template, observed, expected) in [
            ("ConfigMap", "c", "u1", "u1", Some(Template)),
            ("ConfigMap", "c", "u1", "u2", None),
            ("ConfigMap", "c", "", "", None),
            ("ConfigMap", "flotilla-system", "u1", "u2", None),
            ("Namespace", "shop", "u1", "u1", Some(Template)),
            ("Namespace", "shop", "u1", "u2", None),
            (
                "Namespace",
                "flotilla-system",
                "u1",
                "u2",
                Some(ControlPlaneNamespace),
            ),
            (
                "Namespace",
                "karmada-cluster",
                "u1",
                "u2",
                Some(ControlPlaneNamespace),
            ),
        ] {
            let manifest = json!({"apiVersion": "v1", "kind": kind,
                "metadata": {"name": name, "annotations": {TEMPLATE_UID: template}}});
            let manifest = EncodedManifest::new(manifest.to_string().into_bytes().into());
            let observed = json!({"metadata": {"name": name, "uid": observed}});
            let observed = Object::from_value(&observed).unwrap();
            assert_eq!(
                ProtectedObject::of(&manifest, &observed),
                expected,
                "{kind} {name}"
            );
        }
    }
}

//! Keeps admission policies and webhooks from granting rights through this server's controllers.
//!
//! Nothing authorizes what controllers write, so no check of the writer's rights can judge what
//! mutating admission makes of it. Admission may change or deny their writes, but not the fields
//! that decide about rights: those stay as the controller wrote them, or the write fails.

use client::{ListOptions, ResourcePath};
use machinery::selector::LabelSelector;
use machinery::{Gvr, Object, Status};
use serde_json::Value;

use crate::object_meta;
use crate::request::RequestContext;
use crate::role_escalation::{CLUSTER_ROLES, GROUP};
use crate::write_pipeline::AdmissionContext;

/// The fields of a resource that decide about rights, as JSON pointers.
struct AuthorityFields {
    group: &'static str,
    resources: &'static [&'static str],
    /// The names of the objects; empty for all.
    names: &'static [&'static str],
    fields: &'static [&'static str],
}

const AUTHORITY_FIELDS: [AuthorityFields; 9] = [
    AuthorityFields {
        group: GROUP,
        resources: &["roles", "clusterroles"],
        names: &[],
        // The annotations say which agent a registration admits.
        fields: &[
            "/rules",
            "/aggregationRule",
            "/metadata/annotations/flotilla.io~1agent-registration",
            "/metadata/annotations/flotilla.io~1agent-public-keys",
            "/metadata/annotations/flotilla.io~1cluster-uid",
        ],
    },
    AuthorityFields {
        group: GROUP,
        resources: &["rolebindings", "clusterrolebindings"],
        names: &[],
        fields: &["/roleRef", "/subjects"],
    },
    AuthorityFields {
        group: "certificates.k8s.io",
        resources: &["certificatesigningrequests"],
        names: &[],
        fields: &["/spec", "/status"],
    },
    // This field decides where the credentials of a member are sent, and whom its account may
    // impersonate.
    AuthorityFields {
        group: "cluster.karmada.io",
        resources: &["clusters"],
        names: &[],
        fields: &[
            "/spec/apiEndpoint",
            "/spec/secretRef",
            "/spec/impersonatorSecretRef",
            "/spec/insecureSkipTLSVerification",
            "/spec/proxyURL",
            "/spec/proxyHeader",
            "/metadata/annotations/flotilla.io~1disabled-tls-validations",
            "/metadata/annotations/flotilla.io~1impersonate-uid",
            "/metadata/annotations/flotilla.io~1impersonate-extra-keys",
            "/metadata/annotations/flotilla.io~1impersonate-group-members",
        ],
    },
    // The cluster, and its registration, that a bootstrap token is worth.
    AuthorityFields {
        group: "",
        resources: &["secrets"],
        names: &[],
        fields: &[
            "/metadata/annotations/flotilla.io~1cluster-name",
            "/metadata/annotations/flotilla.io~1registration-uid",
        ],
    },
    // Whom Pods, aggregated API servers and members that are registered trust.
    AuthorityFields {
        group: "",
        resources: &["configmaps"],
        names: &[
            "kube-root-ca.crt",
            "extension-apiserver-authentication",
            "cluster-info",
        ],
        fields: &["/data", "/binaryData"],
    },
    // Members run these with all rights.
    AuthorityFields {
        group: "work.karmada.io",
        resources: &["works"],
        names: &[],
        fields: &["/spec"],
    },
    AuthorityFields {
        group: "work.karmada.io",
        resources: &["resourcebindings", "clusterresourcebindings"],
        names: &[],
        fields: &["/spec/resource"],
    },
    AuthorityFields {
        group: "search.karmada.io",
        resources: &["resourceregistries"],
        names: &[],
        fields: &["/spec/backendStore"],
    },
];

fn value_at<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.pointer(field).filter(|value| !value.is_null())
}

/// The first field that decides about rights and differs.
fn changed_authority_field(resource: &Gvr, requested: &Value, new: &Value) -> Option<&'static str> {
    let name = object_meta::metadata_string(requested, "name");
    let entries = AUTHORITY_FIELDS.iter().filter(|entry| {
        entry.group == &*resource.group
            && entry.resources.contains(&&*resource.resource)
            && (entry.names.is_empty() || entry.names.contains(&name))
    });
    let mut fields = entries.flat_map(|entry| entry.fields);
    fields
        .find(|field| value_at(requested, field) != value_at(new, field))
        .copied()
}

impl AdmissionContext<'_> {
    /// Fails with 403 if mutating admission changed, in a write by a controller, what decides
    /// about rights.
    pub(crate) async fn check_controller_write(
        &self,
        requested: &Value,
        new: &Value,
    ) -> Result<(), Status> {
        let gvr = &self.resource.storage.kind.gvr;
        if !self.ctx.is_from_controller || self.resource.custom {
            return Ok(());
        }
        let name = object_meta::metadata_string(requested, "name");
        if let Some(field) = changed_authority_field(gvr, requested, new) {
            let field = field
                .trim_start_matches('/')
                .replace('/', ".")
                .replace("~1", "/");
            let message = format!(
                "admission may not change {field} in a write by the server's own user {:?}",
                self.ctx.user.name
            );
            return Err(Status::forbidden(gvr, name, message));
        }
        if *gvr == CLUSTER_ROLES && requested["metadata"]["labels"] != new["metadata"]["labels"] {
            return self.check_aggregated_labels(requested, new).await;
        }
        Ok(())
    }

    /// Fails with 403 if changed labels add the rules of a ClusterRole to another one.
    async fn check_aggregated_labels(&self, requested: &Value, new: &Value) -> Result<(), Status> {
        let ctx = RequestContext::internal();
        let resource = CLUSTER_ROLES;
        let path = ResourcePath::collection(&resource, "");
        let roles = self
            .registry
            .list(&ctx, path, &ListOptions::default())
            .await?;
        for role in &roles.items {
            if aggregates(role, new)? && !aggregates(role, requested)? {
                let message = format!(
                    "admission may not change the labels so that ClusterRole {:?} aggregates it, in a write by the server's own user {:?}",
                    role.name(),
                    self.ctx.user.name
                );
                let name = object_meta::metadata_string(requested, "name");
                return Err(Status::forbidden(&CLUSTER_ROLES, name, message));
            }
        }
        Ok(())
    }
}

/// Whether the aggregation rule of a ClusterRole selects the labels of another one.
fn aggregates(role: &Object, other: &Value) -> Result<bool, Status> {
    let role = role.value().map_err(Status::internal)?;
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array();
    for selector in selectors.into_iter().flatten() {
        let selector = LabelSelector::from_value(selector).map_err(Status::internal)?;
        if selector.matches(|key| other["metadata"]["labels"][key].as_str()) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use karmada_api::agents::TOKEN_CLUSTER;
    use serde_json::json;

    #[test]
    fn fields_that_decide_about_rights_are_compared() {
        let works = Gvr::from_static("work.karmada.io", "v1alpha1", "works");
        let clusters = Gvr::from_static("cluster.karmada.io", "v1alpha1", "clusters");
        let roles = Gvr::from_static(GROUP, "v1", "roles");
        let secrets = Gvr::from_static("", "v1", "secrets");
        let config_maps = Gvr::from_static("", "v1", "configmaps");
        let table = [
            (&roles, json!({"rules": null}), json!({}), None),
            (
                &roles,
                json!({"rules": []}),
                json!({"rules": [{"verbs": ["*"]}]}),
                Some("/rules"),
            ),
            (
                &roles,
                json!({"metadata": {"name": "a"}}),
                json!({"metadata": {"name": "a", "annotations": {"b": "c"}}}),
                None,
            ),
            (
                &works,
                json!({"spec": {}}),
                json!({"spec": {"suspendDispatching": true}}),
                Some("/spec"),
            ),
            (
                &clusters,
                json!({"spec": {"apiEndpoint": "https://a"}}),
                json!({"spec": {"apiEndpoint": "https://a", "taints": []}}),
                None,
            ),
            (
                &clusters,
                json!({"spec": {"apiEndpoint": "https://a"}}),
                json!({"spec": {"apiEndpoint": "https://b"}}),
                Some("/spec/apiEndpoint"),
            ),
            (
                &clusters,
                json!({"metadata": {"annotations": {"a": "b"}}}),
                json!({"metadata": {"annotations": {"a": "c", "flotilla.io/impersonate-uid": "true"}}}),
                Some("/metadata/annotations/flotilla.io~1impersonate-uid"),
            ),
            (
                &secrets,
                json!({"metadata": {"annotations": {TOKEN_CLUSTER: "a"}}}),
                json!({"metadata": {}}),
                Some("/metadata/annotations/flotilla.io~1cluster-name"),
            ),
            (
                &config_maps,
                json!({"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "a"}}),
                json!({"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "b"}}),
                Some("/data"),
            ),
            (
                &config_maps,
                json!({"metadata": {"name": "a"}, "data": {"ca.crt": "a"}}),
                json!({"metadata": {"name": "a"}, "data": {"ca.crt": "b"}}),
                None,
            ),
        ];
        for (resource, requested, new, expected) in table {
            assert_eq!(
                changed_authority_field(resource, &requested, &new),
                expected
            );
        }
    }
}

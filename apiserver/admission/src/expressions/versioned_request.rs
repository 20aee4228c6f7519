//! A request as expressions see it: its objects in the version that a rule matches, and the
//! variable `request`.

use kubernetes_cel::{AdmissionInputs, AuthorizationDecisions, CheckedResource};
use machinery::{Gvr, Status};
use serde_json::{Value, json};

use crate::attributes::AdmissionAttributes;
use crate::equivalent_versions::EquivalentVersions;

static NULL: Value = Value::Null;

/// The objects of a request in one version, with the variables that describe it.
#[derive(Debug)]
pub(crate) struct VersionedRequest {
    /// Null in a deletion.
    pub(crate) object: Value,
    old_object: Value,
    request: Value,
    resource: CheckedResource,
}

impl VersionedRequest {
    /// Converts the objects to a version. `matched` is the resource that a rule matched.
    pub(crate) async fn new(
        attributes: &AdmissionAttributes<'_>,
        versions: &EquivalentVersions<'_>,
        version: usize,
        matched: &Gvr,
        (new, old): (&Value, Option<&Value>),
    ) -> Result<Self, Status> {
        let object = versions.convert(version, new).await?;
        let old_object = versions.convert(version, old.unwrap_or(&NULL)).await?;
        let resource = CheckedResource {
            group: attributes.gvr.group.to_string(),
            resource: attributes.gvr.resource.to_string(),
            subresource: attributes.subresource.to_owned(),
            namespace: attributes.namespace.to_owned(),
            name: object_name(attributes, new).to_owned(),
            ..CheckedResource::default()
        };
        let kinds = &versions.kinds;
        let kind = |index: usize| {
            let gvk = &kinds[index].0;
            json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind})
        };
        let resource_json = |gvr: &Gvr| json!({"group": gvr.group, "version": gvr.version, "resource": gvr.resource});
        let mut request = json!({
            "kind": kind(version),
            "resource": resource_json(matched),
            "requestKind": kind(0),
            "requestResource": resource_json(&kinds[0].1),
            "operation": attributes.operation.as_str(),
            "userInfo": attributes.user,
            "dryRun": attributes.dry_run,
            "options": attributes.options_object(),
        });
        for (field, value) in [
            ("name", &*resource.name),
            ("namespace", attributes.namespace),
            ("subResource", attributes.subresource),
            ("requestSubResource", attributes.subresource),
        ] {
            if !value.is_empty() {
                request[field] = value.into();
            }
        }
        Ok(Self {
            object,
            old_object,
            request,
            resource,
        })
    }

    /// The values of all variables.
    pub(crate) fn inputs<'a>(
        &'a self,
        namespace_object: &'a Value,
        params: &'a Value,
        decisions: &'a AuthorizationDecisions,
    ) -> AdmissionInputs<'a> {
        AdmissionInputs {
            object: &self.object,
            old_object: &self.old_object,
            namespace_object,
            request: &self.request,
            params,
            request_resource: &self.resource,
            decisions,
        }
    }
}

fn object_name<'a>(attributes: &AdmissionAttributes<'a>, new: &'a Value) -> &'a str {
    match attributes.name {
        "" => new["metadata"]["name"].as_str().unwrap_or_default(),
        name => name,
    }
}

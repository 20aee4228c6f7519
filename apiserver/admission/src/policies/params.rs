//! Collects the parameters that a binding passes to its policy
//! (`CollectParams` in `k8s.io/apiserver/pkg/admission/plugin/policy/generic`).

use std::sync::Arc;

use client::{Api, ListOptions, ResourcePath};
use machinery::selector::FieldRequirement;
use machinery::{Gvk, Gvr, Object};
use serde_json::Value;

use super::binding::{ParamRef, ParamSelection};

/// Finds the resource of a kind.
pub trait KindResources: Send + Sync {
    /// The resource of a kind, and whether its objects have a namespace; `None` if the kind
    /// is not served.
    fn resource_of(&self, kind: &Gvk) -> Option<(Gvr, bool)>;
}

/// Reads parameters, from the watch cache where the server has one.
pub struct PolicyParamReader {
    api: Arc<dyn Api>,
    kinds: Arc<dyn KindResources>,
}

impl PolicyParamReader {
    pub fn new(api: Arc<dyn Api>, kinds: Arc<dyn KindResources>) -> Self {
        Self { api, kinds }
    }

    /// Why a policy with this kind of parameters cannot be evaluated.
    pub(super) fn configuration_error(&self, kind: &Gvk) -> Option<String> {
        let resource = self.kinds.resource_of(kind);
        resource.is_none().then(|| {
            let (group, version, kind) = (&kind.group, &kind.version, &kind.kind);
            format!(
                "failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'"
            )
        })
    }

    /// The parameters of a request in `namespace`; null where the policy is evaluated
    /// without any. The error is one of the binding's configuration.
    pub(super) async fn collect(
        &self,
        kind: Option<&Gvk>,
        reference: Option<&ParamRef>,
        namespace: &str,
    ) -> Result<Vec<Value>, String> {
        let (Some(kind), Some(reference)) = (kind, reference) else {
            return Ok(vec![Value::Null]);
        };
        let Some((resource, namespaced)) = self.kinds.resource_of(kind) else {
            let api_version = kind.api_version();
            let kind = &kind.kind;
            return Err(format!(
                "paramKind kind `&ParamKind{{APIVersion:{api_version},Kind:{kind},}}` not known"
            ));
        };
        let namespace = match (namespaced, &*reference.namespace, namespace) {
            (true, "", "") => {
                let message = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
                return Err(message.into());
            }
            (true, "", namespace) | (true, namespace, _) => namespace,
            (false, "", _) => "",
            (false, ..) => {
                let message =
                    "paramRef.namespace must not be provided for a cluster-scoped `paramKind`";
                return Err(message.into());
            }
        };
        let params = self
            .read(&resource, namespace, &reference.selection)
            .await?;
        if params.is_empty() && reference.required {
            let message = "no params found for policy binding with `Deny` parameterNotFoundAction";
            return Err(message.into());
        }
        params
            .iter()
            .map(|param| param.value().map_err(|e| e.to_string()))
            .collect()
    }

    async fn read(
        &self,
        resource: &Gvr,
        namespace: &str,
        selection: &ParamSelection,
    ) -> Result<Vec<Object>, String> {
        // A list with a field selector needs the same right at a host as a list of all objects.
        let field_selector = match selection {
            ParamSelection::Name(name) => FieldRequirement {
                field: "metadata.name".to_owned(),
                value: name.clone(),
                equal: true,
            }
            .to_string(),
            ParamSelection::Selector(_) => String::new(),
        };
        let options = ListOptions {
            resource_version: "0".into(),
            field_selector,
            ..ListOptions::default()
        };
        let path = ResourcePath::collection(resource, namespace);
        let listed = self.api.list(path, &options).await;
        let mut params = listed.map_err(|message| message.to_string())?.items;
        if let ParamSelection::Selector(selector) = selection {
            params.retain(|param| selector.matches(|key: &str| param.meta().label(key)));
        }
        Ok(params)
    }
}

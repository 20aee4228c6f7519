//! The attributes of a request that admission sees besides its objects.

use client::DeleteOptions;
use machinery::{Gvk, Gvr, UserInfo};
use serde_json::{Value, json};

use crate::audit_annotations::AuditAnnotations;

/// The group whose objects configure admission.
pub(crate) const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";

/// The operation of a request (kube-apiserver's `admission.Operation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionOperation {
    Create,
    Update,
    Delete,
    Connect,
}

impl AdmissionOperation {
    /// The operation's name in an AdmissionReview.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The options of a create, update or patch, as the request has them; empty where it is silent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedWriteOptions {
    pub field_manager: String,
    pub field_validation: String,
}

/// The options of a request, which the operation determines.
#[derive(Clone, Copy, Debug, Default)]
pub enum OperationOptions<'a> {
    /// A connection, whose options are its object.
    #[default]
    None,
    Write(&'a RequestedWriteOptions),
    Delete(&'a DeleteOptions),
}

/// A request without its objects (kube-apiserver's `admission.Attributes`).
#[derive(Clone, Copy, Debug)]
pub struct AdmissionAttributes<'a> {
    pub gvk: &'a Gvk,
    pub gvr: &'a Gvr,
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    pub name: &'a str,
    /// Empty when the request is on the object itself.
    pub subresource: &'a str,
    pub operation: AdmissionOperation,
    pub user: &'a UserInfo,
    pub dry_run: bool,
    pub options: OperationOptions<'a>,
    /// Where annotations of the request's audit events are collected, if it is audited.
    pub audit_annotations: Option<&'a AuditAnnotations>,
}

impl AdmissionAttributes<'_> {
    /// The options of the request as an object of `meta.k8s.io/v1`; null for a connection.
    pub(crate) fn options_object(&self) -> Value {
        if self.operation == AdmissionOperation::Connect {
            return Value::Null;
        }
        let kind = match self.operation {
            AdmissionOperation::Delete => "DeleteOptions",
            AdmissionOperation::Update => "UpdateOptions",
            _ => "CreateOptions",
        };
        let mut object = json!({"apiVersion": "meta.k8s.io/v1", "kind": kind});
        if self.dry_run {
            object["dryRun"] = json!(["All"]);
        }
        match self.options {
            OperationOptions::None => {}
            OperationOptions::Write(options) => {
                for (field, value) in [
                    ("fieldManager", &options.field_manager),
                    ("fieldValidation", &options.field_validation),
                ] {
                    if !value.is_empty() {
                        object[field] = value.as_str().into();
                    }
                }
            }
            OperationOptions::Delete(options) => set_delete_options(options, &mut object),
        }
        object
    }

    /// The name of Karmada's webhook for the kind.
    pub(crate) fn karmada_webhook_name(&self) -> String {
        match &*self.gvk.kind {
            "ResourceInterpreterWebhookConfiguration" => "config.karmada.io".into(),
            kind => format!("{}.karmada.io", kind.to_ascii_lowercase()),
        }
    }
}

fn set_delete_options(options: &DeleteOptions, object: &mut Value) {
    if let Some(seconds) = options.grace_period_seconds {
        object["gracePeriodSeconds"] = seconds.into();
    }
    if let Some(policy) = options.propagation {
        object["propagationPolicy"] = policy.as_str().into();
    }
    for (field, value) in [
        ("uid", &options.uid),
        ("resourceVersion", &options.resource_version),
    ] {
        if let Some(value) = value {
            object["preconditions"][field] = value.as_str().into();
        }
    }
}

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
    /// The options of a deletion.
    pub delete_options: Option<&'a DeleteOptions>,
    /// Where annotations of the request's audit events are collected, if it is audited.
    pub audit_annotations: Option<&'a AuditAnnotations>,
}

impl AdmissionAttributes<'_> {
    /// The options of the request, as the operation has them.
    pub(crate) fn options(&self) -> Value {
        if self.operation == AdmissionOperation::Connect {
            return Value::Null;
        }
        let kind = match self.operation {
            AdmissionOperation::Delete => "DeleteOptions",
            AdmissionOperation::Update => "UpdateOptions",
            _ => "CreateOptions",
        };
        let mut options = json!({"apiVersion": "meta.k8s.io/v1", "kind": kind});
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        let Some(deletion) = self.delete_options else {
            return options;
        };
        if let Some(seconds) = deletion.grace_period_seconds {
            options["gracePeriodSeconds"] = seconds.into();
        }
        if let Some(policy) = deletion.propagation {
            options["propagationPolicy"] = policy.as_str().into();
        }
        for (field, value) in [
            ("uid", &deletion.uid),
            ("resourceVersion", &deletion.resource_version),
        ] {
            if let Some(value) = value {
                options["preconditions"][field] = value.as_str().into();
            }
        }
        options
    }

    /// The name of Karmada's webhook for the kind.
    pub(crate) fn karmada_webhook_name(&self) -> String {
        match &*self.gvk.kind {
            "ResourceInterpreterWebhookConfiguration" => "config.karmada.io".into(),
            kind => format!("{}.karmada.io", kind.to_ascii_lowercase()),
        }
    }
}

//! The attributes of a request that admission sees besides its objects.

use client::DeleteOptions;
use machinery::{Gvk, Gvr, UserInfo};

use crate::audit_annotations::AuditAnnotations;

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
    /// The name of Karmada's webhook for the kind.
    pub(crate) fn karmada_webhook_name(&self) -> String {
        match &*self.gvk.kind {
            "ResourceInterpreterWebhookConfiguration" => "config.karmada.io".into(),
            kind => format!("{}.karmada.io", kind.to_ascii_lowercase()),
        }
    }
}

//! Gives the host's APIServices, webhooks and writes back to Karmada.

use anyhow::Context;
use client::{Api, DeleteOptions, ListOptions, ResourcePath, ignore_not_found};
use machinery::Gvr;

use super::api_services;
use super::backup::TakeoverBackup;
use super::freeze;
use super::session::TakeoverSession;
use super::webhooks;

const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";
/// The admission that Flotilla registers for itself.
const OWN_ADMISSION: &str = "app.kubernetes.io/managed-by=flotilla";
/// Its kinds; older hosts do not serve all of them.
const OWN_ADMISSION_KINDS: [&str; 3] = [
    "validatingwebhookconfigurations",
    "validatingadmissionpolicybindings",
    "validatingadmissionpolicies",
];

/// Gives APIServices and webhooks back, removes Flotilla's admission, and ends the freeze.
pub(super) async fn release(
    session: &TakeoverSession,
    backup: &TakeoverBackup,
) -> anyhow::Result<()> {
    api_services::give_back(session, &backup.api_services).await?;
    finish(session, backup).await
}

/// The same without the APIServices.
pub(super) async fn finish(
    session: &TakeoverSession,
    backup: &TakeoverBackup,
) -> anyhow::Result<()> {
    let host = &*session.host;
    remove_own_admission(host).await?;
    freeze::thaw(session).await?;
    webhooks::put_back(host, &backup.webhook_configurations).await
}

async fn remove_own_admission(host: &dyn Api) -> anyhow::Result<()> {
    let options = ListOptions {
        label_selector: OWN_ADMISSION.to_owned(),
        ..ListOptions::default()
    };
    for kind in OWN_ADMISSION_KINDS {
        let resource = Gvr::new(ADMISSION_GROUP, "v1", kind);
        let all = ResourcePath::collection(&resource, "");
        let listed = ignore_not_found(host.list(all, &options).await);
        for object in listed.context(kind)?.into_iter().flat_map(|l| l.items) {
            let at = ResourcePath::object(&resource, "", object.name());
            ignore_not_found(host.delete(at, &DeleteOptions::default()).await)
                .map(drop)
                .with_context(|| format!("{kind} {}", object.name()))?;
        }
    }
    Ok(())
}

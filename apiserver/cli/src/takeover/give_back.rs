//! The way back to Karmada: Flotilla stands still, its objects are saved, the APIServices lead
//! back, and what has changed is written to Karmada's definitions.

use std::path::Path;

use aggregation::{TakeoverPhase, TakeoverRecord};
use anyhow::{Context, ensure};

use super::api_services;
use super::backup::{TakeoverBackup, return_file};
use super::components::KarmadaComponents;
use super::definitions;
use super::freeze;
use super::owned_secrets;
use super::release::{finish, release};
use super::returned_objects::ReturnedObjects;
use super::session::{TakeoverSession, print_step};
use super::snapshot::Snapshot;
use super::summary::TakeoverSummary;
use super::webhooks;

/// Gives back what was taken over, or continues that.
pub(super) async fn give_back(
    session: &TakeoverSession,
    components: &KarmadaComponents<'_>,
    file: &Path,
) -> anyhow::Result<TakeoverSummary> {
    let mut record = session
        .claim(|record| {
            ensure!(
                !record.id.is_empty(),
                "nothing was taken over in namespace {}",
                session.namespace
            );
            TakeoverBackup::load(file, &record.id).map(drop)
        })
        .await?;
    let backup = TakeoverBackup::load(file, &record.id)?;
    let mut notes = Vec::new();
    match record.phase {
        TakeoverPhase::Returned => notes.push("everything was given back already".to_owned()),
        TakeoverPhase::Serve | TakeoverPhase::GiveBack => {
            notes = give_back_objects(session, &mut record, &backup, file).await?;
        }
        // Flotilla's controllers never ran, and nobody could write.
        TakeoverPhase::Check | TakeoverPhase::Move | TakeoverPhase::Switch => {
            let record = &mut record;
            session.stand_still(record, TakeoverPhase::GiveBack).await?;
            release(session, &backup).await?;
        }
    }
    if record.phase != TakeoverPhase::Returned {
        let record = &mut record;
        session.stand_still(record, TakeoverPhase::Returned).await?;
        notes.extend(components.start(&backup.scaled_down).await?);
    }
    let services = backup.api_services.iter().map(api_services::name);
    Ok(TakeoverSummary {
        phase: TakeoverPhase::Returned,
        host_version: String::new(),
        components: Vec::new(),
        api_services: services.map(str::to_owned).collect(),
        webhooks: webhooks::names(&backup.webhook_configurations),
        resources: backup.resources,
        notes,
        errors: Vec::new(),
    })
}

async fn give_back_objects(
    session: &TakeoverSession,
    record: &mut TakeoverRecord,
    backup: &TakeoverBackup,
    file: &Path,
) -> anyhow::Result<Vec<String>> {
    print_step("stopping Flotilla's controllers");
    session.enter(record, TakeoverPhase::GiveBack).await?;
    let returned = saved_state(session, record, backup, &return_file(file)).await?;
    print_step("leading the APIServices back");
    owned_secrets::detach(&*session.host, &returned.owned_secrets).await?;
    api_services::give_back(session, &backup.api_services).await?;
    session
        .wait_for(
            "the host to route requests to Karmada's servers",
            async || {
                let is_back = returned.snapshot.is_superseded(&*session.host).await?;
                Ok(is_back.then_some(()))
            },
        )
        .await?;
    let is_exempt = freeze::freeze(session, &backup.snapshot).await?;
    if !is_exempt {
        freeze::thaw(session).await?;
        freeze::wait_until_thawed(session, &backup.snapshot).await?;
    }
    print_step(format!("writing {} objects back", returned.snapshot.len()));
    let objects = ReturnedObjects {
        session,
        frozen: &backup.snapshot,
        imported: &backup.imported,
        returned: &returned.snapshot,
    };
    let uids = objects.write().await?;
    owned_secrets::attach(&*session.host, &returned.owned_secrets, &uids).await?;
    freeze::thaw(session).await?;
    freeze::wait_until_thawed(session, &backup.snapshot).await?;
    let deleted = objects.delete_others().await?;
    finish(session, backup).await?;
    // When the record says that everything is back, Flotilla ends those of its clients.
    definitions::end_watches(&*session.host, &backup.resources).await?;
    let mut notes = vec![format!("{deleted} objects were deleted since the takeover")];
    if !uids.is_empty() {
        let created = uids.len();
        notes.push(format!(
            "{created} objects were created since the takeover and have new uids"
        ));
    }
    Ok(notes)
}

/// Flotilla's objects while nobody writes them. A run that was interrupted after the APIServices
/// led back has saved them.
async fn saved_state(
    session: &TakeoverSession,
    record: &TakeoverRecord,
    backup: &TakeoverBackup,
    file: &Path,
) -> anyhow::Result<TakeoverBackup> {
    let host = &*session.host;
    let services = api_services::list(host).await?;
    let required = |service: &serde_json::Value| {
        let mut resources = backup.resources.iter();
        let spec = &service["spec"];
        resources.any(|r| spec["group"] == *r.group && spec["version"] == *r.version)
    };
    let mut required = services.iter().filter(|service| required(service));
    if !required.all(|service| api_services::leads_to_flotilla(service, session)) {
        let saved = TakeoverBackup::load(file, &record.id);
        return saved
            .context("the APIServices lead back already, but Flotilla's objects were not saved");
    }
    print_step("freezing writes");
    let current = Snapshot::read(host, &backup.resources).await?;
    freeze::freeze(session, &current).await?;
    print_step(format!("writing Flotilla's objects to {}", file.display()));
    let snapshot = Snapshot::read(host, &backup.resources).await?;
    let saved = TakeoverBackup {
        takeover: record.id.clone(),
        resources: backup.resources.clone(),
        owned_secrets: owned_secrets::list(host, &backup.snapshot, &snapshot).await?,
        snapshot,
        ..TakeoverBackup::default()
    };
    ensure!(
        saved.snapshot.resources.len() == backup.resources.len(),
        "Flotilla does not serve all resources"
    );
    saved.store(file)?;
    Ok(saved)
}

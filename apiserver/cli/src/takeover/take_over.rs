//! The way to Flotilla: check, backup, freeze, move, switch, prove.

use std::path::Path;
use std::time::Duration;

use aggregation::{MovedResource, TakeoverPhase, TakeoverRecord, TakeoverReport};
use anyhow::{Context, bail, ensure};
use karmada_api::FeatureGates;

use super::api_services;
use super::backup::TakeoverBackup;
use super::components::KarmadaComponents;
use super::definitions;
use super::freeze;
use super::release::release;
use super::session::{TakeoverSession, print_step};
use super::snapshot::Snapshot;
use super::summary::TakeoverSummary;
use super::webhooks;
use crate::plan;
use crate::scheduler_flags::SchedulerFlagValues;

/// The group whose objects say what members have.
const WORK_GROUP: &str = "work.karmada.io";

/// Watches at the aggregated API server go on, which only its restart ends.
const RESTART_NOTE: &str = "restart karmada-aggregated-apiserver: agents that watch Clusters there see \
                            no change of them before, up to ten minutes";

pub(super) struct TakeOverOptions {
    /// Whether templates may move, and unknown fields are dropped.
    pub(super) allow_changes: bool,
    /// How long Works are watched at the end.
    pub(super) watch: Duration,
    /// The flags of the server.
    pub(super) scheduling: SchedulerFlagValues,
    pub(super) gates: FeatureGates,
}

/// Reports what a takeover would change, and what would refuse it.
pub(super) async fn preflight(
    session: &TakeoverSession,
    components: &KarmadaComponents<'_>,
    options: &TakeOverOptions,
) -> anyhow::Result<TakeoverSummary> {
    let mut record = session
        .claim(|record| {
            ensure!(
                matches!(record.phase, TakeoverPhase::Check | TakeoverPhase::Returned),
                "a takeover is in the phase {}: run flotilla takeover without --preflight to \
                 continue it, or with --back",
                record.phase
            );
            Ok(())
        })
        .await?;
    let returned = record.phase == TakeoverPhase::Returned;
    record.allow_changes = options.allow_changes;
    let report = session.enter(&mut record, TakeoverPhase::Check).await?;
    if returned {
        session.enter(&mut record, TakeoverPhase::Returned).await?;
    }
    let mut summary = summary(session, TakeoverPhase::Check, &report.resources).await?;
    summary.components = components.states().await?;
    summary.notes = components.flags().await?;
    summary.errors = report.errors;
    let moving = plan::moving_templates(&*session.host, &options.scheduling, options.gates);
    let moving = moving.await.context("the simulation of the scheduler")?;
    match options.allow_changes {
        true => summary.notes.extend(moving),
        false => summary.errors.extend(moving),
    }
    Ok(summary)
}

/// Takes over, or continues a takeover that was interrupted.
pub(super) async fn take_over(
    session: &TakeoverSession,
    components: &KarmadaComponents<'_>,
    file: &Path,
    options: &TakeOverOptions,
) -> anyhow::Result<TakeoverSummary> {
    let mut record = session
        .claim(|record| {
            ensure!(
                record.phase != TakeoverPhase::GiveBack,
                "Flotilla is giving back what it has taken over: run the command again with --back \
                 and the same --backup"
            );
            Ok(())
        })
        .await?;
    match record.phase {
        TakeoverPhase::Serve => {
            freeze::thaw(session).await?;
            let resources = record.report.map(|r| r.resources).unwrap_or_default();
            let mut summary = summary(session, TakeoverPhase::Serve, &resources).await?;
            summary
                .notes
                .push("Flotilla has taken over already".to_owned());
            return Ok(summary);
        }
        TakeoverPhase::Check | TakeoverPhase::Returned => {
            begin(session, components, &mut record, file, options).await?;
        }
        TakeoverPhase::Move | TakeoverPhase::Switch | TakeoverPhase::GiveBack => {}
    }
    let mut backup = TakeoverBackup::load(file, &record.id)?;
    if record.phase == TakeoverPhase::Move {
        let moved = move_and_switch(session, components, &mut record, &mut backup, file).await;
        undo_if_failed(session, &mut record, &backup, moved).await?;
    }
    let checked = check_health(session, &backup).await;
    undo_if_failed(session, &mut record, &backup, checked).await?;
    print_step("ending the watches of Karmada's clients");
    definitions::end_watches(&*session.host, &backup.resources).await?;
    print_step("starting Flotilla's controllers");
    // First the phase: what is written after the freeze is not compared and undone any more.
    session.enter(&mut record, TakeoverPhase::Serve).await?;
    freeze::thaw(session).await?;
    freeze::wait_until_thawed(session, &backup.snapshot).await?;
    let mut summary = TakeoverSummary {
        webhooks: webhooks::names(&backup.webhook_configurations),
        ..summary(session, TakeoverPhase::Serve, &backup.resources).await?
    };
    summary
        .notes
        .push(format!("keep {}: --back needs it", file.display()));
    summary.notes.push(RESTART_NOTE.to_owned());
    summary.errors = watch_works(session, &mut record, &backup, options.watch).await?;
    Ok(summary)
}

async fn summary(
    session: &TakeoverSession,
    phase: TakeoverPhase,
    resources: &[MovedResource],
) -> anyhow::Result<TakeoverSummary> {
    let host = &*session.host;
    let services = api_services::list(host).await?;
    let webhooks = webhooks::karmada_configurations(host).await?;
    let version = session.host_version().await?;
    Ok(TakeoverSummary {
        phase,
        host_version: version["gitVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        resources: resources.to_vec(),
        components: Vec::new(),
        api_services: services
            .iter()
            .map(|s| api_services::name(s).to_owned())
            .collect(),
        webhooks: webhooks::names(&webhooks),
        notes: Vec::new(),
        errors: Vec::new(),
    })
}

/// Checks the objects and writes the backup; then the takeover begins.
async fn begin(
    session: &TakeoverSession,
    components: &KarmadaComponents<'_>,
    record: &mut TakeoverRecord,
    file: &Path,
    options: &TakeOverOptions,
) -> anyhow::Result<()> {
    // One that an interrupted run has written before anything changed is replaced.
    let is_replaceable =
        record.phase == TakeoverPhase::Check && TakeoverBackup::load(file, &record.id).is_ok();
    if !is_replaceable {
        ensure!(
            !file.exists(),
            "{} exists: name another --backup",
            file.display()
        );
        record.id = format!("{:016x}", rand::random::<u64>());
    }
    record.allow_changes = options.allow_changes;
    print_step("checking Karmada's objects");
    let report = session.enter(record, TakeoverPhase::Check).await?;
    refuse_errors(
        &report,
        "Flotilla refuses objects; change them, or drop unknown fields by --allow-changes",
    )?;
    let host = &*session.host;
    if !options.allow_changes {
        let moving = plan::moving_templates(host, &options.scheduling, options.gates);
        let moving: Vec<String> = moving.await.context("the simulation of the scheduler")?;
        ensure!(
            moving.is_empty(),
            "templates would move; take over with --allow-changes if they may: {}",
            moving.join("; ")
        );
    }
    let services = api_services::list(host).await?;
    let mut own = services
        .iter()
        .filter(|s| api_services::leads_to_flotilla(s, session));
    if let Some(service) = own.next() {
        bail!(
            "APIService {} leads to Flotilla already",
            api_services::name(service)
        );
    }
    print_step(format!("writing the backup {}", file.display()));
    let backup = TakeoverBackup {
        takeover: record.id.clone(),
        api_services: services,
        webhook_configurations: webhooks::karmada_configurations(host).await?,
        scaled_down: components.deployments().await?,
        snapshot: Snapshot::read(host, &report.resources).await?,
        resources: report.resources,
        owned_secrets: Vec::new(),
    };
    backup.store(file)?;
    let report = session.enter(record, TakeoverPhase::Move).await?;
    refuse_errors(&report, "Flotilla refuses objects")
}

fn refuse_errors(report: &TakeoverReport, message: &str) -> anyhow::Result<()> {
    let errors = report.errors.join("; ");
    ensure!(report.errors.is_empty(), "{message}: {errors}");
    Ok(())
}

/// Moves the objects while Karmada still writes, then once more while nobody does, and leads the
/// APIServices to Flotilla.
async fn move_and_switch(
    session: &TakeoverSession,
    components: &KarmadaComponents<'_>,
    record: &mut TakeoverRecord,
    backup: &mut TakeoverBackup,
    file: &Path,
) -> anyhow::Result<()> {
    // A run that was interrupted while it undid a switch has left APIServices.
    api_services::give_back(session, &backup.api_services).await?;
    print_step("stopping Karmada's controllers");
    components.stop(&backup.scaled_down).await?;
    print_step("freezing writes");
    freeze::freeze(session, &backup.snapshot).await?;
    print_step(format!("moving {} objects", backup.snapshot.len()));
    let report = session.enter(record, TakeoverPhase::Move).await?;
    refuse_errors(&report, "Flotilla refuses objects")?;
    backup.resources = report.resources;
    backup.snapshot = Snapshot::read(&*session.host, &backup.resources).await?;
    backup.store(file)?;
    session.ensure_current().await?;
    webhooks::take_out(&*session.host).await?;
    print_step("leading the APIServices to Flotilla");
    session.enter(record, TakeoverPhase::Switch).await?;
    Ok(())
}

/// Compares every object, read through the host, with what Karmada had.
async fn check_health(session: &TakeoverSession, backup: &TakeoverBackup) -> anyhow::Result<()> {
    api_services::wait_for_flotilla(session, &backup.resources).await?;
    let host = &*session.host;
    session
        .wait_for("the host to route requests to Flotilla", async || {
            Ok(backup.snapshot.is_superseded(host).await?.then_some(()))
        })
        .await?;
    print_step("comparing every object");
    let moved = Snapshot::read(host, &backup.resources).await?;
    let differences = backup.snapshot.differences(&moved);
    let is_allowed = session.record().await?.is_some_and(|r| r.allow_changes);
    ensure!(
        differences.is_empty() || is_allowed,
        "objects are not as Karmada had them: {}",
        differences.join("; ")
    );
    Ok(())
}

/// Gives everything back after a failure.
async fn undo_if_failed(
    session: &TakeoverSession,
    record: &mut TakeoverRecord,
    backup: &TakeoverBackup,
    outcome: anyhow::Result<()>,
) -> anyhow::Result<()> {
    let Err(error) = outcome else {
        return Ok(());
    };
    print_step(format!("undoing the switch: {error:#}"));
    let undone = async {
        // The phase first: Flotilla writes no APIService then. What it imports is what it has.
        session.stand_still(record, TakeoverPhase::Move).await?;
        release(session, backup).await?;
        anyhow::Ok(())
    };
    match undone.await {
        Ok(()) => Err(error.context(
            "the switch was undone, and Karmada serves as before, with its controllers stopped; run \
             the command again, or with --back to start them",
        )),
        Err(failure) => Err(failure).with_context(|| {
            format!("the switch failed ({error:#}) and is not undone: run the command with --back")
        }),
    }
}

/// Watches the Works and bindings for a time: none may get another spec, and nothing may be written
/// to a member.
async fn watch_works(
    session: &TakeoverSession,
    record: &mut TakeoverRecord,
    backup: &TakeoverBackup,
    watch: Duration,
) -> anyhow::Result<Vec<String>> {
    if watch.is_zero() {
        return Ok(Vec::new());
    }
    let watched = backup.resources.iter().filter(|r| r.group == WORK_GROUP);
    let watched: Vec<MovedResource> = watched.cloned().collect();
    print_step(format!(
        "watching Works and bindings for {} s",
        watch.as_secs()
    ));
    tokio::time::sleep(watch).await;
    let now = Snapshot::read(&*session.host, &watched).await;
    let now = now.context("Works after the takeover")?;
    let mut changed = Vec::new();
    for resource in &now.resources {
        let before = backup.snapshot.of(&resource.resource);
        for (key, object) in &resource.objects {
            let earlier = before.and_then(|before| before.objects.get(key));
            if earlier.is_none_or(|earlier| earlier["spec"] != object["spec"]) {
                let gvr = resource.resource.gvr();
                changed.push(format!("{gvr} {key} has changed since the takeover"));
            }
        }
    }
    let report = session.enter(record, TakeoverPhase::Serve).await?;
    if report.member_writes > 0 {
        changed.push(format!(
            "Flotilla has written {} objects of members since the takeover; if no template was \
             changed meanwhile, members differed from their Works",
            report.member_writes
        ));
    }
    Ok(changed)
}

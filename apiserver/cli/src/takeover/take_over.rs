//! The way to Flotilla: check, backup, freeze, move, switch, prove.

use std::path::Path;
use std::time::Duration;

use aggregation::{MovedResource, TakeoverPhase, TakeoverRecord, TakeoverReport};
use anyhow::{Context, bail, ensure};
use client::Api;
use karmada_api::FeatureGates;

use super::api_services;
use super::backup::TakeoverBackup;
use super::changed_works::{ChangedWorks, changed_works};
use super::components::KarmadaComponents;
use super::definitions;
use super::freeze;
use super::prove;
use super::release::release;
use super::rights;
use super::session::{TakeoverSession, print_step};
use super::snapshot::Snapshot;
use super::summary::TakeoverSummary;
use super::webhooks;
use crate::plan;
use crate::scheduler_flags::SchedulerFlagValues;

/// Watches at the aggregated API server go on, which only its restart ends.
const RESTART_NOTE: &str = "restart karmada-aggregated-apiserver: agents that watch Clusters there see \
                            no change of them before, up to ten minutes";

pub(super) struct TakeOverOptions {
    /// Whether templates may move and change, and unknown fields are dropped.
    pub(super) allow_changes: bool,
    /// How long Works are watched at the end.
    pub(super) watch: Duration,
    /// The flags of the server.
    pub(super) scheduling: SchedulerFlagValues,
    pub(super) gates: FeatureGates,
}

impl TakeOverOptions {
    /// The templates that Flotilla would place elsewhere, and the Works that it would write.
    pub(super) async fn simulate(&self, host: &dyn Api) -> anyhow::Result<ChangedWorks> {
        let moving = plan::moving_templates(host, &self.scheduling, self.gates);
        let moving = moving.await.context("the simulation of the scheduler")?;
        let mut simulated = changed_works(host, self.gates)
            .await
            .context("the simulation of Works")?;
        simulated.changes.splice(0..0, moving);
        Ok(simulated)
    }

    /// Adds what the simulation says to the summary of a preflight. An object that cannot be read
    /// ends it: then it is an error beside the others, which name the object and the field.
    pub(super) async fn add_simulated(&self, host: &dyn Api, summary: &mut TakeoverSummary) {
        match self.simulate(host).await {
            Ok(simulated) => {
                summary.notes.extend(simulated.notes);
                self.add_changes(simulated.changes, summary);
            }
            Err(error) => summary.errors.push(format!(
                "{error:#}: mend the objects that are refused, and run the preflight again to see \
                 what would move or change"
            )),
        }
    }

    /// Adds changes, which are errors unless they are allowed.
    pub(super) fn add_changes(&self, changes: Vec<String>, summary: &mut TakeoverSummary) {
        match self.allow_changes {
            true => summary.notes.extend(changes),
            false => summary.errors.extend(changes),
        }
    }

    /// Fails if something would change, unless that is allowed.
    pub(super) async fn refuse_changes(&self, host: &dyn Api) -> anyhow::Result<()> {
        if self.allow_changes {
            return Ok(());
        }
        let simulated = self.simulate(host).await?;
        let changes = simulated.changes.join("; ");
        ensure!(
            changes.is_empty(),
            "templates would move or change; if Karmada was about to make these changes, run the \
             command again, and add --allow-changes if Flotilla may make them: {changes}"
        );
        Ok(())
    }
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
    let missing = rights::missing_for_takeover(session, &report.resources);
    summary.errors.extend(missing.await);
    summary.errors.extend(components.missing_rights().await);
    options.add_simulated(&*session.host, &mut summary).await;
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
            summary.notes.extend([
                "Flotilla has taken over already; this run has not watched Works: if an earlier one \
                 was interrupted while it did, nothing says whether a Work was written"
                    .to_owned(),
                backup_note(file),
                RESTART_NOTE.to_owned(),
            ]);
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
    let checked = check_health(session, &mut backup, file).await;
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
    summary.notes.push(backup_note(file));
    summary.notes.push(RESTART_NOTE.to_owned());
    prove::watch_works(session, &mut record, &backup, options.watch, &mut summary).await?;
    Ok(summary)
}

fn backup_note(file: &Path) -> String {
    format!("keep {}: --back needs it", file.display())
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
    let mut missing = rights::missing_for_takeover(session, &report.resources).await;
    missing.extend(components.missing_rights().await);
    rights::refuse_missing(&missing)?;
    let host = &*session.host;
    options.refuse_changes(host).await?;
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
        ..TakeoverBackup::default()
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
    backup.imported = Snapshot::default();
    backup.store(file)?;
    session.ensure_current().await?;
    webhooks::take_out(&*session.host).await?;
    print_step("leading the APIServices to Flotilla");
    session.enter(record, TakeoverPhase::Switch).await?;
    Ok(())
}

/// Compares every object, read through the host, with what Karmada had.
async fn check_health(
    session: &TakeoverSession,
    backup: &mut TakeoverBackup,
    file: &Path,
) -> anyhow::Result<()> {
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
    if !differences.is_empty() {
        // The way back leaves the dropped fields of objects that nobody changes.
        backup.imported = backup.snapshot.changed_in(&moved);
        backup.store(file)?;
    }
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

#[cfg(test)]
mod tests {
    use client_fake::FakeApi;
    use karmada_api::resources::POLICIES;
    use serde_json::json;

    use super::*;

    // proves: TKO-malformed
    #[tokio::test]
    async fn an_object_that_ends_the_simulation_is_an_error_beside_the_others() {
        let fake = FakeApi::new();
        let policy = json!({"metadata": {"namespace": "n", "name": "p"}, "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}],
            "placement": {"clusterAffinity": {"clusterNames": "x"}}}});
        fake.seed(&POLICIES, policy);
        let options = TakeOverOptions {
            allow_changes: false,
            watch: Duration::ZERO,
            scheduling: SchedulerFlagValues::default(),
            gates: FeatureGates::default(),
        };
        let mut summary = TakeoverSummary {
            phase: TakeoverPhase::Check,
            host_version: String::new(),
            resources: Vec::new(),
            components: Vec::new(),
            api_services: Vec::new(),
            webhooks: Vec::new(),
            notes: Vec::new(),
            errors: vec!["another".to_owned()],
        };
        options.add_simulated(&*fake, &mut summary).await;
        let [_, error] = summary.errors.as_slice() else {
            panic!("{:?}", summary.errors);
        };
        assert!(error.contains("mend the objects"), "{error}");
    }
}

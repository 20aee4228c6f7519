//! The move of a running Karmada to a standalone Flotilla: templates, policies and all others become
//! the content of a store, as a backup that `flotilla restore` reads. Karmada is changed by the
//! freeze of writes alone.
//!
//! [`content`]: read ──► backup ──► freeze ──► read again ──► compare ──► file
//!
//! Every step can be repeated: a run that is interrupted leaves no file, and the next one begins
//! anew. The backup remembers what was scaled to zero.

mod content;
mod left_references;
mod server_objects;
#[cfg(test)]
mod tests;

use std::path::Path;

use aggregation::{StandaloneStore, TakeoverPhase};
use anyhow::{Context, ensure};
use client::ResourcePath;
use machinery::Gvr;

use content::{MovedContent, ReadOptions};

use super::backup::TakeoverBackup;
use super::components::{KarmadaComponents, ScaledDeployment};
use super::freeze;
use super::rights;
use super::session::{TakeoverSession, print_step};
use super::summary::{TakeoverSummary, first_lines};
use super::take_over::TakeOverOptions;
use super::webhooks;

static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
/// The namespace whose uid tells API servers apart.
const SYSTEM_NAMESPACE: &str = "kube-system";
/// The beginning of the id of a move in its backup.
const ID_PREFIX: &str = "standalone-";

/// A move to a standalone Flotilla.
pub(super) struct StandaloneMove<'a> {
    pub(super) session: &'a TakeoverSession,
    pub(super) components: &'a KarmadaComponents<'a>,
    pub(super) options: &'a TakeOverOptions,
    /// Resources that stay where they are.
    pub(super) left: &'a [String],
}

/// Whether a file is the backup of a move to a standalone Flotilla.
pub(super) fn is_backup(file: &Path) -> anyhow::Result<bool> {
    Ok(file.exists() && TakeoverBackup::read(file)?.takeover.starts_with(ID_PREFIX))
}

impl StandaloneMove<'_> {
    /// Reports what would be moved, and what cannot be. Nothing is written.
    pub(super) async fn preflight(&self) -> anyhow::Result<TakeoverSummary> {
        self.check_not_taken_over().await?;
        let content = self.read().await?;
        let mut summary = self.summary(TakeoverPhase::Check, &content).await?;
        summary.components = self.components.states().await?;
        let differences = content.differences().await;
        summary.errors.extend(self.missing_rights().await);
        let refusals = first_lines(content.errors);
        if refusals.is_empty() {
            // What is refused is not stored.
            self.options.add_changes(differences?, &mut summary);
        }
        summary.errors.extend(refusals);
        let host = &*self.session.host;
        self.options.add_simulated(host, &mut summary).await;
        Ok(summary)
    }

    /// Moves, or does so again after an interruption.
    pub(super) async fn run(&self, backup: &Path, file: &Path) -> anyhow::Result<TakeoverSummary> {
        self.check_not_taken_over().await?;
        let id = self.id().await?;
        check_files(backup, file)?;
        let earlier = match backup.exists() {
            true => TakeoverBackup::load(backup, &id)?,
            false => {
                let name = file.display();
                ensure!(
                    !file.exists(),
                    "{name} exists: name another --to-standalone"
                );
                TakeoverBackup::default()
            }
        };
        StandaloneStore::check_target(file)?;
        print_step("reading Karmada's objects");
        let content = self.read().await?;
        refuse_errors(&content)?;
        rights::refuse_missing(&self.missing_rights().await)?;
        self.options.refuse_changes(&*self.session.host).await?;
        print_step(format!("writing the backup {}", backup.display()));
        let deployments = self.components.deployments().await?;
        let taken = TakeoverBackup {
            takeover: id,
            scaled_down: with_earlier_replicas(deployments, &earlier.scaled_down),
            resources: moved_resources(&content),
            snapshot: content.snapshot,
            ..TakeoverBackup::default()
        };
        // The memory is needed for the objects that are read while nobody writes.
        drop(content.store);
        taken.store(backup)?;
        let moved = self.stop_and_write(taken, file).await;
        let mut summary = moved.with_context(|| {
            let name = backup.display();
            format!(
                "Karmada's controllers may have stopped and its writes be refused: run the \
                 command again, or with --back --backup {name}"
            )
        })?;
        summary.notes.push(format!(
            "restore it: flotilla restore {} --data-dir DIR; then start flotilla serve --data-dir DIR",
            file.display()
        ));
        summary.notes.push(format!(
            "writes to Karmada are refused until flotilla takeover --back --backup {}",
            backup.display()
        ));
        Ok(summary)
    }

    /// Stops Karmada's controllers and writes to what moves, and writes the file.
    async fn stop_and_write(
        &self,
        taken: TakeoverBackup,
        file: &Path,
    ) -> anyhow::Result<TakeoverSummary> {
        print_step("stopping Karmada's controllers");
        self.components.stop(&taken.scaled_down).await?;
        print_step("freezing writes");
        freeze::freeze_resources(self.session, &taken.snapshot).await?;
        drop(taken);
        self.write_store(file).await
    }

    /// Reads once more while nobody writes, and writes the file.
    async fn write_store(&self, file: &Path) -> anyhow::Result<TakeoverSummary> {
        print_step("reading Karmada's objects once more");
        let content = self.read().await?;
        refuse_errors(&content)?;
        print_step("comparing every object");
        let differences = content.differences().await?;
        ensure!(
            differences.is_empty() || self.options.allow_changes,
            "objects would not be as Karmada has them: {}",
            differences.join("; ")
        );
        let objects = content.snapshot.len();
        print_step(format!("writing {objects} objects to {}", file.display()));
        content.store.write(file, objects).await?;
        let mut summary = self.summary(TakeoverPhase::Move, &content).await?;
        summary.notes.extend(differences);
        Ok(summary)
    }

    /// Lets Karmada go on.
    pub(super) async fn back(&self, file: &Path) -> anyhow::Result<TakeoverSummary> {
        let backup = TakeoverBackup::load(file, &self.id().await?)?;
        print_step("accepting writes again");
        freeze::thaw(self.session).await?;
        freeze::wait_until_thawed(self.session, &backup.snapshot).await?;
        let mut notes = vec![
            "Karmada is as it was; what the standalone Flotilla has changed since stays there"
                .to_owned(),
        ];
        notes.extend(self.components.start(&backup.scaled_down).await?);
        Ok(TakeoverSummary {
            phase: TakeoverPhase::Returned,
            host_version: String::new(),
            resources: backup.resources,
            components: Vec::new(),
            api_services: Vec::new(),
            webhooks: Vec::new(),
            notes,
            errors: Vec::new(),
        })
    }

    async fn read(&self) -> anyhow::Result<MovedContent> {
        let options = ReadOptions {
            drops_unknown_fields: self.options.allow_changes,
            left: self.left,
        };
        MovedContent::read(&*self.session.host, &options).await
    }

    async fn missing_rights(&self) -> Vec<String> {
        let mut missing = rights::missing_for_freeze(&*self.session.host).await;
        missing.extend(self.components.missing_rights().await);
        missing
    }

    /// The objects of a Karmada whose groups Flotilla serves are Flotilla's.
    async fn check_not_taken_over(&self) -> anyhow::Result<()> {
        let Some(record) = self.session.record().await? else {
            return Ok(());
        };
        ensure!(
            matches!(record.phase, TakeoverPhase::Check | TakeoverPhase::Returned),
            "Flotilla in namespace {} has taken this Karmada over (phase {}): give it back first, \
             with --back",
            self.session.namespace,
            record.phase
        );
        Ok(())
    }

    /// The id of a move from this Karmada.
    async fn id(&self) -> anyhow::Result<String> {
        let at = ResourcePath::object(&NAMESPACES, "", SYSTEM_NAMESPACE);
        let namespace = self.session.host.get(at).await;
        let namespace = namespace.with_context(|| format!("namespace {SYSTEM_NAMESPACE}"))?;
        Ok(format!("{ID_PREFIX}{}", namespace.uid()))
    }

    async fn summary(
        &self,
        phase: TakeoverPhase,
        content: &MovedContent,
    ) -> anyhow::Result<TakeoverSummary> {
        let version = self.session.host_version().await?;
        let left_webhooks = webhooks::karmada_configurations(&*self.session.host).await?;
        let mut notes = content.notes.clone();
        let pull = content.snapshot.pull_clusters().into_iter();
        notes.extend(pull.map(|name| {
            format!("Cluster {name} is in pull mode: register its agent with the new server")
        }));
        Ok(TakeoverSummary {
            phase,
            host_version: version["gitVersion"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            resources: moved_resources(content),
            components: Vec::new(),
            api_services: Vec::new(),
            webhooks: webhooks::names(&left_webhooks),
            notes,
            errors: Vec::new(),
        })
    }
}

/// Fails before anything changes if a file cannot be written, or one would replace the other.
fn check_files(backup: &Path, file: &Path) -> anyhow::Result<()> {
    let resolved = |file: &Path| {
        let directory = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let directory = directory.canonicalize();
        let directory =
            directory.with_context(|| format!("the directory of {}", file.display()))?;
        anyhow::Ok(directory.join(file.file_name().unwrap_or_default()))
    };
    ensure!(
        resolved(backup)? != resolved(file)?,
        "--backup and --to-standalone name the same file: {}",
        file.display()
    );
    ensure!(!file.is_dir(), "{} is a directory", file.display());
    Ok(())
}

fn refuse_errors(content: &MovedContent) -> anyhow::Result<()> {
    let errors = first_lines(content.errors.clone()).join("; ");
    ensure!(errors.is_empty(), "not everything can be moved: {errors}");
    Ok(())
}

fn moved_resources(content: &MovedContent) -> Vec<aggregation::MovedResource> {
    let resources = content.snapshot.resources.iter();
    resources.map(|r| r.resource.clone()).collect()
}

/// Deployments with the replicas that they had before an earlier run scaled them to zero, and those
/// that only an earlier run has scaled.
fn with_earlier_replicas(
    current: Vec<ScaledDeployment>,
    earlier: &[ScaledDeployment],
) -> Vec<ScaledDeployment> {
    let is_same = |a: &ScaledDeployment, b: &ScaledDeployment| {
        (&a.namespace, &a.name) == (&b.namespace, &b.name)
    };
    let mut scaled = current;
    for before in earlier {
        match scaled.iter_mut().find(|now| is_same(now, before)) {
            Some(now) if now.replicas == 0 => now.replicas = before.replicas,
            Some(_) => {}
            None => scaled.push(before.clone()),
        }
    }
    scaled
}

//! The file in which everything stands that the takeover changes, as it was.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use aggregation::MovedResource;
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::components::ScaledDeployment;
use super::owned_secrets::OwnedSecret;
use super::snapshot::Snapshot;

/// The most bytes of a file that is read.
const MAX_BYTES: u64 = 8 << 30;

/// A backup: before the takeover the state of Karmada, at its end that of Flotilla.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TakeoverBackup {
    /// The id of the takeover.
    pub(super) takeover: String,
    pub(super) resources: Vec<MovedResource>,
    pub(super) api_services: Vec<Value>,
    /// The webhook configurations that lead to karmada-webhook.
    pub(super) webhook_configurations: Vec<Value>,
    /// Deployments that the command scales to zero, with their replicas.
    pub(super) scaled_down: Vec<ScaledDeployment>,
    pub(super) snapshot: Snapshot,
    /// The objects that Flotilla has otherwise than Karmada had them, because fields were dropped
    /// that it does not know.
    #[serde(default)]
    pub(super) imported: Snapshot,
    /// At the end, the Secrets whose owners get new uids.
    #[serde(default)]
    pub(super) owned_secrets: Vec<OwnedSecret>,
}

impl TakeoverBackup {
    /// Reads a file.
    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        let name = file.display();
        let context = || format!("the backup {name}");
        // Others, such as a pipe, may have no end.
        let is_file = fs::metadata(file).with_context(context)?.is_file();
        ensure!(is_file, "the backup {name} is no regular file");
        let opened = File::open(file).with_context(context)?;
        let mut text = Vec::new();
        let length = opened.take(MAX_BYTES + 1).read_to_end(&mut text);
        let length = length.with_context(context)? as u64;
        ensure!(length <= MAX_BYTES, "the backup {name} is too large");
        machinery::json::from_slice(&text)
            .with_context(|| format!("{name} is no backup of a takeover"))
    }

    /// Reads the file of a takeover.
    pub(super) fn load(file: &Path, takeover: &str) -> anyhow::Result<Self> {
        let backup = Self::read(file)?;
        ensure!(
            backup.takeover == takeover,
            "{} is the backup of another takeover ({}, not {takeover})",
            file.display(),
            backup.takeover
        );
        Ok(backup)
    }

    /// Writes the file for its owner alone; after a failure the file is as it was.
    pub(super) fn store(&self, file: &Path) -> anyhow::Result<()> {
        let partial = suffixed(file, ".partial");
        let context = || format!("the backup {}", file.display());
        if partial.exists() {
            fs::remove_file(&partial).with_context(context)?;
        }
        let mut options = OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600);
        let mut opened = opened.open(&partial).with_context(context)?;
        let text = serde_json::to_vec(self)?;
        let written = opened.write_all(&text).and_then(|()| opened.sync_all());
        let stored = written.and_then(|()| fs::rename(&partial, file));
        if stored.is_err() {
            // It has Secrets, and the disk may be full. The first error is the one that counts.
            let _ = fs::remove_file(&partial);
        }
        stored.with_context(context)
    }
}

/// The file beside a backup that has the state of Flotilla when it was given back.
pub(super) fn return_file(backup: &Path) -> PathBuf {
    suffixed(backup, ".return")
}

fn suffixed(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: TKO-resumed
    #[test]
    fn a_backup_is_a_regular_file() {
        let error = TakeoverBackup::read(Path::new("/dev/zero")).unwrap_err();
        assert!(error.to_string().contains("no regular file"), "{error}");
    }
}

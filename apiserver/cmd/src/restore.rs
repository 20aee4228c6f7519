//! The command `flotilla restore`: makes an embedded store from a backup, or writes it to
//! etcd.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Args;
use flotilla_cli::output;
use storage::EmbeddedRestoreOptions;
use storage::backup::BackupSummary;
use storage::etcd::{self, EtcdOptions};

use crate::backup::{describe, verify_named_file};
use crate::standalone::STORE_DIR;
use crate::storage_engine::{EtcdConnectionArgs, delta_options};

/// Restore a backup into a data directory or into etcd, while no server uses it.
///
/// Into a data directory every object is restored byte by byte, with its resourceVersion. The
/// revision of the store is then raised by --revision-skip, so that no resourceVersion that a
/// client has seen is used again. Into etcd values are restored byte by byte, and etcd assigns
/// new resourceVersions; it must have reached the revision of the backup.
///
/// The history before is compacted: a watch or a continued list from before the restore gets 410
/// Gone, and clients list again. What was restored is compared with the backup. No server starts
/// where a restore was cut off.
///
/// A restored server also needs what no backup has: see `flotilla backup --help`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla restore fleet.backup --data-dir /var/lib/flotilla\n  flotilla restore fleet.backup --etcd-servers https://10.0.0.1:2379 \\\n    --etcd-cafile ca.crt --etcd-certfile client.crt --etcd-keyfile client.key"
)]
pub(crate) struct RestoreArgs {
    /// The file of the backup.
    file: PathBuf,
    /// The data directory of the server; the store in it must not exist.
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present = "etcd_servers",
        conflicts_with = "etcd_servers"
    )]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    etcd: EtcdConnectionArgs,
    /// By how much the revision of the embedded store is raised. It must exceed the number of
    /// writes after the backup.
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000_000,
          value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "etcd_servers")]
    revision_skip: u64,
    /// Replace the store, or the keys below the prefix, if there are any.
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(arguments: RestoreArgs) -> anyhow::Result<()> {
    // A file that cannot be used changes nothing.
    verify_named_file(&arguments.file).await?;
    let (target, backup, revision) = match (arguments.etcd.options()?, arguments.data_dir) {
        (Some(options), _) => {
            let target = format!("etcd below {}", options.prefix);
            let restored = restore_etcd(options, &arguments.file, arguments.force).await?;
            (target, restored.0, restored.1)
        }
        (None, directory) => {
            let directory = directory.context("the flag --data-dir is required")?;
            let options = EmbeddedRestoreOptions {
                revision_skip: arguments.revision_skip,
                replace: arguments.force,
                deltas: delta_options(),
            };
            let target = directory.display().to_string();
            let restored = restore_embedded(directory, arguments.file, options).await?;
            (target, restored.0, restored.1)
        }
    };
    output::print_line(format!(
        "Restored to {target}: {}; the store begins at revision {revision}",
        describe(&backup)
    ));
    Ok(())
}

async fn restore_embedded(
    directory: PathBuf,
    file: PathBuf,
    options: EmbeddedRestoreOptions,
) -> anyhow::Result<(BackupSummary, u64)> {
    let restore = move || {
        auth::create_private_dir(&directory)
            .with_context(|| format!("cannot use {}", directory.display()))?;
        let store = directory.join(STORE_DIR);
        storage::restore_embedded(&store, &file, &options).map_err(restore_error)
    };
    tokio::task::spawn_blocking(restore).await?
}

async fn restore_etcd(
    options: EtcdOptions,
    file: &Path,
    replace: bool,
) -> anyhow::Result<(BackupSummary, u64)> {
    let restored = Box::pin(etcd::restore(options, file, replace)).await;
    restored.map_err(restore_error)
}

/// The reason alone: no store has failed.
fn restore_error(error: storage::Error) -> anyhow::Error {
    match error {
        storage::Error::Fatal(reason) | storage::Error::Unavailable(reason) => anyhow!(reason),
        other => anyhow!(other),
    }
}

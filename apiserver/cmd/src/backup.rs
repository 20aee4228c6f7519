//! The command `flotilla backup`: reads a backup of the store from a running server into a
//! file, and verifies it.

use std::fs::{File, Permissions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use client::{RemoteApi, ShutdownToken, TaskGroup};
use flotilla_cli::kubeconfig_flags::{ControlPlaneFlags, KubeconfigArgs};
use flotilla_cli::output;
use flotilla_http::BACKUP_PATH;
use storage::backup::{self, BackupSummary};
use tempfile::NamedTempFile;

/// The interval between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// The rights of the file: its owner alone may read Secrets.
const FILE_MODE: u32 = 0o600;

/// Back up everything that a control plane stores, while it serves.
///
/// The server sends all objects as they were at one revision, from the embedded store or from
/// its part of etcd. Values are copied as they are stored: encrypted Secrets stay encrypted.
/// The user needs the right to get the path /flotilla/backup, which cluster-admin includes. The
/// file is verified before it gets its name.
///
/// Not included, and needed to run a restored control plane: the directory pki of the data
/// directory (a server on etcd keeps those keys in etcd), files that flags name, and above all
/// the file of --encryption-provider-config, without whose keys Secrets cannot be decrypted.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla backup fleet.backup\n  flotilla backup fleet.backup --verify"
)]
pub(crate) struct BackupArgs {
    /// The file of the backup.
    file: PathBuf,
    /// Replace the file if it exists.
    #[arg(long, conflicts_with = "verify")]
    force: bool,
    /// Only verify an existing file; no server is asked.
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlags>,
}

pub(crate) async fn run(arguments: BackupArgs) -> anyhow::Result<()> {
    let file = &arguments.file;
    if arguments.verify {
        let backup = verify_named_file(file).await?;
        output::print_line(format!(
            "{} is whole: {}",
            file.display(),
            describe(&backup)
        ));
        return Ok(());
    }
    if !arguments.force && file.exists() {
        bail!(
            "{} exists; choose another name, or replace it with --force",
            file.display()
        );
    }
    let tasks = TaskGroup::new(ShutdownToken::new());
    let result = take(&arguments, &tasks).await;
    tasks.stop().await;
    let (backup, bytes) = result?;
    output::print_line(format!(
        "Backed up to {} ({bytes} bytes): {}",
        file.display(),
        describe(&backup)
    ));
    Ok(())
}

/// Takes the backup; also returns its size.
async fn take(arguments: &BackupArgs, tasks: &TaskGroup) -> anyhow::Result<(BackupSummary, u64)> {
    let file = &arguments.file;
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let cannot_write = || format!("cannot write {}", file.display());
    let temporary = tempfile::Builder::new()
        .prefix(".flotilla-backup-")
        .permissions(Permissions::from_mode(FILE_MODE))
        .tempfile_in(directory)
        .with_context(cannot_write)?;
    let api = RemoteApi::new(arguments.control.load_config()?, tasks)?;
    let bytes = download(&api, &temporary).await?;
    temporary.as_file().sync_all().with_context(cannot_write)?;
    let backup = verify_file(temporary.path())
        .await
        .context("the server's backup cannot be used")?;
    let persisted = match arguments.force {
        true => temporary.persist(file),
        false => temporary.persist_noclobber(file),
    };
    persisted.map_err(|e| e.error).with_context(cannot_write)?;
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .with_context(cannot_write)?;
    Ok((backup, bytes))
}

async fn download(api: &RemoteApi, temporary: &NamedTempFile) -> anyhow::Result<u64> {
    let mut stream = api.get_raw_stream(BACKUP_PATH).await?;
    let mut file = temporary.as_file();
    let mut progress = DownloadProgress::new();
    while let Some(chunk) = stream.next().await? {
        tokio::task::block_in_place(|| file.write_all(&chunk))
            .context("cannot write the backup")?;
        progress.add(chunk.len() as u64);
    }
    progress.finish();
    Ok(progress.bytes)
}

/// Reads a backup to its end; errors name its file.
pub(crate) async fn verify_named_file(file: &Path) -> anyhow::Result<BackupSummary> {
    let verified = verify_file(file).await;
    verified.with_context(|| format!("cannot use the backup {}", file.display()))
}

async fn verify_file(file: &Path) -> anyhow::Result<BackupSummary> {
    let path = file.to_owned();
    Ok(tokio::task::spawn_blocking(move || backup::verify(&path)).await??)
}

/// The content of a backup, for people.
pub(crate) fn describe(backup: &BackupSummary) -> String {
    let header = &backup.header;
    format!(
        "{} objects of {} at revision {}, taken {}",
        backup.keys,
        match header.engine.as_str() {
            "etcd" => format!("etcd below {}", header.prefix),
            _ => "the embedded store".to_owned(),
        },
        header.revision,
        header.taken_at
    )
}

/// The bytes so far, on one line of a terminal.
struct DownloadProgress {
    bytes: u64,
    /// `None`: standard error is no terminal.
    next_line: Option<Instant>,
    printed: bool,
}

impl DownloadProgress {
    fn new() -> Self {
        let terminal = io::stderr().is_terminal();
        Self {
            bytes: 0,
            next_line: terminal.then(|| Instant::now() + PROGRESS_INTERVAL),
            printed: false,
        }
    }

    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        let now = Instant::now();
        if self.next_line.is_some_and(|at| at <= now) {
            self.next_line = Some(now + PROGRESS_INTERVAL);
            self.printed = true;
            let mut terminal = io::stderr().lock();
            let _ = write!(terminal, "\r{} MiB read", self.bytes >> 20);
            let _ = terminal.flush();
        }
    }

    fn finish(&self) {
        if self.printed {
            let _ = writeln!(io::stderr().lock());
        }
    }
}

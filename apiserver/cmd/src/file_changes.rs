//! Notifies when configuration files change, so that they are read again at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// Watches files until it is dropped.
pub(crate) struct FileWatch {
    _watcher: RecommendedWatcher,
}

/// Notifies `changed` after changes in the directories of `files`. Directories are watched
/// because files are replaced by renaming, and those of mounted Secrets by changing a link.
/// `None` if there is nothing to watch, or the system refuses it: readers also read
/// periodically.
pub(crate) fn watch_files<'a>(
    files: impl IntoIterator<Item = &'a Path>,
    changed: &Arc<Notify>,
) -> Option<FileWatch> {
    let directories: BTreeSet<PathBuf> = files.into_iter().map(directory).collect();
    if directories.is_empty() {
        return None;
    }
    let changed = Arc::clone(changed);
    let on_event = move |event: notify::Result<notify::Event>| {
        // Reading a file is an event, too.
        let is_change = match event.map(|event| event.kind) {
            Ok(EventKind::Access(AccessKind::Close(AccessMode::Write))) | Err(_) => true,
            Ok(EventKind::Access(_)) => false,
            Ok(_) => true,
        };
        if is_change {
            changed.notify_one();
        }
    };
    let started = notify::recommended_watcher(on_event).and_then(|mut watcher| {
        for directory in &directories {
            watcher.watch(directory, RecursiveMode::NonRecursive)?;
        }
        Ok(watcher)
    });
    match started {
        Ok(watcher) => Some(FileWatch { _watcher: watcher }),
        Err(error) => {
            tracing::warn!(%error, "files cannot be watched for changes; they are read each minute");
            None
        }
    }
}

fn directory(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

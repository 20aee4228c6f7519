//! Writes audit events as lines to a file with rotation, or to the standard output.
//!
//! Rotated files have the names that kube-apiserver gives them:
//! `audit-2026-01-02T03-04-05.678.log`, with `.gz` when they are compressed.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::TaskGroup;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use jiff::civil::DateTime;
use machinery::time::Clock;

use super::event_queue::{
    AuditErrorCounters, AuditEventQueue, AuditEventReceiver, AuditQueueLimits,
};

/// Events written with one system call at most.
const MAX_BATCH_EVENTS: usize = 256;
const BACKUP_TIME_FORMAT: &str = "%Y-%m-%dT%H-%M-%S";

/// When a file is rotated and which rotated files are kept; zero stands for no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditLogRotation {
    /// The size in bytes at which the file is rotated.
    pub max_bytes: u64,
    pub max_age_days: u32,
    pub max_backups: usize,
    pub compress: bool,
}

/// The backend `log`.
pub struct AuditLogFile {
    path: PathBuf,
    rotation: AuditLogRotation,
    clock: Arc<dyn Clock>,
    file: File,
    length: u64,
}

impl AuditLogFile {
    /// Opens the file for appending; creates it readable for its owner alone.
    pub fn open(
        path: &Path,
        rotation: AuditLogRotation,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let file = open_for_append(path)?;
        Ok(Self {
            path: path.to_owned(),
            rotation,
            clock,
            length: file.metadata()?.len(),
            file,
        })
    }

    /// Writes the events of the returned queue until the group's shutdown, then the events that
    /// remain in the queue.
    pub fn start(self, errors: &AuditErrorCounters, tasks: &TaskGroup) -> AuditEventQueue {
        let mut sink = self;
        start_writer(errors, tasks, move |lines| sink.write_lines(lines))
    }

    fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        let max = self.rotation.max_bytes;
        if max > 0 && self.length > 0 && self.length + lines.len() as u64 > max {
            self.rotate()?;
        }
        self.file.write_all(lines)?;
        self.length += lines.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let now = self.clock.now();
        let backup = self.backup_path(now);
        std::fs::rename(&self.path, &backup)?;
        self.file = open_for_append(&self.path)?;
        self.length = 0;
        if self.rotation.compress
            && let Err(e) = compress(&backup)
        {
            tracing::warn!(error = %e, file = %backup.display(), "cannot compress an audit log");
        }
        self.remove_old_backups(now)
    }

    /// The path's directory, stem and extension.
    fn name_parts(&self) -> (PathBuf, String, String) {
        let part = |part: Option<&std::ffi::OsStr>| {
            part.map(|p| p.to_string_lossy().into_owned())
                .unwrap_or_default()
        };
        let directory = self.path.parent().map(Path::to_owned).unwrap_or_default();
        let extension = self.path.extension().map(|e| format!(".{}", part(Some(e))));
        (
            directory,
            part(self.path.file_stem()),
            extension.unwrap_or_default(),
        )
    }

    fn backup_path(&self, now: Timestamp) -> PathBuf {
        let (directory, stem, extension) = self.name_parts();
        let mut at = now;
        loop {
            let millis = at.as_millisecond().rem_euclid(1000);
            let time = at.strftime(BACKUP_TIME_FORMAT);
            let path = directory.join(format!("{stem}-{time}.{millis:03}{extension}"));
            let compressed = PathBuf::from(format!("{}.gz", path.display()));
            if !path.exists() && !compressed.exists() {
                return path;
            }
            // Two rotations within a millisecond.
            at += Duration::from_millis(1);
        }
    }

    /// The rotated files with their times, newest first.
    fn backups(&self) -> io::Result<Vec<(Timestamp, PathBuf)>> {
        let (directory, stem, extension) = self.name_parts();
        let directory = match directory.as_os_str().is_empty() {
            true => Path::new(".").to_owned(),
            false => directory,
        };
        let mut backups = Vec::new();
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
            let name = name.unwrap_or_default();
            let time = name
                .strip_prefix(&format!("{stem}-"))
                .map(|rest| rest.strip_suffix(".gz").unwrap_or(rest))
                .and_then(|rest| rest.strip_suffix(&extension))
                .and_then(parse_backup_time);
            backups.extend(time.map(|time| (time, path)));
        }
        backups.sort_by(|a, b| b.cmp(a));
        Ok(backups)
    }

    fn remove_old_backups(&self, now: Timestamp) -> io::Result<()> {
        let AuditLogRotation {
            max_age_days,
            max_backups,
            ..
        } = self.rotation;
        let max_age = i64::from(max_age_days) * 24 * 3600;
        for (n, (time, path)) in self.backups()?.into_iter().enumerate() {
            let is_surplus = max_backups > 0 && n >= max_backups;
            let is_old = max_age > 0 && now.as_second() - time.as_second() > max_age;
            if is_surplus || is_old {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Writes events to the standard output, like [`AuditLogFile::start`].
pub fn start_stdout_log(errors: &AuditErrorCounters, tasks: &TaskGroup) -> AuditEventQueue {
    start_writer(errors, tasks, |lines| {
        let mut out = io::stdout().lock();
        out.write_all(lines)?;
        out.flush()
    })
}

fn start_writer(
    errors: &AuditErrorCounters,
    tasks: &TaskGroup,
    write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
) -> AuditEventQueue {
    let (queue, receiver) = AuditEventQueue::new(AuditQueueLimits::default(), errors, "log");
    let stop = tasks.shutdown().clone();
    tasks.spawn(async move { write_events(receiver, stop, write).await });
    queue
}

async fn write_events<W>(
    mut receiver: AuditEventReceiver,
    stop: client::ShutdownToken,
    mut write: W,
) where
    W: FnMut(&[u8]) -> io::Result<()> + Send + 'static,
{
    let mut failing = false;
    loop {
        let next = receiver.next_batch(MAX_BATCH_EVENTS, Duration::ZERO);
        let batch = match stop.run_until_triggered(next).await {
            Some(batch) => batch,
            None => {
                receiver.close();
                receiver.next_batch(MAX_BATCH_EVENTS, Duration::ZERO).await
            }
        };
        if batch.is_empty() {
            return;
        }
        let lines = join_lines(&batch);
        let written = tokio::task::spawn_blocking(move || {
            let result = write(&lines);
            (write, result)
        });
        let Ok((returned, result)) = written.await else {
            return;
        };
        write = returned;
        if let Err(e) = &result {
            receiver.errors.inc_by(batch.len() as u64);
            if !failing {
                tracing::error!(error = %e, "cannot write audit events");
            }
        }
        failing = result.is_err();
    }
}

fn join_lines(batch: &[Bytes]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(batch.iter().map(|event| event.len() + 1).sum());
    for event in batch {
        lines.extend_from_slice(event);
        lines.push(b'\n');
    }
    lines
}

fn open_for_append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).open(path)
}

fn parse_backup_time(text: &str) -> Option<Timestamp> {
    let (seconds, millis) = text.rsplit_once('.')?;
    let millis: u16 = millis.parse().ok().filter(|_| millis.len() == 3)?;
    let time = DateTime::strptime(BACKUP_TIME_FORMAT, seconds).ok()?;
    let time = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    time.checked_add(Duration::from_millis(millis.into())).ok()
}

/// Replaces a file by its compressed form.
fn compress(path: &Path) -> io::Result<()> {
    let target = format!("{}.gz", path.display());
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600);
    let mut encoder = GzEncoder::new(file.open(&target)?, Compression::default());
    io::copy(&mut File::open(path)?, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    std::fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::time::FakeClock;

    const START: &str = "2026-01-02T03:04:05.678Z";

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_rotated_compressed_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(FakeClock::new(START.parse().unwrap()));
        let rotation = AuditLogRotation {
            max_bytes: 10,
            max_age_days: 1,
            max_backups: 2,
            compress: true,
        };
        let path = dir.path().join("audit.log");
        let mut log = AuditLogFile::open(&path, rotation, Arc::clone(&clock) as _).unwrap();
        std::fs::write(dir.path().join("audit-other.log"), "kept").unwrap();
        log.write_lines(b"123456\n").unwrap();
        assert_eq!(names(dir.path()), ["audit-other.log", "audit.log"]);
        for n in 0..3 {
            log.write_lines(format!("{n}23456\n").as_bytes()).unwrap();
        }
        // The oldest of three backups is gone.
        let backups = [679, 680].map(|ms| format!("audit-2026-01-02T03-04-05.{ms}.log.gz"));
        assert_eq!(names(dir.path())[..2], backups);
        let mut text = String::new();
        let packed = File::open(dir.path().join(&backups[1])).unwrap();
        io::Read::read_to_string(&mut flate2::read::GzDecoder::new(packed), &mut text).unwrap();
        assert_eq!(text, "123456\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "223456\n");
        clock.advance(jiff::SignedDuration::from_hours(48));
        log.write_lines(b"323456\n").unwrap();
        let remaining_files = names(dir.path());
        assert_eq!(remaining_files[0], "audit-2026-01-04T03-04-05.678.log.gz");
        assert_eq!(remaining_files[1..], ["audit-other.log", "audit.log"]);
    }

    #[tokio::test]
    async fn events_left_at_shutdown_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let clock = Arc::new(machinery::time::SystemClock);
        let log = AuditLogFile::open(&path, AuditLogRotation::default(), clock).unwrap();
        let tasks = TaskGroup::new(client::ShutdownToken::new());
        let errors = AuditErrorCounters::new(&flotilla_metrics::MetricsRegistry::new());
        let queue = log.start(&errors, &tasks);
        for n in 0..1000 {
            queue.send(n.to_string().into());
        }
        tasks.stop().await;
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().eq((0..1000).map(|n| n.to_string())));
    }
}

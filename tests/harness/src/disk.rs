//! A simulated disk for crash tests: a test counts its fsync calls, lets them fail or do
//! nothing, and simulates a power loss, which discards what was not synced.
//!
//! It is a small C library, compiled here with the machine's `cc` and preloaded into the
//! process under test; see `disk.c`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

const LIBRARY_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/disk.c");
const LIBRARY_FILE: &str = "libdisk.so";
const PAGE_BYTES: usize = 4096;

/// The effect of fsync and fdatasync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsyncMode {
    /// Written pages become durable.
    Works,
    /// EIO; written pages are not durable, and a later fsync does not make them durable.
    Fails,
    /// Success, and nothing becomes durable.
    Forgets,
}

/// How many calls of fsync and fdatasync there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsyncCounts {
    pub worked: u64,
    pub failed: u64,
    pub forgotten: u64,
}

/// The disk below a directory; one process at a time uses it.
pub struct FaultyDisk {
    root: PathBuf,
    control: File,
    directory: TempDir,
}

impl FaultyDisk {
    /// The content of the directory is durable when a process starts.
    pub fn new(root: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        compile_library(&directory.path().join(LIBRARY_FILE));
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(directory.path().join("control"))
            .unwrap();
        control.set_len(PAGE_BYTES as u64).unwrap();
        let disk = Self {
            root: root.to_owned(),
            control,
            directory,
        };
        disk.reset_durable_copies();
        disk
    }

    /// The environment variables for the process under test.
    pub fn environment(&self, program: &Path) -> Vec<(&'static str, OsString)> {
        let name = program.file_name().unwrap();
        vec![
            (
                "LD_PRELOAD",
                self.directory.path().join(LIBRARY_FILE).into(),
            ),
            ("DISK_PROGRAM", name.into()),
            ("DISK_ROOT", self.root.clone().into()),
            ("DISK_DURABLE", self.durable().into()),
            ("DISK_CONTROL", self.directory.path().join("control").into()),
        ]
    }

    /// Sets what fsync does from now on.
    pub fn set_fsync(&self, fsync: FsyncMode) {
        let mode = match fsync {
            FsyncMode::Works => 0_u64,
            FsyncMode::Fails => 1,
            FsyncMode::Forgets => 2,
        };
        self.control.write_all_at(&mode.to_ne_bytes(), 0).unwrap();
    }

    pub fn fsyncs(&self) -> FsyncCounts {
        let count = |n: u64| {
            let mut bytes = [0; 8];
            self.control.read_exact_at(&mut bytes, 8 * n).unwrap();
            u64::from_ne_bytes(bytes)
        };
        FsyncCounts {
            worked: count(1),
            failed: count(2),
            forgotten: count(3),
        }
    }

    /// Simulates a power loss; the process must have been killed. `survives` decides for each
    /// page that was written and not synced, because a disk may write a page without fsync.
    pub fn lose_power(&self, mut survives: impl FnMut() -> bool) {
        if !self.durable().join("ready").exists() {
            // The process was killed before the library had copied the files.
            self.reset_durable_copies();
            return;
        }
        let mut entries = BTreeMap::new();
        for entry in fs::read_dir(self.durable().join("entries")).unwrap() {
            let entry = entry.unwrap();
            let path = self
                .root
                .join(entry.file_name().to_str().unwrap().replace('%', "/"));
            let copy = self.durable().join(fs::read_link(entry.path()).unwrap());
            let mut content = match fs::read(copy) {
                Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
                content => content.unwrap(),
            };
            let written = fs::read(&path).unwrap_or_default();
            apply_surviving_pages(&mut content, &written, &mut survives);
            entries.insert(path, content);
        }
        remove_files(&self.root);
        for (path, content) in entries {
            fs::write(path, content).unwrap();
        }
        self.reset_durable_copies();
    }

    fn durable(&self) -> PathBuf {
        self.directory.path().join("durable")
    }

    /// Removes the durable copies: for the next process the present files are durable.
    fn reset_durable_copies(&self) {
        let durable = self.durable();
        if durable.exists() {
            fs::remove_dir_all(&durable).unwrap();
        }
        fs::create_dir_all(durable.join("entries")).unwrap();
    }
}

/// Overwrites `durable` with those pages of `written` that differ and for which
/// `survives` returns true.
fn apply_surviving_pages(
    durable: &mut Vec<u8>,
    written: &[u8],
    survives: &mut impl FnMut() -> bool,
) {
    for (n, page) in written.chunks(PAGE_BYTES).enumerate() {
        let range = n * PAGE_BYTES..n * PAGE_BYTES + page.len();
        if durable.get(range.clone()) == Some(page) || !survives() {
            continue;
        }
        if durable.len() < range.end {
            durable.resize(range.end, 0);
        }
        durable[range].copy_from_slice(page);
    }
}

fn remove_files(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            remove_files(&path);
        } else {
            fs::remove_file(path).unwrap();
        }
    }
}

/// A separate filesystem (tmpfs), small enough for a test to fill it.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// `None`, and the test is recorded as skipped, where this user may not mount.
    pub fn mount(bytes: u64) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(directory.path())
            .output();
        if mounted.is_ok_and(|out| out.status.success()) {
            return Some(Self(directory));
        }
        crate::tools::skip("the right to mount a tmpfs");
        None
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Uses all space that is left.
    pub fn fill(&self) {
        let mut ballast = File::create(self.ballast()).unwrap();
        let chunk = vec![0; PAGE_BYTES];
        while let Ok(size) = ballast.write(&chunk)
            && size > 0
        {}
    }

    /// Frees the space that [`SmallDisk::fill`] used.
    pub fn free_space(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount: a server that is being killed may still have files open.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

fn compile_library(library: &Path) {
    let out = Command::new("cc")
        .args([
            "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o",
        ])
        .args([library, Path::new(LIBRARY_SOURCE)])
        .args(["-ldl", "-lpthread"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "cc {LIBRARY_SOURCE}: {errors}");
}

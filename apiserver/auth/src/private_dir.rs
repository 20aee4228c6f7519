//! Directories for keys and data that only their owner may access.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

const OWNER_ONLY: u32 = 0o700;
/// Permission bits of group and others.
const GROUP_AND_OTHERS: u32 = 0o077;
/// The permission of others to create and to replace files.
const OTHERS_WRITE: u32 = 0o002;
/// The sticky bit, set on directories such as `/tmp` that all users share.
const STICKY: u32 = 0o1000;

/// Creates a directory with mode 0700, or removes the permissions of group and others
/// from an existing one. Parents are created with the usual permissions.
///
/// Refuses a directory in which others could have placed files, such as keys of their choice.
pub fn create_private_dir(dir: &Path) -> io::Result<()> {
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(OWNER_ONLY).create(dir) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        created => return created,
    }
    let metadata = fs::metadata(dir)?;
    if !metadata.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & GROUP_AND_OTHERS == 0 {
        return Ok(());
    }
    if mode & STICKY != 0 {
        let message =
            format!("it is shared by all users (mode {mode:o}); choose another directory");
        return Err(io::Error::other(message));
    }
    let others_write = mode & OTHERS_WRITE != 0;
    if others_write && fs::read_dir(dir)?.next().is_some() {
        let message = format!(
            "every user can write to it (mode {mode:o}); check what is in it, then change its mode \
             to 0700"
        );
        return Err(io::Error::other(message));
    }
    match fs::set_permissions(dir, Permissions::from_mode(OWNER_ONLY)) {
        Err(e) if e.kind() == ErrorKind::PermissionDenied && others_write => {
            let message = format!(
                "it belongs to another user and every user can write to it (mode {mode:o}); choose \
                 a directory in it, which will be created"
            );
            Err(io::Error::other(message))
        }
        // A volume of another owner, such as that of a pod with an fsGroup.
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
            tracing::warn!(
                dir = %dir.display(),
                mode = %format_args!("{mode:o}"),
                "this directory belongs to another user and other users may access it"
            );
            Ok(())
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(dir: &Path) -> u32 {
        fs::metadata(dir).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn directories_are_private_to_their_owner() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        create_private_dir(&dir).unwrap();
        assert_eq!(mode(&dir), 0o700);
        for wide_mode in [0o755, 0o750, 0o701, 0o2775, 0o777] {
            fs::set_permissions(&dir, Permissions::from_mode(wide_mode)).unwrap();
            create_private_dir(&dir).unwrap();
            assert_eq!(mode(&dir), 0o700, "{wide_mode:o}");
        }
        fs::set_permissions(&dir, Permissions::from_mode(0o500)).unwrap();
        create_private_dir(&dir).unwrap();
        assert_eq!(mode(&dir), 0o500, "narrower permissions are kept");
    }

    #[test]
    fn a_directory_in_which_others_could_place_files_is_rejected() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("data");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("ca.key"), "").unwrap();
        for (wide_mode, accepted) in [(0o777, false), (0o702, false), (0o775, true), (0o755, true)]
        {
            fs::set_permissions(&dir, Permissions::from_mode(wide_mode)).unwrap();
            let result = create_private_dir(&dir);
            assert_eq!(result.is_ok(), accepted, "{wide_mode:o}: {result:?}");
            assert_eq!(mode(&dir), if accepted { 0o700 } else { wide_mode });
            let names_mode = |e: io::Error| e.to_string().contains(&format!("mode {wide_mode:o}"));
            assert!(result.err().is_none_or(names_mode));
        }
    }

    #[test]
    fn shared_directories_and_files_are_rejected() {
        let root = tempfile::tempdir().unwrap();
        let shared = root.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
        let message = create_private_dir(&shared).unwrap_err().to_string();
        assert!(message.contains("mode 1777"), "{message}");
        assert_eq!(mode(&shared), 0o1777);
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(create_private_dir(&file).is_err());
    }
}

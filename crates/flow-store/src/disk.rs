//! The directory itself: making it, locking it, asking how full its disk is.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::error::StoreError;

/// Is the lock file's name. It holds the owner's process id, for people; the lock is what counts.
const LOCK_FILE: &str = "lock.pid";

fn failed(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Directory { action, path, source }
}

/// Makes the directory for its owner only, if it is not there, and its entry durable, with those of
/// all directories that had to be made above it.
pub(crate) fn create(dir: &Path) -> Result<(), StoreError> {
    if dir.is_dir() {
        return Ok(());
    }
    let holders = holders_of_missing(dir);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(failed("create directory", dir))?;
    holders.into_iter().try_for_each(|holder| {
        File::open(holder)
            .and_then(|holder| holder.sync_all())
            .map_err(failed("sync directory", holder))
    })
}

/// Removes a directory and what is in it, if it is there.
pub(crate) fn remove_all(dir: &Path) -> Result<(), StoreError> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed("remove directory", dir)(error)),
        _ => Ok(()),
    }
}

/// Lists the directories that get an entry when `dir` is made with all that is missing above it.
fn holders_of_missing(dir: &Path) -> Vec<&Path> {
    let missing = dir.ancestors().take_while(|path| !path.is_dir());
    missing
        .filter_map(Path::parent)
        .map(|parent| match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        })
        .collect()
}

/// Holds a directory for this process; dropping it, or the process's end, gives it back.
pub(crate) struct DirLock(File);

impl Drop for DirLock {
    fn drop(&mut self) {
        // Closing is not enough: a child that was forked and has not begun its program yet holds a
        // copy of the descriptor, and with it the lock. A failure leaves what closing does.
        let _ = self.0.unlock();
    }
}

/// Takes the directory for this process.
pub(crate) fn lock(dir: &Path) -> Result<DirLock, StoreError> {
    let path = dir.join(LOCK_FILE);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(&path).map_err(failed("open", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let known = file.read_to_string(&mut pid).is_ok() && pid.trim().parse::<u32>().is_ok();
            return Err(StoreError::Busy {
                dir: dir.to_owned(),
                holder: if known {
                    format!(" (pid {})", pid.trim())
                } else {
                    String::new()
                },
            });
        }
        Err(TryLockError::Error(source)) => return Err(failed("lock", &path)(source)),
    }
    file.set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(failed("write", &path))?;
    Ok(DirLock(file))
}

/// Counts the bytes an unprivileged process may still write on the directory's disk.
///
/// # Errors
/// Reconfigure if the system cannot tell.
#[allow(unsafe_code)]
pub fn free_bytes(dir: &Path) -> Result<u64, StoreError> {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::CString::new(dir.as_os_str().as_bytes())
        .map_err(|error| failed("ask for free space of", dir)(error.into()))?;
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `name` is NUL-terminated and `stat` is a writable statvfs; both outlive the call.
    let result = unsafe { libc::statvfs(name.as_ptr(), stat.as_mut_ptr()) };
    if result != 0 {
        return Err(failed("ask for free space of", dir)(std::io::Error::last_os_error()));
    }
    // SAFETY: all bit patterns are valid for its integers, and a call that returns 0 has filled it.
    let stat = unsafe { stat.assume_init() };
    #[allow(clippy::unnecessary_cast, reason = "the fields' width differs between systems")]
    Ok((stat.f_bavail as u64).saturating_mul(stat.f_frsize as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_that_gets_an_entry_is_synced() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("a")).expect("made");
        assert_eq!(holders_of_missing(&at("a/b/c/d")), [at("a/b/c"), at("a/b"), at("a")]);
        assert_eq!(holders_of_missing(&at("a/b")), [at("a")]);
        assert_eq!(holders_of_missing(&at("a")), Vec::<&Path>::new());
        assert_eq!(
            holders_of_missing(Path::new("no/such")),
            [Path::new("no"), Path::new(".")]
        );
        create(&at("a/b/c/d")).expect("made and synced");
        create(&at("a/b/c/d")).expect("there already");
    }
}

//! A path of the command line: its directory, its file system, and the possible tests.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;

use super::explanation;
use super::mount::MountedFileSystem;
use super::trial_ends::{SampleFile, TRIAL_TIME_MAX, within};

/// Directory entries examined to find a readable file.
const ENTRIES_MAX: usize = 256;

/// A path of the command line, and its possible uses.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TestedPath {
    /// The letter that represents it in the report.
    pub(super) id: String,
    pub(super) given: String,
    pub(super) directory: Option<String>,
    pub(super) usable: Usable,
    /// Remarks for the user.
    pub(super) notes: Vec<String>,
    pub(super) file_system: Option<MountedFileSystem>,
    #[serde(skip)]
    pub(super) original: Option<SampleFile>,
    /// The directory, if files can be created in it.
    #[serde(skip)]
    pub(super) writable: Option<PathBuf>,
}

/// The possible uses of a path in tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Usable {
    SourceAndSink,
    SourceOnly,
    Nothing,
}

impl TestedPath {
    /// Inspects a path; gives up after the time limit.
    pub(super) fn inspect(id: String, given: &Path, bytes: &Arc<[u8]>) -> Self {
        let nothing = Self {
            id,
            given: given.display().to_string(),
            directory: None,
            usable: Usable::Nothing,
            notes: Vec::new(),
            file_system: None,
            original: None,
            writable: None,
        };
        let (mut tested, path, bytes) = (nothing.clone(), given.to_owned(), Arc::clone(bytes));
        let inspected = within(TRIAL_TIME_MAX, move || {
            let problem = tested.look(&path, bytes).err();
            tested.notes.extend(problem);
            tested
        });
        inspected.unwrap_or_else(|| Self {
            notes: vec!["did not respond within 5 s: a dead network mount?".to_owned()],
            ..nothing
        })
    }

    /// Fills in all information that can be found. The error becomes the last note.
    fn look(&mut self, path: &Path, bytes: Arc<[u8]>) -> Result<(), String> {
        let metadata = std::fs::metadata(path).map_err(|error| explanation::of_error(&error))?;
        let directory =
            directory_of(path, &metadata).ok_or("is neither a directory nor a regular file")?;
        if metadata.is_file() {
            let note = "is a file: its directory is tested";
            self.notes.push(note.to_owned());
        }
        let resolved = directory.canonicalize();
        let resolved = resolved.as_ref().unwrap_or(&directory);
        self.directory = Some(resolved.display().to_string());
        self.file_system = MountedFileSystem::of(&directory);
        match SampleFile::create(&directory, bytes) {
            Ok(original) => {
                self.original = Some(original);
                self.writable = Some(directory);
                self.usable = Usable::SourceAndSink;
                Ok(())
            }
            Err(error) => {
                self.notes.push(unwritable(&error));
                self.read_only(metadata.is_file().then_some(path), &directory)
            }
        }
    }

    /// Uses an existing file as a source, since no file can be created here.
    fn read_only(&mut self, file: Option<&Path>, directory: &Path) -> Result<(), String> {
        let system = self.file_system.as_ref();
        let found = match file {
            Some(path) => open_source(path).map(|original| (path.to_owned(), original)),
            None if system.is_some_and(MountedFileSystem::is_pseudo) => {
                let note = "its files are generated on reading: name one to test it as a source";
                return Err(note.to_owned());
            }
            None => find_source(directory),
        };
        let (path, original) = found.map_err(|error| {
            let error = explanation::of_error(&error);
            format!("no file here is readable for a test: {error}")
        })?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let bytes = original.bytes.len();
        let note = format!("tested as a source only, with {bytes} bytes of {name}");
        self.notes.push(note);
        self.original = Some(original);
        self.usable = Usable::SourceOnly;
        Ok(())
    }
}

fn unwritable(error: &io::Error) -> String {
    let named = explanation::of_error(error);
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            format!("no space for a file of 1 MiB: {named}")
        }
        _ => format!("cannot create files here: {named}"),
    }
}

fn directory_of(path: &Path, metadata: &Metadata) -> Option<PathBuf> {
    if metadata.is_dir() {
        return Some(path.to_owned());
    }
    let parent = metadata.is_file().then(|| path.parent()).flatten()?;
    Some(match parent.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => parent.to_owned(),
    })
}

/// Returns the largest readable file among the first entries.
fn find_source(directory: &Path) -> io::Result<(PathBuf, SampleFile)> {
    let mut files: Vec<_> = std::fs::read_dir(directory)?
        .take(ENTRIES_MAX)
        .flatten()
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            (metadata.is_file() && metadata.len() > 0).then(|| (metadata.len(), entry.path()))
        })
        .collect();
    files.sort();
    let opened = files
        .into_iter()
        .rev()
        .find_map(|(_, path)| Some((path.clone(), open_source(&path).ok()?)));
    opened.ok_or_else(|| io::Error::other("there is none with content"))
}

/// Opens without blocking: a file in /proc may have no data yet.
fn open_source(path: &Path) -> io::Result<SampleFile> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file: File = rustix::fs::open(path, flags, Mode::empty())?.into();
    if !file.metadata()?.is_file() {
        return Err(Errno::INVAL.into());
    }
    SampleFile::of_foreign(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inspect(path: &Path) -> TestedPath {
        TestedPath::inspect("A".into(), path, &super::super::trial_ends::bytes())
    }

    #[test]
    fn a_directory_is_source_and_sink_and_stays_empty() {
        let directory = tempfile::tempdir().unwrap();
        let tested = inspect(directory.path());
        assert_eq!(tested.usable, Usable::SourceAndSink, "{:?}", tested.notes);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_stands_for_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a");
        std::fs::write(&file, "content").unwrap();
        let tested = inspect(&file);
        let resolved = directory.path().canonicalize().unwrap();
        assert_eq!(tested.directory, Some(resolved.display().to_string()));
        assert_eq!(tested.notes, ["is a file: its directory is tested"]);
        let metadata = std::fs::metadata(&file).unwrap();
        assert_eq!(
            directory_of(Path::new("a"), &metadata),
            Some(PathBuf::from("."))
        );
    }

    #[test]
    fn what_is_neither_file_nor_directory_is_reported_and_not_used() {
        for path in ["/dev/null", "/no/such/path"] {
            let tested = inspect(Path::new(path));
            assert_eq!(tested.usable, Usable::Nothing);
            assert_eq!(tested.notes.len(), 1, "{:?}", tested.notes);
        }
    }

    #[test]
    fn a_file_in_proc_is_a_source() {
        let tested = inspect(Path::new("/proc/version"));
        assert_eq!(tested.usable, Usable::SourceOnly, "{:?}", tested.notes);
    }

    #[test]
    fn the_largest_file_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a"), "longer").unwrap();
        std::fs::write(directory.path().join("b"), "short").unwrap();
        std::fs::write(directory.path().join("c"), "").unwrap();
        let (path, original) = find_source(directory.path()).unwrap();
        assert_eq!(
            (path.file_name().unwrap(), &*original.bytes),
            ("a".as_ref(), &b"longer"[..])
        );
    }
}

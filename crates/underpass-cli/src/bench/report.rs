//! Reports of results: tables on the terminal, Markdown, a page, a comparison.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use underpass_bench::compare::{Changes, compare};
use underpass_bench::document::Document;

/// As many as the kernel follows.
const LINKS_MAX: usize = 40;

pub(super) fn message(error: underpass_bench::Error) -> String {
    error.to_string()
}

/// The files of a report.
#[derive(Debug, Args)]
pub(super) struct ReportFiles {
    /// Write the tables to this file as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write a page with charts to this file as HTML
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl ReportFiles {
    pub(super) fn write(&self, document: &Document) -> Result<(), String> {
        if let Some(path) = &self.markdown {
            write(path, &document.markdown())?;
        }
        if let Some(path) = &self.report {
            write(path, &document.html())?;
        }
        Ok(())
    }
}

/// Make tables and pages from results that --json has written; several become one
#[derive(Debug, Args)]
pub(super) struct RenderArguments {
    /// Read these results of --json
    #[arg(value_name = "RESULT.json", required = true)]
    results: Vec<PathBuf>,
    #[command(flatten)]
    files: ReportFiles,
}

impl RenderArguments {
    pub(super) fn run(&self) -> Result<(), String> {
        let documents: Result<Vec<_>, _> = self.results.iter().map(|path| read(path)).collect();
        let document = documents?.into_iter().reduce(Document::followed_by);
        let document = document.ok_or("no result to render")?;
        self.files.write(&document)?;
        print(&document.text(text_columns()))
    }
}

/// Show what changed between two results beyond the noise of both; exit with 1 if something got
/// worse, with 2 if they can't be compared
#[derive(Debug, Args)]
pub(super) struct CompareArguments {
    /// Read this earlier result of --json
    #[arg(value_name = "BEFORE.json")]
    before: PathBuf,
    /// Read this later result of --json
    #[arg(value_name = "AFTER.json")]
    after: PathBuf,
    /// Write the changes to this file as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the changes to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl CompareArguments {
    pub(super) fn run(&self) -> Result<Changes, String> {
        let changes = compare(&read(&self.before)?, &read(&self.after)?);
        if let Some(path) = &self.markdown {
            write(path, &changes.markdown())?;
        }
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(&changes).map_err(|e| e.to_string())?;
            write(path, &text)?;
        }
        print(&changes.text(text_columns()))?;
        Ok(changes)
    }
}

fn read(path: &Path) -> Result<Document, String> {
    Document::read(path).map_err(message)
}

/// Writes a report: a file is replaced atomically, a link is followed, a pipe or device is written
/// to. A path that leads to standard output or standard error is that stream.
pub(super) fn write(path: &Path, text: &str) -> Result<(), String> {
    let written = match (descriptor_of(path), path.canonicalize()) {
        (Some(1), _) => io::stdout().write_all(text.as_bytes()),
        (Some(2), _) => io::stderr().write_all(text.as_bytes()),
        (Some(_), _) => Err(io::Error::other(
            "it leads to an open descriptor; name a file",
        )),
        (None, Ok(file)) if file.is_file() => replace(&file, text),
        (None, Err(_)) if !path.is_symlink() => replace(path, text),
        (None, _) => fs::write(path, text),
    };
    written.map_err(|error| format!("cannot write '{}': {error}", path.display()))
}

/// A concurrent reader gets the whole old file or the whole new one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::Builder::new();
    let file = file.permissions(fs::Permissions::from_mode(0o666));
    let mut file = file.tempfile_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    file.persist(path)
        .map(drop)
        .map_err(|refused| refused.error)
}

/// The open descriptor that a path leads to, as `/dev/stdout` does; one of another process is
/// `u32::MAX`.
fn descriptor_of(path: &Path) -> Option<u32> {
    let own = Path::new("/proc/self/fd").canonicalize().ok()?;
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = path.parent()?.canonicalize().ok()?;
        if folder.starts_with("/proc") && folder.ends_with("fd") {
            let number = path.file_name()?.to_str()?.parse().ok()?;
            return Some(if folder == own { number } else { u32::MAX });
        }
        path = folder.join(fs::read_link(&path).ok()?);
    }
    None
}

/// Prints on standard output. That a reader has seen enough is no error.
pub(super) fn print(text: &str) -> Result<(), String> {
    crate::layout::print(text).map_err(not_printed)
}

/// Prints what was measured, all of which a reader is owed.
pub(super) fn print_whole(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    printed.map_err(not_printed)
}

fn not_printed(error: io::Error) -> String {
    format!("cannot write to standard output: {error}")
}

/// The width of the terminal, or one that fits everywhere.
pub(super) fn text_columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { 100 } else { columns }
}

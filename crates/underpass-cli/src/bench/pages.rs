//! What is made of results: tables on the terminal, Markdown, a page, a comparison.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use underpass_bench::compare::{Changes, compare};
use underpass_bench::document::Document;

use super::plainly;

/// What is made of a result
#[derive(Debug, Args)]
pub(super) struct Pages {
    /// Write the tables there, as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write a page with charts there, as HTML
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl Pages {
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

/// Make tables and pages of results that were written by --json; several become one
#[derive(Debug, Args)]
pub(super) struct Render {
    /// What --json wrote
    #[arg(value_name = "RESULT.json", required = true)]
    results: Vec<PathBuf>,
    #[command(flatten)]
    pages: Pages,
}

impl Render {
    pub(super) fn run(&self) -> Result<(), String> {
        let read = |path: &PathBuf| Document::read(path).map_err(plainly);
        let documents: Result<Vec<Document>, String> = self.results.iter().map(read).collect();
        let mut documents = documents?.into_iter();
        let first = documents.next().ok_or("no result to render")?;
        let document = documents.fold(first, Document::followed_by);
        self.pages.write(&document)?;
        say(&document.text(text_columns()));
        Ok(())
    }
}

/// Say what changed between two results beyond the noise of both, and exit with 1 if something
/// became worse, with 2 if they can't be compared
#[derive(Debug, Args)]
pub(super) struct Compare {
    /// What --json wrote at first
    #[arg(value_name = "BEFORE.json")]
    before: PathBuf,
    /// What it wrote later
    #[arg(value_name = "AFTER.json")]
    after: PathBuf,
    /// Write what changed there, as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write what changed there, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Compare {
    pub(super) fn run(&self) -> Result<Changes, String> {
        let read = |path: &PathBuf| Document::read(path).map_err(plainly);
        let changes = compare(&read(&self.before)?, &read(&self.after)?);
        if let Some(path) = &self.markdown {
            write(path, &changes.markdown())?;
        }
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(&changes).map_err(|e| e.to_string())?;
            write(path, &text)?;
        }
        say(&changes.text(text_columns()));
        Ok(changes)
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let written = std::fs::write(path, text);
    written.map_err(|error| format!("cannot write '{}': {error}", path.display()))
}

/// Nobody may be listening.
pub(super) fn say(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

/// The terminal's width, or what fits everywhere.
pub(super) fn text_columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { 100 } else { columns }
}

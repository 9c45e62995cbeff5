//! Reports of results: tables on the terminal, Markdown, a page, a comparison.

use std::path::{Path, PathBuf};

use clap::Args;
use underpass_bench::compare::{Changes, compare};
use underpass_bench::document::Document;
use underpass_bench::write_report;

use super::terminal::{columns, print};

pub(crate) fn message(error: underpass_bench::Error) -> String {
    error.to_string()
}

/// The files of a report.
#[derive(Debug, Args)]
pub(crate) struct ReportFiles {
    /// Write the tables to this file as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write a page with charts to this file as HTML
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl ReportFiles {
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.markdown.iter().chain(&self.report)
    }

    pub(crate) fn write(&self, document: &Document) -> Result<(), String> {
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
pub(crate) struct RenderArguments {
    /// Read these results of --json
    #[arg(value_name = "RESULT.json", required = true)]
    results: Vec<PathBuf>,
    #[command(flatten)]
    files: ReportFiles,
}

impl RenderArguments {
    pub(crate) fn run(&self) -> Result<(), String> {
        let documents: Result<Vec<_>, _> = self.results.iter().map(|path| read(path)).collect();
        let document = documents?.into_iter().reduce(Document::followed_by);
        let document = document.ok_or("no result to render")?;
        self.files.write(&document)?;
        print(&document.text(columns()))
    }
}

/// Show what changed between two results beyond the noise of both; exit with 1 if something got
/// worse, with 2 if they can't be compared
#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// Read this earlier result of --json
    #[arg(value_name = "BEFORE.json")]
    before: PathBuf,
    /// Read this later result of --json
    #[arg(value_name = "AFTER.json")]
    after: PathBuf,
    /// Write the changes to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl CompareArguments {
    pub(crate) fn run(&self) -> Result<Changes, String> {
        let changes = compare(&read(&self.before)?, &read(&self.after)?);
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(&changes).map_err(|e| e.to_string())?;
            write(path, &text)?;
        }
        print(&changes.text(columns()))?;
        Ok(changes)
    }
}

fn read(path: &Path) -> Result<Document, String> {
    Document::read(path).map_err(message)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    write_report(path, text).map_err(message)
}

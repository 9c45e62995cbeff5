//! The results of a run: files that `underpass-bench` wrote, one for each call for a document.

use std::fs;
use std::path::Path;

use underpass_bench::document::Document;

use super::standing::{self, Standing};
use super::table::{PeerComparison, PeerDocument, PeerTable};
use crate::workspace::Fallible;

/// Returns the name of the file of a call, counted from 1.
pub(super) fn name(document: &PeerDocument, call: usize) -> String {
    match call {
        1 => format!("{}.json", document.name),
        _ => format!("{}-{call}.json", document.name),
    }
}

/// Reads the results of all calls for a document.
///
/// # Errors
///
/// There is none, or one cannot be read.
pub(super) fn read(folder: &Path, document: &PeerDocument) -> Fallible<Vec<Document>> {
    let mut results = Vec::new();
    let later = (2..).map(|call| folder.join(name(document, call)));
    results.push(Document::read(&folder.join(name(document, 1)))?);
    for json in later.take_while(|json| json.exists()) {
        results.push(Document::read(&json)?);
    }
    Ok(results)
}

/// Removes the results of an earlier run.
pub(super) fn remove(folder: &Path, document: &PeerDocument) {
    let calls = (1..).map(|call| folder.join(name(document, call)));
    for json in calls.take_while(|json| json.exists()) {
        let _ = fs::remove_file(json);
    }
}

/// Returns the rounds of a comparison; `None` if its peer has none.
pub(super) fn standing(
    table: &PeerTable,
    comparison: &PeerComparison,
    results: &[Document],
) -> Option<Standing> {
    let mut programs = table.peers().filter(|(option, _)| *option == "--program");
    let is_program = programs.any(|(_, peer)| peer.name == comparison.peer);
    standing::standing(results, &comparison.peer, is_program)
}

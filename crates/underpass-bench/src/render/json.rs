//! The JSON of a run.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

use crate::document::{Document, SCHEMA};
use crate::error::{Error, ErrorContext, Result};
use crate::report_file::write_report;

impl Document {
    /// Reads a file that `--json` has written.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the file can't be read, [`Error::Setting`] if it isn't such a document
    /// or has another schema. Both name the file and what to do.
    pub fn read(path: &Path) -> Result<Document> {
        let name = path.display();
        let text = fs::read(path).context(|| format!("read {name}"))?;
        let no_document = |why: &dyn std::fmt::Display| {
            Error::Setting(format!(
                "{name} is not a result of underpass bench ({why}); give a file that \
                 its --json has written"
            ))
        };
        let value: Value = serde_json::from_slice(&text).map_err(|error| no_document(&error))?;
        let schema = value.get("schema").and_then(Value::as_u64);
        match schema {
            Some(2) => {}
            Some(schema) if schema == u64::from(SCHEMA) => {}
            Some(other) => return Err(other_schema(path, other)),
            None => return Err(no_document(&"it has no number named schema")),
        }
        let document: Document =
            serde_json::from_value(value).map_err(|error| no_document(&error))?;
        match document.inconsistency() {
            Some(why) => Err(no_document(&why)),
            None => Ok(document),
        }
    }

    /// Writes the document as indented JSON with a newline at its end.
    ///
    /// # Errors
    ///
    /// As [`write_report`].
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut json = serde_json::to_vec_pretty(self)
            .map_err(io::Error::other)
            .context(|| format!("write {}", path.display()))?;
        json.push(b'\n');
        write_report(path, json)
    }

    /// Describes a list whose length differs from the number of contenders.
    fn inconsistency(&self) -> Option<String> {
        for experiment in &self.experiments {
            let contenders = experiment.contenders.len();
            for case in &experiment.cases {
                let places = (case.travelled.iter().map(|one| one.contender))
                    .chain(case.calls.iter().map(|one| one.contender));
                let wrong_place = places.into_iter().any(|place| place >= contenders);
                let wrong_length = case.metrics.iter().any(|metric| {
                    metric.figures.len() != contenders || metric.comparisons.len() != contenders
                });
                if wrong_place || wrong_length {
                    let (name, label) = (&experiment.name, &case.label);
                    return Some(format!(
                        "case {label} of experiment {name} does not match its {contenders} \
                         contenders"
                    ));
                }
            }
        }
        None
    }
}

fn other_schema(path: &Path, schema: u64) -> Error {
    let advice = match schema > u64::from(SCHEMA) {
        true => "use a newer underpass to read it",
        false => "measure again, or read it with the underpass that wrote it",
    };
    Error::Setting(format!(
        "{} has schema {schema}, this underpass knows schema {SCHEMA}: {advice}",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    fn refusal(content: &str) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.json");
        fs::write(&path, content).unwrap();
        let text = Document::read(&path).unwrap_err().to_string();
        assert!(text.contains("run.json"), "{text}");
        text
    }

    #[test]
    fn what_was_written_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.json");
        let document = sample::document();
        document.write(&path).unwrap();
        let again = Document::read(&path).unwrap();
        assert!(again.markdown() == document.markdown() && again.html() == document.html());
    }

    #[test]
    fn a_file_that_is_none_is_refused_by_name_with_the_reason_and_advice() {
        let text = refusal("hello");
        assert!(text.contains("not a result of underpass bench"), "{text}");
        assert!(text.contains("--json"), "{text}");
        assert!(refusal("{\"a\": 1}").contains("no number named schema"));
        assert!(refusal("{\"schema\": 2}").contains("missing field"));
        let missing = Document::read(Path::new("/nonexistent/run.json")).unwrap_err();
        assert!(missing.to_string().contains("read /nonexistent/run.json"));
    }

    #[test]
    fn another_schema_is_named_with_what_to_do() {
        let newer = refusal("{\"schema\": 99}");
        assert!(
            newer.contains("schema 99") && newer.contains("newer underpass"),
            "{newer}"
        );
        assert!(refusal("{\"schema\": 1}").contains("measure again"));
    }

    #[test]
    fn figures_that_do_not_match_the_contenders_are_refused() {
        let mut document = sample::document();
        document.experiments[0].cases[0].metrics[0].figures.pop();
        let text = refusal(&serde_json::to_string(&document).unwrap());
        assert!(text.contains("does not match its"), "{text}");
    }
}

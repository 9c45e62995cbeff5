//! Experiments that run in several directories, usually on several file systems.

use std::path::{Path, PathBuf};

use super::ExperimentContext;
use crate::contender::scratch::Scratch;
use crate::document::Experiment;
use crate::error::{Error, Result};

/// Runs in a new directory below each folder, or in the scratch directory without folders. A second
/// experiment of the same variant gets the number of its folder. A folder that fails has an
/// experiment with the reason, unless it is the only one.
pub(crate) fn run_in_each(
    folders: &[PathBuf],
    setting: &ExperimentContext,
    name: &str,
    run_in: impl Fn(&Path) -> Result<Vec<Experiment>>,
) -> Result<Vec<Experiment>> {
    if folders.is_empty() {
        return run_in(&setting.scratch.subdirectory(name)?);
    }
    let mut experiments: Vec<Experiment> = Vec::new();
    for folder in folders {
        let done = Scratch::create(folder).and_then(|scratch| {
            let done = run_in(scratch.path());
            scratch.finish().and(done)
        });
        let done = match done {
            Err(error) if folders.len() > 1 => vec![not_measured(name, folder, &error)],
            done => done?,
        };
        for mut experiment in done {
            let is_namesake = |one: &&Experiment| one.variant.starts_with(&experiment.variant);
            if let count @ 1.. = experiments.iter().filter(is_namesake).count() {
                experiment.variant += &format!(", folder {}", count + 1);
            }
            experiments.push(experiment);
        }
    }
    Ok(experiments)
}

fn not_measured(name: &str, folder: &Path, error: &Error) -> Experiment {
    let place = format!("in {}", folder.display());
    Experiment {
        name: name.into(),
        title: format!("{name} {place}"),
        notes: vec![format!("not measured: {error}")],
        left_out: vec![place.clone()],
        variant: place,
        ..Experiment::default()
    }
}

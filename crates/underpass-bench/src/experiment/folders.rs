//! Experiments that run in several directories, usually on several file systems.

use std::path::{Path, PathBuf};

use super::ExperimentContext;
use crate::contender::scratch::Scratch;
use crate::document::Experiment;
use crate::error::Result;

/// Runs in a new directory below each folder, or in the scratch directory if there is none. A
/// second experiment of the same variant gets the number of its folder.
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
        let scratch = Scratch::create(folder)?;
        let done = run_in(scratch.path());
        scratch.finish()?;
        for mut experiment in done? {
            let is_namesake = |one: &&Experiment| one.variant.starts_with(&experiment.variant);
            if let count @ 1.. = experiments.iter().filter(is_namesake).count() {
                experiment.variant += &format!(", folder {}", count + 1);
            }
            experiments.push(experiment);
        }
    }
    Ok(experiments)
}

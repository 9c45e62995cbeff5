//! The report: everything that was tested and read.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Value, json};
use underpass::Mechanism;

use super::kernel::{self, DescriptorLimits, KernelReport, KernelSetting, PipeLimits};
use super::pair::{self, PairResults};
use super::path::{TestedPath, Usable};
use super::tls::KernelTls;
use super::trial::TrialOutcome;
use super::trial_ends;

/// The whole report, in the order of its JSON form.
#[derive(Debug, Serialize)]
pub(super) struct DoctorReport {
    pub(super) schema: &'static str,
    pub(super) version: &'static str,
    pub(super) kernel: KernelReport,
    pub(super) paths: Vec<TestedPath>,
    pub(super) pairs: Vec<PairResults>,
    pub(super) commands: Vec<CommandUse>,
    pub(super) kernel_tls: KernelTls,
    pub(super) pipes: PipeLimits,
    pub(super) tcp: Vec<KernelSetting>,
    pub(super) open_files: DescriptorLimits,
    pub(super) advice: Vec<Advice>,
}

/// The mechanisms that a command of Underpass will use between two ends.
#[derive(Debug, Serialize)]
pub(super) struct CommandUse {
    pub(super) command: &'static str,
    pub(super) source: String,
    pub(super) sink: String,
    /// The same as in an outcome.
    pub(super) result: Value,
    /// Empty unless it works.
    pub(super) uses: Vec<Mechanism>,
}

/// A line of advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Advice {
    /// A keyword for programs; docs/doctor.md lists them.
    pub(super) about: &'static str,
    pub(super) text: String,
}

impl DoctorReport {
    /// Runs all tests. `advice` is still empty.
    pub(super) fn new(paths: &[PathBuf]) -> Self {
        let bytes = trial_ends::bytes();
        let kernel = KernelReport::ask();
        let ids = ('A'..='Z').map(String::from);
        let tested: Vec<_> = ids
            .zip(paths_or_default(paths))
            .map(|(id, path)| TestedPath::inspect(id, &path, &bytes))
            .collect();
        let mut pairs = pair::try_all(&tested, &bytes);
        let outcomes = pairs.iter_mut().flat_map(|pair| &mut pair.mechanisms);
        outcomes.for_each(|(mechanism, outcome)| kernel.explain(*mechanism, outcome));
        Self {
            schema: "underpass.doctor/1",
            version: env!("CARGO_PKG_VERSION"),
            paths: tested,
            commands: pairs.iter().filter_map(command_use).collect(),
            pairs,
            kernel_tls: KernelTls::ask(&kernel.release),
            kernel,
            pipes: PipeLimits::ask(),
            tcp: kernel::tcp(),
            open_files: DescriptorLimits::ask(),
            advice: Vec::new(),
        }
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        let unusable = self.paths.iter().any(|path| path.usable == Usable::Nothing);
        let mut outcomes = self.pairs.iter().flat_map(PairResults::outcomes);
        let alarms = |outcome: &TrialOutcome| {
            use TrialOutcome::{NotTried, WrongBytes};
            matches!(outcome, WrongBytes { .. } | NotTried { .. })
        };
        match unusable || outcomes.any(alarms) {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        }
    }
}

fn paths_or_default(paths: &[PathBuf]) -> Vec<PathBuf> {
    let (here, tmp) = (Path::new("."), Path::new("/tmp"));
    match paths {
        [] if here.canonicalize().ok() == tmp.canonicalize().ok() => vec![here.to_owned()],
        [] => vec![here.to_owned(), tmp.to_owned()],
        given => given.to_owned(),
    }
}

/// Returns how a command moves bytes between the ends of a pair, if one does.
fn command_use(pair: &PairResults) -> Option<CommandUse> {
    Some(CommandUse {
        command: pair.command?,
        source: pair.source.clone(),
        sink: pair.sink.clone(),
        result: json!(pair.auto.outcome)["result"].take(),
        uses: pair.auto.uses.clone(),
    })
}

//! The options of what a server tells: a log, metrics, a QR code.

use std::path::PathBuf;

use underpass_serve::{Access, Explain, LogFormat, Options, StatusAddress};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Telling {
    /// Write a line for every answer, to standard output unless --log-file names a file:
    /// `combined`, which every analyser reads, or `json` with all that is known
    /// [default format: combined]
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true,
          default_missing_value = "combined")]
    log: Option<LogFormat>,

    /// Append the log to this file; SIGUSR1 has it opened anew after a rotation
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,

    /// Tell metrics for Prometheus and health there: 127.0.0.1:9090 or unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    status: Option<StatusAddress>,

    /// Have every answer say how its body is planned to leave, and how the previous one on the
    /// connection did, by the fields Underpass-Plan and Underpass-Previous: for debugging
    #[arg(long)]
    explain: bool,

    /// Print the address as a QR code, for a telephone to read
    #[arg(long)]
    pub(crate) qr: bool,
}

impl Telling {
    /// What was said here beats what `options` say. Either option of the log switches it on.
    pub(super) fn override_in(&self, options: &mut Options) {
        match (&self.log_file, self.log) {
            (Some(path), _) => options.log.access = Access::from(path.clone()),
            (None, Some(_)) => options.log.access = Access::Output,
            (None, None) => {}
        }
        options.log.format = self.log.unwrap_or(options.log.format);
        if let Some(status) = &self.status {
            options.status.listen = Some(status.clone());
        }
        if self.explain {
            options.explain = Explain::On;
        }
    }
}

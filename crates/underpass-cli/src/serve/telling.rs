//! The options of access log, metrics, `--explain` and QR code.

use std::path::PathBuf;

use underpass_serve::{Access, Explain, LogFormat, ServerOptions, StatusAddress};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReportingArguments {
    /// Write an access log, a line per response, to standard output or --log-file: `combined` as
    /// Apache and nginx do, or `json` with all fields [default format: combined]
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true,
          default_missing_value = "combined")]
    log: Option<LogFormat>,

    /// Append the access log to this file; SIGUSR1 reopens it after a rotation
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,

    /// Serve Prometheus metrics and health checks on this address: 127.0.0.1:9090 or unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    status: Option<StatusAddress>,

    /// Add Underpass-Plan (how this body will be sent) and Underpass-Previous (how the previous
    /// one on the connection was sent) to responses, for debugging
    #[arg(long)]
    explain: bool,

    /// Print the address as a QR code
    #[arg(long)]
    pub(crate) qr: bool,
}

impl ReportingArguments {
    /// Overrides `options`. Either of the log options enables the log.
    pub(super) fn override_in(&self, options: &mut ServerOptions) {
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

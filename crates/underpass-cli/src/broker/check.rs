//! `underpass broker check HOST:PORT`: acts like a client, and reports which step fails.

use std::time::Duration;

use underpass_broker::check::{CheckFailure, check};

use crate::layout::print;

/// Do what a Kafka client does, and say which step fails and what to set
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CheckArguments {
    /// A broker, as clients name it in bootstrap.servers
    #[arg(value_name = "HOST:PORT")]
    bootstrap: String,

    /// Give each step this long
    #[arg(long, value_name = "SECONDS", default_value = "5",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

pub(super) fn run(arguments: &CheckArguments) -> Result<(), String> {
    let timeout = Duration::from_secs(arguments.timeout);
    let checked = check(&arguments.bootstrap, timeout, &mut |step| {
        // Continues if standard output is closed: the exit code reports the result too.
        let _ = print(&format!("ok: {step}\n"));
    });
    checked.map_err(|CheckFailure { step, why, advice }| {
        let advice = advice.map_or_else(String::new, |advice| format!("\n  try: {advice}"));
        format!("{step}: {why}{advice}")
    })
}

//! The `underpass` tool: parses arguments, runs one command, and returns an exit code.
//!
//! Exit codes: 0 success; 1 failure, with the reason on standard error; 2 invalid arguments;
//! 3 to 8 of `send` and `recv` (docs/sendrecv.md); 127 `bench` without `underpass-bench`.

#![forbid(unsafe_code)]

mod bench;
mod broker;
mod console;
mod cp;
mod doctor;
mod layout;
mod pages;
mod passwords;
mod sendrecv;
mod serve;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Move bytes between files and sockets within the kernel, and report how every byte travelled
#[derive(Debug, Parser)]
#[command(name = "underpass", version, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: ToolCommand,
}

#[derive(Debug, Subcommand)]
enum ToolCommand {
    /// Never parsed by clap: `cp` parses its arguments as GNU cp does. Listed here for the help.
    Cp,
    Serve(Box<serve::ServeArguments>),
    Send(Box<sendrecv::SendArguments>),
    Recv(Box<sendrecv::ReceiveArguments>),
    Broker(Box<broker::BrokerArguments>),
    Doctor(doctor::DoctorArguments),
    Bench(bench::PassedArguments),
    Completions(pages::Completions),
    Man(pages::Manual),
}

fn main() -> ExitCode {
    if let Some((name, called, words)) = copying(std::env::args_os()) {
        return cp::run(name, called, words);
    }
    warn_on_standard_error();
    let outcome = match arguments().command {
        ToolCommand::Cp => {
            return cp::run(cp::CalledAs::Underpass, "underpass cp".into(), Vec::new());
        }
        ToolCommand::Serve(arguments) => serve::run(&arguments),
        ToolCommand::Send(arguments) => return ended(sendrecv::send(&arguments)),
        ToolCommand::Recv(arguments) => return ended(sendrecv::receive(&arguments)),
        ToolCommand::Broker(arguments) => broker::run(&arguments),
        ToolCommand::Bench(arguments) => {
            let (code, message) = bench::run(arguments);
            return failed(&message, code);
        }
        ToolCommand::Doctor(arguments) => return doctor::run(&arguments),
        ToolCommand::Completions(completions) => completions.run(whole_command()),
        ToolCommand::Man(manual) => manual.run(whole_command()),
    };
    match outcome {
        Ok(()) => {
            console::finish();
            ExitCode::SUCCESS
        }
        Err(message) => failed(&message, ExitCode::FAILURE),
    }
}

fn ended(outcome: sendrecv::CommandResult) -> ExitCode {
    match outcome {
        Ok(()) => {
            console::finish();
            ExitCode::SUCCESS
        }
        Err((message, code)) => failed(&message, ExitCode::from(code)),
    }
}

fn failed(message: &str, code: ExitCode) -> ExitCode {
    let line = format!("underpass: {message}\n");
    let _never_fails = console::Errors.write_all(line.as_bytes());
    console::finish();
    code
}

/// Detects `cp` and `underpass cp`: returns the name, the prefix of messages, and the arguments.
fn copying(
    mut words: impl Iterator<Item = OsString>,
) -> Option<(cp::CalledAs, OsString, Vec<OsString>)> {
    let called = words.next()?;
    if Path::new(&called).file_name() == Some("cp".as_ref()) {
        return Some((cp::CalledAs::Cp, called, words.collect()));
    }
    (words.next()? == "cp").then(|| {
        let called = "underpass cp".into();
        (cp::CalledAs::Underpass, called, words.collect())
    })
}

fn arguments() -> CommandLine {
    let matches = whole_command().try_get_matches();
    let matches = matches.unwrap_or_else(|error| with_hint(error).exit());
    let mut arguments =
        CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let (ToolCommand::Serve(arguments), Some((_, matches))) =
        (&mut arguments.command, matches.subcommand())
    {
        arguments.rank(matches);
    }
    arguments
}

/// Adds a hint at our syntax to errors about options of other servers.
fn with_hint(mut error: clap::Error) -> clap::Error {
    let typed = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let typed = typed.iter().find_map(|kind| match error.get(*kind) {
        Some(ContextValue::String(typed)) => Some(typed.as_str()),
        _ => None,
    });
    let tip = match typed {
        Some("-d" | "--dir" | "--directory" | "--root") => "the folder is no option: 'serve DIR'",
        Some("--tls" | "--https" | "--ssl") => {
            "HTTPS: '--tls-self-signed', or '--cert FILE --key FILE'"
        }
        Some(
            "--uploads" | "--upload-dir" | "--upload-folder" | "--upload-path" | "--upload-to"
            | "--upload-files" | "--allow-upload" | "--allow-uploads" | "--enable-upload"
            | "--writable" | "--write" | "--read-write" | "--rw" | "--put",
        ) => "files are taken in by '--upload', or in one folder of the site by '--upload=/FOLDER'",
        Some(
            "--overwrite" | "--allow-overwrite" | "--overwrite-files" | "--delete"
            | "--allow-delete" | "--rm-files" | "--allow-all",
        ) => "with uploads, '--upload=overwrite,delete'",
        Some("--max-upload-size" | "--upload-max-size" | "--max-size" | "--max-body-size") => {
            "the largest upload is 'file-bytes-max' of [[site.upload]]: docs/uploads.md, Options"
        }
        Some("--webdav" | "--dav") => {
            "WebDAV is not spoken; '--upload=delete' takes PUT, DELETE, MKCOL, COPY and MOVE"
        }
        Some("--serve" | "http" | "web" | "server") => "files are served by 'underpass serve DIR'",
        Some(typed) if typed.parse::<u16>().is_ok() => "the port is an option: 'serve DIR -p PORT'",
        Some(typed)
            if error.kind() == ErrorKind::InvalidSubcommand && Path::new(typed).is_dir() =>
        {
            "a folder is served by 'underpass serve DIR'"
        }
        _ if error.to_string().contains("cannot be used with '[DIR]'") => {
            "one folder is served; several are sites of a configuration: docs/serve.md, Sites"
        }
        _ => return error,
    };
    for kind in [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand] {
        error.remove(kind);
    }
    error.insert(
        ContextKind::Suggested,
        ContextValue::StyledStrs(vec![tip.into()]),
    );
    error
}

/// Returns all commands, with the options of `cp` from its own table.
fn whole_command() -> clap::Command {
    CommandLine::command().mut_subcommand("cp", |_| cp::command())
}

/// Writes warnings and errors that do not end a command to standard error, one line each.
fn warn_on_standard_error() {
    tracing_subscriber::fmt()
        .with_writer(|| console::Errors)
        .with_max_level(tracing::Level::WARN)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .init();
}

//! Advice: what limits transfers on this machine and how to change it, one line each.

use underpass::{Mechanism, Scope};

use super::kernel::{DescriptorLimits, KernelSetting, MissingCall, PipeLimits, numbers};
use super::pair::PairResults;
use super::path::{TestedPath, Usable};
use super::report::{Advice, DoctorReport};
use super::tls::{KernelTls, TlsAnswer, TlsModule};
use super::trial::TrialOutcome;
use crate::layout::grouped;

/// A connection of `serve` needs a socket and a file, and with splice both ends of a pipe.
const OPEN_FILES_WISHED: u64 = 8192;

/// Number of descriptors that suffices for all tests.
const OPEN_FILES_TESTED: u64 = 32;

/// The queue that a busy listener needs; the kernel's default since 5.4 is 4096.
const ACCEPT_QUEUE_WISHED: u64 = 1024;

/// At a round-trip time of 100 ms, this buffer allows 10 MiB/s on one connection.
const SEND_BUFFER_WISHED: u64 = 1 << 20;

/// Returns all advice, the most urgent first.
pub(super) fn on(report: &DoctorReport) -> Vec<Advice> {
    let mut all = Vec::new();
    let mut add = |about, texts: Vec<String>| {
        all.extend(texts.into_iter().map(|text| Advice { about, text }));
    };
    add("wrong-bytes", wrong_bytes(&report.pairs));
    add("path", paths(report));
    add("failed", failures(&report.pairs));
    add("call-missing", calls_missing(report));
    add("user-space", user_space(&report.pairs));
    add("no-clone", no_clone(report));
    let single = [
        ("open-files", open_files(&report.open_files)),
        ("kernel-tls", kernel_tls(&report.kernel_tls)),
        ("pipe-size", pipe_size(&report.pipes)),
        ("accept-queue", accept_queue(&report.tcp)),
        ("send-buffer", send_buffer(&report.tcp)),
    ];
    for (about, text) in single {
        add(about, text.into_iter().collect());
    }
    all
}

fn wrong_bytes(pairs: &[PairResults]) -> Vec<String> {
    let of_row = |row: &PairResults| {
        let error = row.outcomes().find_map(|outcome| match outcome {
            TrialOutcome::WrongBytes { error } => Some(error.clone()),
            _ => None,
        })?;
        Some(format!(
            "{}: wrong bytes arrived ({error}): do not trust copies there, and report this bug",
            row.label()
        ))
    };
    pairs.iter().filter_map(of_row).collect()
}

fn paths(report: &DoctorReport) -> Vec<String> {
    let line = |path: &TestedPath| {
        let (id, given) = (&path.id, &path.given);
        match path.usable {
            Usable::SourceAndSink => None,
            Usable::SourceOnly => Some(format!(
                "{id} ({given}): cannot create files there, so it was tested as a source only"
            )),
            Usable::Nothing => Some(format!(
                "{id} ({given}) was not tried: {}",
                path.notes.join("; ")
            )),
        }
    };
    report.paths.iter().filter_map(line).collect()
}

fn failures(pairs: &[PairResults]) -> Vec<String> {
    let of_row = |row: &PairResults| {
        let failed = |(mechanism, outcome): (&Mechanism, &TrialOutcome)| match outcome {
            TrialOutcome::Failed { error } => {
                Some(format!("{}: {mechanism}: {error}", row.label()))
            }
            _ => None,
        };
        row.mechanisms.iter().find_map(failed)
    };
    pairs.iter().filter_map(of_row).collect()
}

fn calls_missing(report: &DoctorReport) -> Vec<String> {
    let line = |missing: &MissingCall| {
        format!(
            "{} is not available on this kernel ({}): {}; other mechanisms are used",
            missing.mechanism, missing.errno, missing.meaning
        )
    };
    report.kernel.calls_missing.iter().map(line).collect()
}

/// Lists pairs whose payload passes through user space because everything else was refused.
fn user_space(pairs: &[PairResults]) -> Vec<String> {
    let spared = |row: &PairResults| {
        let works = |(mechanism, outcome): (&Mechanism, &TrialOutcome)| {
            *mechanism != Mechanism::ReadWrite && matches!(outcome, TrialOutcome::Works { .. })
        };
        row.mechanisms.iter().any(works)
    };
    let crossing = pairs
        .iter()
        .filter(|row| row.auto.uses == [Mechanism::ReadWrite] && !spared(row));
    let labels: Vec<_> = crossing.map(PairResults::label).collect();
    if labels.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "{}: only read/write works, so bytes pass through user space: twice the copies, more CPU",
        labels.join(", ")
    )]
}

/// Returns one line per type of file system.
fn no_clone(report: &DoctorReport) -> Vec<String> {
    let name = |row: &PairResults| {
        let path = report.paths.iter().find(|path| path.id == row.source);
        let system = path.and_then(|path| path.file_system.as_ref());
        system.map_or("unknown", |system| &system.name).to_owned()
    };
    let refusing = report.pairs.iter().filter(|row| refuses_clone_within(row));
    let line = |(name, ids): (String, Vec<String>)| {
        format!(
            "{} ({name}): the file system has no reflinks, so `cp` copies all bytes; Btrfs, XFS \
             and bcachefs can share blocks",
            ids.join(", ")
        )
    };
    let named = grouped(refusing.map(|row| (name(row), row.source.clone())));
    named.into_iter().map(line).collect()
}

/// Returns whether a path refuses clones within itself. Only copies clone: equal ends are a path.
fn refuses_clone_within(row: &PairResults) -> bool {
    let refused = |outcome: &TrialOutcome| match outcome {
        TrialOutcome::Refused { scope, .. } => *scope != Scope::Once,
        _ => false,
    };
    row.source == row.sink && row.mechanisms.get(&Mechanism::Clone).is_some_and(refused)
}

fn kernel_tls(tls: &KernelTls) -> Option<String> {
    let user_space = "TLS would be encrypted in user space";
    match (&tls.attached, tls.module) {
        (TlsAnswer::Works, _) => match &tls.self_test {
            TlsAnswer::Failed { why } => Some(format!(
                "kernel TLS fails its self-test ({why}): do not use it; `serve` does not either"
            )),
            _ => None,
        },
        (_, TlsModule::NotLoaded) => Some(format!(
            "the kernel TLS module is not loaded: {user_space}; load it with modprobe tls"
        )),
        (TlsAnswer::Refused { errno, .. }, TlsModule::NotFound) if errno == "ENOENT" => {
            let why = "kernel TLS is not available (ENOENT)";
            Some(format!(
                "{why}: {user_space}; it needs a kernel with CONFIG_TLS"
            ))
        }
        (TlsAnswer::Refused { errno, meaning }, _) => Some(format!(
            "kernel TLS refuses ({errno}: {meaning}): {user_space}"
        )),
        (TlsAnswer::NotTried { reason } | TlsAnswer::Failed { why: reason }, _) => Some(format!(
            "kernel TLS could not be tried ({reason}): {user_space}"
        )),
    }
}

fn pipe_size(pipes: &PipeLimits) -> Option<String> {
    let (asked, refusal) = (pipes.asked_bytes, pipes.refusal.as_deref());
    let refusal = refusal.unwrap_or("no reason given");
    let why = match refusal.starts_with("EPERM") {
        true => "this user's pipes exceed pipe-user-pages-soft; close some, or raise the limit",
        false => "splice needs more calls",
    };
    Some(match (pipes.granted_bytes, pipes.max_bytes) {
        (Some(granted), _) if granted >= asked => return None,
        (None, _) => format!("no pipe can be created ({refusal}): splice cannot be used"),
        (Some(_), Some(max)) if max < asked => format!(
            "pipe-max-size is {max}, less than 1 MiB: splice needs more calls; raise it with \
             sysctl fs.pipe-max-size={asked}"
        ),
        (Some(granted), _) => {
            format!("a new pipe was granted {granted} bytes instead of 1 MiB ({refusal}): {why}")
        }
    })
}

/// `serve` raises its soft limit itself, so only the hard limit matters to it; these tests do not.
fn open_files(limits: &DescriptorLimits) -> Option<String> {
    if let Some(soft) = limits.soft.filter(|soft| *soft < OPEN_FILES_TESTED) {
        return Some(format!(
            "limit of {soft} open files: too few for these tests (EMFILE); raise it with ulimit -n"
        ));
    }
    let hard = limits.hard.filter(|hard| *hard < OPEN_FILES_WISHED)?;
    let connections = hard / 2;
    Some(format!(
        "hard limit of {hard} open files (about {connections} connections): raise it with \
         LimitNOFILE= in the unit, or in limits.conf"
    ))
}

fn accept_queue(tcp: &[KernelSetting]) -> Option<String> {
    let queue = *numbers(tcp, "net.core.somaxconn").first()?;
    (queue < ACCEPT_QUEUE_WISHED).then(|| {
        format!(
            "only {queue} connections can wait to be accepted, so bursts are dropped; raise it \
             with sysctl net.core.somaxconn=4096"
        )
    })
}

fn send_buffer(tcp: &[KernelSetting]) -> Option<String> {
    let most = *numbers(tcp, "net.ipv4.tcp_wmem").get(2)?;
    (most < SEND_BUFFER_WISHED).then(|| {
        format!(
            "the send buffer is limited to {most} bytes: {} KiB/s at a round-trip time of 100 ms; \
             raise the third number of net.ipv4.tcp_wmem",
            most * 10 / 1024
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPES: PipeLimits = PipeLimits {
        max_bytes: Some(1 << 20),
        user_pages_soft: Some(16384),
        user_pages_hard: Some(0),
        new_bytes: Some(65536),
        asked_bytes: 1 << 20,
        granted_bytes: Some(1 << 20),
        refusal: None,
    };

    fn says(text: Option<String>, words: &str) {
        let text = text.expect("something is in the way");
        assert!(text.contains(words), "{text}");
    }

    #[test]
    fn a_small_pipe_is_the_settings_fault_or_the_quotas() {
        assert_eq!(pipe_size(&PIPES), None);
        let small = PipeLimits {
            granted_bytes: Some(65536),
            refusal: Some("EPERM (Operation not permitted)".into()),
            ..PIPES
        };
        says(pipe_size(&small), "pipe-user-pages-soft");
        let limited = PipeLimits {
            max_bytes: Some(65536),
            ..small
        };
        says(pipe_size(&limited), "sysctl fs.pipe-max-size=1048576");
    }

    #[test]
    fn only_the_hard_limit_on_open_files_is_in_the_way() {
        let limits = |soft, hard| DescriptorLimits {
            soft,
            hard,
            nr_open: None,
            file_max: None,
        };
        assert_eq!(open_files(&limits(Some(1024), Some(524_288))), None);
        assert_eq!(open_files(&limits(Some(1024), None)), None);
        says(open_files(&limits(Some(1024), Some(4096))), "LimitNOFILE=");
    }

    #[test]
    fn an_unloaded_module_is_distinguished_from_a_missing_one() {
        let tls = |module, attached| KernelTls {
            available_ulp: None,
            module,
            attached,
            ciphers: Vec::new(),
            second_key: TlsAnswer::Works,
            self_test: TlsAnswer::Works,
            user_space: Vec::new(),
        };
        let refused = || TlsAnswer::Refused {
            errno: "ENOENT".into(),
            meaning: "none".into(),
        };
        let works = tls(TlsModule::Present, TlsAnswer::Works);
        assert_eq!(kernel_tls(&works), None);
        let why = "what arrives is not what was sent".to_owned();
        let self_test = TlsAnswer::Failed { why };
        says(kernel_tls(&KernelTls { self_test, ..works }), "not use it");
        says(
            kernel_tls(&tls(TlsModule::NotLoaded, refused())),
            "modprobe tls",
        );
        says(
            kernel_tls(&tls(TlsModule::NotFound, refused())),
            "CONFIG_TLS",
        );
        says(kernel_tls(&tls(TlsModule::Present, refused())), "refuses");
    }

    #[test]
    fn narrow_settings_of_tcp_are_reported() {
        let set = |name: &str, value: &str| {
            let (name, value) = (name.to_owned(), Some(value.to_owned()));
            let why = "";
            [KernelSetting { name, value, why }]
        };
        says(accept_queue(&set("net.core.somaxconn", "128")), "only 128");
        assert_eq!(accept_queue(&set("net.core.somaxconn", "4096")), None);
        says(
            send_buffer(&set("net.ipv4.tcp_wmem", "1 2 65536")),
            "640 KiB/s",
        );
        assert_eq!(send_buffer(&set("net.ipv4.tcp_wmem", "1 2 4194304")), None);
    }
}

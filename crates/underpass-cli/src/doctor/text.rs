//! The report as text in 80 columns.

use clap::builder::styling::{AnsiColor, Effects, Style};
use underpass::Mechanism;

use super::explanation;
use super::kernel::KernelSetting;

use super::pair::PairResults;
use super::path::{TestedPath, Usable};
use super::report::DoctorReport;
use super::tls::TlsAnswer;
use super::trial::TrialOutcome;
use crate::layout::{grouped, wrap, wrap_list};

/// The width of the column of pairs, and of each mechanism.
const PAIR_COLUMNS: usize = 15;
const CELL_COLUMNS: usize = 12;

const BOLD: Style = Style::new().effects(Effects::BOLD);
const DIM: Style = Style::new().effects(Effects::DIMMED);

pub(super) fn render(report: &DoctorReport) -> String {
    let mut text = head(report);
    let mut section = |title: &str, body: String| {
        if !body.is_empty() {
            text += &format!("\n{}\n{body}", styled(BOLD, title));
        }
    };
    section("Paths", report.paths.iter().map(path).collect());
    section(
        "Tests: 1 MiB each, every byte compared",
        table(&report.pairs),
    );
    section("Refused", refusals(&report.pairs));
    section("Failed", failures(&report.pairs));
    section("Mechanisms that Underpass uses here", commands(report));
    section("Kernel TLS", kernel_tls(report));
    section("Pipes (used by splice)", pipes(report));
    section("TCP", report.tcp.iter().map(setting).collect());
    section("Open files", open_files(report));
    section("Advice", advice(report));
    text
}

fn head(report: &DoctorReport) -> String {
    let kernel = &report.kernel;
    let privileges = match kernel.no_new_privileges {
        Some(true) => ", no new privileges",
        _ => "",
    };
    let (release, architecture) = (&kernel.release, &kernel.architecture);
    let (version, seccomp) = (report.version, kernel.seccomp.words());
    let line = format!("underpass {version} on Linux {release}, {architecture}; {seccomp}");
    let mut text = wrap("", &(line + privileges));
    for call in &kernel.calls_missing {
        let missing = format!("{}: {}", call.errno, call.meaning);
        text += &wrap(&format!("no {}: ", call.mechanism), &missing);
    }
    text
}

fn path(tested: &TestedPath) -> String {
    let directory = tested.directory.as_ref();
    let named = match directory.filter(|path| **path != tested.given) {
        Some(directory) => format!("{} ({directory})", tested.given),
        None => tested.given.clone(),
    };
    let mut text = wrap(&format!("  {}  ", tested.id), &named);
    if let Some(file_system) = &tested.file_system {
        text += &wrap("     ", &file_system.describe());
    }
    let head = match tested.usable {
        Usable::Nothing => "     not tried: ",
        _ => "     ",
    };
    let notes = tested.notes.iter().map(|note| wrap(head, note));
    text + &notes.collect::<String>()
}

fn table(rows: &[PairResults]) -> String {
    let mut text = " ".repeat(2 + PAIR_COLUMNS);
    for mechanism in Mechanism::ALL {
        text += &format!("{mechanism:<CELL_COLUMNS$}");
    }
    text = styled(DIM, text.trim_end()) + "\n";
    for row in rows {
        let mut line = format!("  {:<PAIR_COLUMNS$}", row.label());
        for (mechanism, outcome) in &row.mechanisms {
            let (mut word, style) = cell(outcome);
            if row.auto.uses.contains(mechanism) {
                word += " *";
            }
            let padding = " ".repeat(CELL_COLUMNS.saturating_sub(word.chars().count()));
            line += &(styled(style, &word) + &padding);
        }
        text += line.trim_end();
        text.push('\n');
    }
    let legend = "  ok works   * used by Underpass   - no such call between these ends";
    text + &styled(DIM, legend) + "\n"
}

fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

fn cell(outcome: &TrialOutcome) -> (String, Style) {
    match outcome {
        TrialOutcome::Works { .. } => ("ok".to_owned(), AnsiColor::Green.on_default()),
        TrialOutcome::Refused { errno, .. } => (errno.clone(), AnsiColor::Yellow.on_default()),
        TrialOutcome::NotApplicable { .. } => ("-".to_owned(), DIM),
        TrialOutcome::Failed { .. } => ("failed".to_owned(), AnsiColor::Red.on_default()),
        TrialOutcome::WrongBytes { .. } => ("WRONG BYTES".to_owned(), AnsiColor::Red.on_default()),
        TrialOutcome::NotTried { .. } => ("not tried".to_owned(), DIM),
    }
}

/// Lists each refusal once, with all its pairs.
fn refusals(rows: &[PairResults]) -> String {
    let met = rows.iter().flat_map(|row| {
        let refused = |(mechanism, outcome): (&Mechanism, &TrialOutcome)| match outcome {
            TrialOutcome::Refused {
                errno,
                meaning,
                scope,
            } => {
                let head = format!("  {errno:<CELL_COLUMNS$}{mechanism}: ");
                let reach = explanation::reach(*scope);
                Some(((head, format!("{meaning}; applies {reach}")), row.label()))
            }
            _ => None,
        };
        row.mechanisms.iter().filter_map(refused)
    });
    let indent = " ".repeat(2 + CELL_COLUMNS);
    let lines = |((head, meaning), pairs): ((String, String), Vec<String>)| {
        wrap_list(&head, &pairs) + &wrap(&indent, &meaning)
    };
    grouped(met).into_iter().map(lines).collect()
}

fn failures(rows: &[PairResults]) -> String {
    let met = rows.iter().flat_map(|row| {
        row.outcomes().filter_map(|outcome| match outcome {
            TrialOutcome::Failed { error }
            | TrialOutcome::WrongBytes { error }
            | TrialOutcome::NotTried { reason: error } => Some((error.clone(), row.label())),
            _ => None,
        })
    });
    let line = |(error, mut pairs): (String, Vec<String>)| {
        pairs.dedup();
        wrap("  ", &format!("{}: {error}", pairs.join(", ")))
    };
    grouped(met).into_iter().map(line).collect()
}

/// Returns one line per command and mechanism, with its pairs.
fn commands(report: &DoctorReport) -> String {
    let met = report.commands.iter().map(|used| {
        let names: Vec<_> = used.uses.iter().map(|mechanism| mechanism.name()).collect();
        let names = match names.is_empty() {
            true => used.result.as_str().unwrap_or_default().replace('_', " "),
            false => names.join(", "),
        };
        let pair = format!("{} → {}", used.source, used.sink);
        ((used.command, names), pair)
    });
    // In the order of their pairs: first cp, then serve.
    let groups = grouped(met);
    let line = |((command, names), pairs): ((&str, String), Vec<String>)| {
        wrap_list(&format!("  {command:<6}{names:<12} "), &pairs)
    };
    groups.into_iter().map(line).collect()
}

fn kernel_tls(report: &DoctorReport) -> String {
    let tls = &report.kernel_tls;
    let available = tls.available_ulp.as_deref();
    let available = match available {
        Some("") => "none",
        Some(names) => names,
        None => "unreadable",
    };
    let mut text = wrap("  tcp_available_ulp   ", available);
    text += &wrap("  module tls          ", tls.module.words());
    text += &wrap("  attach to a socket  ", &answer(&tls.attached));
    let met = tls.ciphers.iter().map(|tried| {
        let name = format!("{} {}", tried.version, tried.cipher);
        (answer(&tried.answer), name)
    });
    for (answer, ciphers) in grouped(met) {
        let ciphers = match ciphers.len() == tls.ciphers.len() {
            true => vec!["all of TLS 1.2 and 1.3".to_owned()],
            false => ciphers,
        };
        text += &wrap("  ciphers             ", &answer);
        text += &wrap_list("                      for ", &ciphers);
    }
    if tls.attached == TlsAnswer::Works {
        text += &wrap("  a second key        ", &answer(&tls.second_key));
        text += &wrap("  self-test           ", &answer(&tls.self_test));
    }
    let speeds = tls.user_space.iter().map(|speed| {
        let gigabytes = speed.bytes_per_second as f64 / 1e9;
        format!("{} {gigabytes:.2} GB/s", speed.cipher)
    });
    let speeds: Vec<_> = speeds.collect();
    if !speeds.is_empty() {
        text += &wrap_list("  user space encrypts ", &speeds);
    }
    text
}

fn answer(answer: &TlsAnswer) -> String {
    match answer {
        TlsAnswer::Works => "works".to_owned(),
        TlsAnswer::Refused { errno, meaning } => format!("{errno}: {meaning}"),
        TlsAnswer::Failed { why } => format!("no: {why}"),
        TlsAnswer::NotTried { reason } => format!("not tried: {reason}"),
    }
}

fn pipes(report: &DoctorReport) -> String {
    let pipes = &report.pipes;
    let granted = match &pipes.refusal {
        Some(refusal) => format!("{} ({refusal})", bytes(pipes.granted_bytes)),
        None => bytes(pipes.granted_bytes),
    };
    let quota = |pages: Option<u64>| match pages {
        Some(0) => "no limit".to_owned(),
        other => number(other),
    };
    [
        ("a new pipe", bytes(pipes.new_bytes)),
        ("request for 1 MiB", granted),
        ("pipe-max-size", bytes(pipes.max_bytes)),
        ("pipe-user-pages-soft", quota(pipes.user_pages_soft)),
        ("pipe-user-pages-hard", quota(pipes.user_pages_hard)),
    ]
    .map(|(name, value)| wrap(&format!("  {name:<22}"), &value))
    .concat()
}

fn setting(setting: &KernelSetting) -> String {
    let value = setting.value.as_deref().unwrap_or("unreadable");
    wrap("  ", &format!("{} = {value}", setting.name)) + &wrap("      ", setting.why)
}

fn open_files(report: &DoctorReport) -> String {
    let limits = &report.open_files;
    let limit = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |n| n.to_string());
    let (soft, hard) = (limit(limits.soft), limit(limits.hard));
    let (one, all) = (number(limits.nr_open), number(limits.file_max));
    let line = format!("soft {soft}, hard {hard}; fs.nr_open {one}, fs.file-max {all}");
    wrap("  ", &line)
}

fn advice(report: &DoctorReport) -> String {
    if report.advice.is_empty() {
        return wrap("  ", "none: nothing limits transfers here");
    }
    let lines = report.advice.iter();
    lines.map(|advice| wrap("  - ", &advice.text)).collect()
}

fn bytes(bytes: Option<u64>) -> String {
    match bytes {
        Some(bytes) if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => {
            format!("{} MiB", bytes >> 20)
        }
        Some(bytes) if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        Some(bytes) => format!("{bytes} bytes"),
        None => "unknown".to_owned(),
    }
}

fn number(number: Option<u64>) -> String {
    number.map_or("unknown".to_owned(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_the_largest_whole_unit() {
        let words = [Some(3 << 20), Some(65536), Some(8), None].map(bytes);
        assert_eq!(words, ["3 MiB", "64 KiB", "8 bytes", "unknown"]);
    }
}

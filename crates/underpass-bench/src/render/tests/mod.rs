//! Reports of a made-up run.

pub(crate) mod sample;

use std::collections::HashSet;

use crate::document::{Better, Document, Experiment, Measured, PayloadPath, RunOutcome, Unit};
use crate::stats::{RatioEstimate, RatioVerdict};

#[test]
fn the_page_loads_nothing_and_runs_nothing() {
    let page = sample::document().html();
    if let Some(path) = std::env::var_os("UNDERPASS_SAMPLE_REPORT") {
        std::fs::write(path, &page).unwrap();
    }
    assert!(page.contains("default-src 'none'; style-src 'nonce-"));
    for forbidden in [
        "<script", "<link", "<img", "<iframe", "@import", "url(", "style=", "onload",
    ] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!elsewhere.contains("http:") && !elsewhere.contains("https:"));
}

#[test]
fn a_contender_that_failed_has_no_row_and_without_the_first_there_is_no_ratio() {
    for failed in [0, 1] {
        let mut document = sample::document();
        let cases = document.experiments.iter_mut().flat_map(|e| &mut e.cases);
        for case in cases {
            for metric in &mut case.metrics {
                metric.figures[failed] = None;
                let gone = |place: usize| failed == 0 || place == failed;
                for (place, comparison) in metric.comparisons.iter_mut().enumerate() {
                    comparison.take_if(|_| gone(place));
                }
            }
            case.travelled.retain(|one| one.contender != failed);
            case.calls.retain(|one| one.contender != failed);
        }
        for experiment in &document.experiments {
            let name = &experiment.contenders[failed].name;
            for group in super::table::groups(experiment) {
                assert!(group.figures.rows.iter().all(|row| row.name != *name));
                match group.ratios {
                    Some(super::table::Ratios::Table(ratios)) => {
                        assert!(failed > 0 && ratios.rows.iter().all(|row| row.name != *name));
                    }
                    Some(super::table::Ratios::TooFewRounds) => assert!(failed > 0),
                    None => {}
                }
            }
        }
        assert!(document.html().len() + document.markdown().len() + document.text(80).len() > 0);
    }
}

#[test]
fn what_is_opened_is_closed_and_no_name_is_given_twice() {
    let page = sample::document().html();
    for element in [
        "section", "figure", "div", "table", "tr", "ul", "li", "svg", "p", "details", "polyline",
        "use", "rect", "path", "g",
    ] {
        let opened = page.matches(&format!("<{element}>")).count()
            + page.matches(&format!("<{element} ")).count();
        assert_eq!(
            opened,
            page.matches(&format!("</{element}>")).count(),
            "{element}"
        );
    }
    let mut names: Vec<&str> = page
        .split(" id=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert!(count > 50 && names.len() == count);
}

#[test]
fn names_can_not_break_out_of_the_page() {
    let mut document = small();
    document.experiments[0].contenders[0].name = "<script>alert(1)</script>\"&".into();
    let page = document.html();
    assert!(!page.contains("<script"));
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&amp;"));
}

/// Two contenders that differ, one not distinguishable from the first, two cases.
fn small() -> Document {
    let mut document = sample::empty();
    let mut experiment = sample::experiment("socket", "receiver discards", "To a socket", 7);
    experiment.measured = "A file is sent.".into();
    experiment.reading = "Less is cheaper.".into();
    experiment.axis.label = "file size".into();
    experiment.contenders = ["sendfile", "splice", "read+write"]
        .map(sample::contender)
        .into();
    for (label, x) in [("7 MB", 7e6), ("1 GB", 1e9)] {
        let mut case = sample::case(label, x, "over loopback");
        let rounds = |scale: f64| [1.00, 1.01, 0.99, 1.02, 1.00, 0.98, 1.00].map(|r| r * scale);
        let mut same = rounds(0.1);
        same.reverse();
        case.metrics.push(sample::measured(
            ("cpu_per_gib", "processor time per GiB"),
            (Unit::SecondsPerGib, Some(Better::Lower)),
            [rounds(0.1), same, rounds(0.2)]
                .map(|rounds| Some(rounds.to_vec()))
                .into(),
        ));
        experiment.cases.push(case);
    }
    experiment.cases[0].metrics[0].figures[2] = None;
    experiment.cases[0].metrics[0].comparisons[2] = None;
    experiment.cases[1].notes.push("was disturbed".into());
    document.experiments.push(experiment);
    document.warnings.clear();
    document
}

#[test]
fn the_terminal_shows_medians_and_ratios_only_where_there_is_a_difference() {
    let text = small().text(80);
    let table = "\
processor time per GiB, lower is better
                  7 MB      1 GB
  sendfile      100 ms    100 ms
              98.0–102  98.0–102
  splice        100 ms    100 ms
              98.0–102  98.0–102
  read+write         –    200 ms
                         196–204

how many times as good sendfile is as each of the others in processor time per
GiB
                         7 MB             1 GB
  splice                  not              not
              distinguishable  distinguishable
  read+write                –             2.00
                                     2.00–2.00
- 1 GB: was disturbed
";
    let answer = "
Answer
──────
- To a socket: receiver discards: 7 MB to 1 GB: no measurable difference between
  sendfile and splice. 1 GB: sendfile takes about half the processor time per
  GiB of read+write.
";
    assert!(text.ends_with(&[table, answer].concat()), "{text}");
    let head = "\
underpass 0.1.0 on 2026-01-31, in 25 min 12 s
command: bench";
    assert!(text.starts_with(head), "{text}");
}

#[test]
fn markdown_says_it_in_words() {
    let markdown = small().markdown();
    let tables = "\
**processor time per GiB, lower is better**

| contender | 7 MB | 1 GB |
|---|---:|---:|
| sendfile | 100 ms (98.0–102) | 100 ms (98.0–102) |
| splice | 100 ms (98.0–102) | 100 ms (98.0–102) |
| read+write | – | 200 ms (196–204) |

**how many times as good sendfile is as each of the others in processor time per GiB**

| contender | 7 MB | 1 GB |
|---|---:|---:|
| splice | not distinguishable | not distinguishable |
| read+write | – | **2.00** (2.00–2.00) |
";
    assert!(markdown.contains(tables), "{markdown}");
    assert!(
        markdown.contains("\n## To a socket: receiver discards\n"),
        "{markdown}"
    );
}

#[test]
fn few_rounds_make_no_table_of_ratios() {
    let document = sample::run(1, 0.01, 3);
    for report in [document.text(100), document.markdown(), document.html()] {
        assert!(
            report.contains("Too few rounds to print any ratio here"),
            "{report}"
        );
        assert!(!report.contains("divided by each of the others"));
    }
}

#[test]
fn an_interrupted_run_says_so() {
    let mut document = small();
    document.outcome = RunOutcome::Interrupted;
    for report in [document.text(80), document.markdown(), document.html()] {
        assert!(report.contains("This run was interrupted"), "{report}");
    }
}

#[test]
fn the_terminal_stays_within_its_width() {
    for width in [60, 80, 100, 120] {
        let text = sample::document().text(width);
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}

#[test]
fn every_figure_is_in_markdown_and_on_the_page() {
    let document = sample::document();
    for report in [document.markdown(), document.html()] {
        let texts: HashSet<&str> = report.split(['<', '>', '(', ')']).collect();
        for metric in document.experiments.iter().flat_map(metrics) {
            for figures in metric.figures.iter().flatten() {
                let range = super::figure::range(&figures.spread, metric.unit);
                assert!(texts.contains(&*range), "{range}");
            }
        }
    }
}

fn metrics(experiment: &Experiment) -> impl Iterator<Item = &Measured> {
    experiment.cases.iter().flat_map(|case| &case.metrics)
}

#[test]
fn a_run_without_figures_is_still_a_report() {
    let mut document = sample::empty();
    document
        .experiments
        .push(sample::experiment("socket", "", "To a socket", 7));
    document.experiments[0]
        .cases
        .push(sample::case("7 MB", 7e6, ""));
    for report in [document.text(80), document.markdown(), document.html()] {
        assert!(report.contains("To a socket"));
    }
}

/// By these mechanisms, in all cases, the contenders of the first experiment moved their bytes.
fn moved_by(mut document: Document, mechanisms: [&str; 3]) -> Document {
    for case in &mut document.experiments[0].cases {
        let paths = mechanisms.iter().enumerate().map(|(contender, mechanism)| {
            let (mechanism, bytes) = ((*mechanism).to_owned(), 1);
            PayloadPath {
                contender,
                mechanism,
                bytes,
                calls: 1,
                refusals: 0,
            }
        });
        case.travelled = paths.collect();
    }
    document
}

fn answer_of(document: &Document) -> String {
    super::answer::answers(document).swap_remove(0).1
}

#[test]
fn the_answer_is_computed_from_ratios_and_mechanisms() {
    let document = moved_by(small(), ["sendfile", "splice", "read_write"]);
    let expected = "1 GB: zero-copy (sendfile) takes about half the processor time per GiB of \
                    read/write.";
    assert_eq!(answer_of(&document), expected);
    let mut copies = document.clone();
    copies.experiments[0].name = "copy".into();
    assert!(answer_of(&copies).contains("copying in the kernel (sendfile) takes"));
    // The same with figures of which higher ones are better, and others.
    let set = |ratios: [f64; 2], verdict| {
        let mut document = moved_by(small(), ["sendfile", "splice", "read_write"]);
        for (case, ratio) in document.experiments[0].cases.iter_mut().zip(ratios) {
            case.metrics[0].better = Some(Better::Higher);
            case.metrics[0].label = "requests per second".into();
            case.metrics[0].comparisons[2] = Some(RatioEstimate {
                verdict,
                ratio,
                low: ratio,
                high: ratio,
                confidence: 0.98,
            });
        }
        answer_of(&document)
    };
    let different = RatioVerdict::Different;
    let much = "zero-copy (sendfile) reaches 1.30 to 1.41 times the requests per second of";
    assert_eq!(
        set([1.3, 1.41], different),
        format!("7 MB to 1 GB: {much} read/write.")
    );
    assert!(set([0.9, 1.41], different).contains("reaches 0.90 times the"));
    let unclear = set([1.3, 1.41], RatioVerdict::NotDistinguishable);
    let none =
        "7 MB to 1 GB: no measurable difference between zero-copy (sendfile) and read/write.";
    assert_eq!(unclear, none);
    assert!(set([1.3; 2], RatioVerdict::TooFewRounds).contains("too few rounds to tell"));
}

#[test]
fn one_contender_has_its_figure_and_what_was_left_out_is_named() {
    let mut document = small();
    let experiment = &mut document.experiments[0];
    experiment.contenders.truncate(1);
    experiment.cases.truncate(1);
    let metric = &mut experiment.cases[0].metrics[0];
    metric.figures.truncate(1);
    metric.comparisons.truncate(1);
    experiment.left_out = vec!["nginx".into()];
    let answers = super::answer::answers(&document);
    assert_eq!(
        answers[0].1,
        "7 MB: sendfile: processor time per GiB 100 ms/GiB."
    );
    assert_eq!(
        answers[1],
        ("Left out".into(), "nginx: see the notes.".into())
    );
}

#[test]
fn the_answer_comes_first_on_pages_and_last_on_the_terminal() {
    let document = sample::document();
    let answers = super::answer::answers(&document);
    assert!(answers.len() >= document.experiments.len());
    let (html, markdown, text) = (document.html(), document.markdown(), document.text(2000));
    let html = html.split_once("class=\"muted\"").expect("what follows").0;
    let markdown = markdown
        .split_once("\nMeasured by")
        .expect("what follows")
        .0;
    let (_, text) = text.split_once("\nAnswer\n").expect("the answer");
    for (question, words) in &answers {
        for part in [question, words] {
            assert!(
                html.contains(part.as_str()) && text.contains(part.as_str()),
                "{part}"
            );
            assert!(markdown.contains(&super::markdown::escaped(part)), "{part}");
        }
    }
    assert_eq!(text.trim_end().lines().count(), 1 + answers.len(), "{text}");
}

#[test]
fn pages_have_the_best_of_each_experiment_before_the_first_section() {
    let document = sample::document();
    let lines = super::summary::summary(&document);
    assert!((9..40).contains(&lines.len()), "{}", lines.len());
    let (html, markdown) = (document.html(), document.markdown());
    let opening = |report: &str, end: &str| report.split_once(end).unwrap().0.to_owned();
    let (html, markdown) = (opening(&html, "<section"), opening(&markdown, "\n## "));
    for line in &lines {
        for part in [&line.question, &line.best, &line.tied, &line.ratio] {
            assert!(html.contains(part.as_str()), "{part}");
            assert!(markdown.contains(&super::markdown::escaped(part)), "{part}");
        }
    }
    for index in 0..document.experiments.len() {
        assert!(
            html.contains(&format!("<a href=\"#e{index}\">")),
            "no link to {index}"
        );
    }
    assert!(html.find("<table").unwrap() < html.find("Machine").unwrap());
}

#[test]
fn where_rounds_are_too_few_the_summary_says_so_and_nothing_else() {
    let few = sample::run(1, 0.01, 3);
    for line in super::summary::summary(&few) {
        assert_eq!(
            (&*line.best, &*line.tied, &*line.ratio),
            ("too few rounds to tell", "–", "–")
        );
    }
}

#[test]
fn a_heading_says_nothing_twice() {
    let heading = |variant| sample::experiment("http", variant, "To 16 connections", 7).heading();
    assert_eq!(heading("16 connections"), "To 16 connections");
    assert_eq!(
        heading("16 connections, 50 files"),
        "To 16 connections: 50 files"
    );
    assert_eq!(heading(""), "To 16 connections");
}

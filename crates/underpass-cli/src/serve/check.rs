//! `underpass serve --check FILE`: validates a configuration without serving it.

use std::path::Path;

use underpass_serve::{
    AccessDecision, AccessQuestion, ConfigOverride, ServerOptions, SiteOptions, decide_access,
};

use super::advice::with_advice;
use super::arguments::{ServeArguments, choose_folder};

/// Returns a description of the server, or every mistake, a paragraph each.
pub(super) fn check(file: &Path, arguments: &ServeArguments) -> Result<String, String> {
    let mut options = arguments.load(Some(file))?;
    choose_folder(&mut options.sites, None)?;
    let mistakes = underpass_serve::check(&options);
    if let (Some(question), true) = (arguments.question()?, mistakes.is_empty()) {
        let decided = decide_access(&options, &question);
        let decided = decided.map_err(|error| with_advice(&error))?;
        return Ok(describe_decision(&question, &decided));
    }
    if mistakes.is_empty() {
        return Ok(describe(file, &options, &arguments.set));
    }
    let mistakes = mistakes.iter().map(with_advice);
    let file = file.display();
    let lines: Vec<_> = mistakes
        .map(|mistake| format!("{file}: {mistake}"))
        .collect();
    Err(lines.join("\nunderpass: "))
}

/// Describes the outcome of a request, and the rule that decided.
fn describe_decision(question: &AccessQuestion, decided: &AccessDecision) -> String {
    let outcome = match decided.is_granted {
        true => "granted",
        false => "refused",
    };
    let reason = match (decided.is_restricted, decided.rule) {
        (false, _) => "the site has no rules".to_owned(),
        (true, Some(rule)) => format!("rule {rule} decides"),
        (true, None) => "no rule is about it".to_owned(),
    };
    format!("{outcome}: {} {}, {reason}", question.method, question.path)
}

fn describe(file: &Path, options: &ServerOptions, settings: &[ConfigOverride]) -> String {
    let listen: Vec<_> = options.listen.iter().map(ToString::to_string).collect();
    let mut lines = vec![
        format!("{} is valid", file.display()),
        format!("listens on {}", listen.join(", ")),
    ];
    let warnings = underpass_serve::warnings(options);
    lines.extend(warnings.iter().map(|what| format!("warning: {what}")));
    lines.extend(settings.iter().map(|setting| format!("with {setting}")));
    for (number, site) in options.sites.iter().enumerate() {
        lines.push(format!(
            "site {}: {}",
            number + 1,
            describe_site(number, site)
        ));
    }
    lines.join("\n")
}

fn describe_site(number: usize, site: &SiteOptions) -> String {
    let names: Vec<_> = site.names.iter().map(|name| name.as_str()).collect();
    let others = match number {
        0 => Some("all other names"),
        _ => None,
    };
    let names: Vec<_> = names.into_iter().chain(others).collect();
    let names = match names.is_empty() {
        true => "no name: unreachable".to_owned(),
        false => names.join(", "),
    };
    format!("{} for {names}", site.root.display())
}

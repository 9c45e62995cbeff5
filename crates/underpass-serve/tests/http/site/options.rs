//! The schema of options: the example contains every option, and mistakes are reported with their
//! positions.

use std::fs;

use toml::{Table, Value};
use underpass_serve::{Error, ServerOptions, SiteOptions, check};

const EXAMPLE: &str = include_str!("../../../../../contrib/underpass.toml");

/// Returns the example with all commented-out options enabled.
fn unmarked() -> String {
    let lines = EXAMPLE.lines().map(|line| match line.strip_prefix('#') {
        Some(marked) if !marked.is_empty() && !marked.starts_with(' ') => marked,
        _ => line,
    });
    lines.fold(String::new(), |text, line| text + line + "\n")
}

#[test]
fn the_example_can_be_read() {
    let options = ServerOptions::parse(&unmarked()).unwrap();
    assert_eq!(options.sites[0].names, ["example.org", "*.example.org"]);
}

#[test]
fn the_example_as_it_is_has_all_defaults() {
    // Options whose defaults the example does not mark as such.
    let defaults = "[[site]]\nroot = '/srv'\narchives = true\naccess.realm = 'underpass'\n\
                    types = {default = 'application/octet-stream', charset = 'utf-8'}\n";
    let [example, defaults] = [EXAMPLE, defaults].map(|text| {
        let options = ServerOptions::parse(text).unwrap();
        format!("{options:#?}")
    });
    for (line, default) in example.lines().zip(defaults.lines()) {
        assert_eq!(line, default);
    }
    assert_eq!(example.len(), defaults.len());
}

/// Returns the keys allowed in a table, as listed in the message about a misspelt one.
fn keys(error: &str) -> Vec<String> {
    // The other lines of the message are the position of the table.
    let (_, expected) = error
        .lines()
        .next()
        .unwrap()
        .split_once("expected")
        .unwrap();
    expected
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// Calls `visit` with every table of `value` and its path.
fn each_table(value: &Value, path: &str, visit: &mut dyn FnMut(&str, &Table)) {
    match value {
        Value::Table(table) => {
            visit(path, table);
            for (key, value) in table {
                each_table(value, &format!("{path}.{key}"), visit);
            }
        }
        Value::Array(values) => {
            for (number, value) in values.iter().enumerate() {
                each_table(value, &format!("{path}.{number}"), visit);
            }
        }
        _ => {}
    }
}

/// Returns the value with an unknown key in the table at `path`.
fn misspelt(value: &Value, path: &str) -> Value {
    let mut value = value.clone();
    let mut table = &mut value;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        table = match table {
            Value::Table(table) => table.get_mut(step).unwrap(),
            Value::Array(values) => &mut values[step.parse::<usize>().unwrap()],
            _ => unreachable!(),
        };
    }
    let table = table.as_table_mut().unwrap();
    table.insert("misspelt".into(), Value::Array(Vec::new()));
    value
}

#[test]
fn the_example_has_every_option_there_is() {
    let example = Value::Table(toml::from_str(&unmarked()).unwrap());
    let mut checked = Vec::new();
    each_table(&example, "", &mut |path, table| {
        let error = misspelt(&example, path)
            .try_into::<ServerOptions>()
            .unwrap_err()
            .to_string();
        // In pages and types the user chooses the keys.
        if !error.contains("unknown field") {
            return;
        }
        for key in keys(&error) {
            assert!(table.contains_key(&key), "the example lacks {path}.{key}");
        }
        checked.push(path.to_owned());
    });
    for path in [
        "",
        ".connections",
        ".site.0",
        ".site.0.cors",
        ".site.0.redirect.0",
    ] {
        assert!(
            checked.iter().any(|checked| checked == path),
            "{path} of {checked:?}"
        );
    }
}

#[test]
fn what_is_wrong_is_reported_with_its_place() {
    for (site, line, what) in [
        ("root = 5", 2, "string"),
        ("names = ['a:80']", 2, "port"),
        ("fallback = 'index.html'", 2, "slash"),
        ("fallback = '/../x'", 2, "above the root"),
        ("fallback = '/app/'", 2, "folder"),
        ("index = ['a/b']", 2, "slash"),
        ("precompressed = ['lzma']", 2, "`zstd`"),
        ("compress = ['lzma']", 2, "`zstd`"),
        ("compress-types = ['text']", 2, "media type"),
        ("symlinks = 'some'", 2, "`inside`"),
        ("error-pages = {200 = '/x'}", 2, "404"),
        (
            "cors.origins = ['https://a.example/']",
            2,
            "is not an origin",
        ),
        (
            "header = [{paths = ['*'], name = 'Content-Length', value = '5'}]",
            2,
            "server sets it",
        ),
        (
            "header = [{paths = ['*'], name = 'X-A', value = \"a\\r\\nX-B: c\"}]",
            2,
            "control",
        ),
        ("cache = [\n{paths = ['[z'], control = 'x'}]", 3, "pattern"),
        (
            "redirect = [{from = '/a', to = '//evil.example'}]",
            2,
            "neither a path",
        ),
        (
            "rewrite = [{from = '/a', to = '/b', status = 301}]",
            2,
            "status",
        ),
    ] {
        let error = ServerOptions::parse(&format!("[[site]]\n{site}\n")).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains(&format!("line {line}, column")),
            "{site}: {said}"
        );
        assert!(said.contains(what), "{site}: {said}");
    }
}

#[test]
fn a_relative_root_is_beside_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    fs::write(
        &file,
        "[[site]]\nroot = 'www'\n[[site]]\nroot = '/srv'\nnames = ['a']\n",
    )
    .unwrap();
    let options = ServerOptions::load_with(Some(&file), &[]).unwrap();
    assert_eq!(options.sites[0].root, folder.path().join("www"));
    assert_eq!(options.sites[1].root.to_str(), Some("/srv"));
    let missing = ServerOptions::load_with(Some(&folder.path().join("none.toml")), &[]);
    assert!(matches!(missing, Err(Error::ConfigFile { .. })));
}

#[test]
fn a_check_finds_every_site_that_cannot_be_served() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("page.html"), "page").unwrap();
    let site = |text: &str| SiteOptions {
        root: folder.path().to_owned(),
        ..ServerOptions::parse(&format!("[[site]]\n{text}"))
            .unwrap()
            .sites
            .remove(0)
    };
    let mut options = ServerOptions::of(folder.path());
    assert!(check(&options).is_empty());
    options
        .sites
        .push(site("fallback = '/page.html'\nnames = ['a']"));
    assert!(check(&options).is_empty());
    options.sites.push(site("fallback = '/none.html'"));
    options.sites.push(site("precompressed = ['br', 'br']"));
    options.sites.push(site("compress = ['gzip', 'gzip']"));
    options
        .sites
        .push(site("cors.origins = ['*', 'https://a.example']"));
    options.sites.push(SiteOptions::of("/nowhere"));
    let reported: Vec<_> = check(&options).iter().map(Error::to_string).collect();
    let said = [
        "/none.html",
        "precompressed",
        "compress: a coding is listed twice",
        "allows every origin",
        "/nowhere",
    ];
    assert_eq!(reported.len(), said.len(), "{reported:?}");
    for (reported, said) in reported.iter().zip(said) {
        assert!(reported.contains(said), "{reported}");
    }
}

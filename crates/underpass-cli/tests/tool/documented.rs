//! The command lines of the documentation do what it says: each one is accepted, and those in the
//! table of docs/cp.md and the recipes of docs/uploads.md are run. The configurations in
//! docs/access.md and docs/tls.md are valid.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use underpass_testkit::{ServerProcess, disk_folder, run};

const BINARY: &str = env!("CARGO_BIN_EXE_underpass");

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).expect("docs");
    let docs = docs.map(|entry| entry.expect("an entry").path());
    let pages = docs.filter(|path| path.extension().is_some_and(|end| end == "md"));
    pages.chain([root.join("README.md")]).collect()
}

/// Returns the words after `underpass` in a line of a code block or in the first cell of a row.
/// Returns `None` if the line is a synopsis, or contains shell syntax.
fn command(line: &str) -> Option<Vec<String>> {
    let code = match line.strip_prefix("| `") {
        Some(row) => row.split('`').next()?,
        None => line.strip_prefix("    ")?,
    };
    let begins = code.starts_with("underpass ")
        || code.starts_with("$ underpass ")
        || code.starts_with("UNDERPASS_");
    let at = code.find("underpass ").filter(|_| begins)?;
    let words = code[at..].split("   ").next()?;
    let is_plain = !words.contains(['[', '|', '<', '>', '$', '…']) && !words.contains("...");
    let words = shlex::split(words).filter(|_| is_plain)?;
    let is_placeholder = |word: &String| word.chars().all(char::is_uppercase) && word.len() > 1;
    // Messages: `underpass cp: stopped`, `underpass 0.1.0 on Linux`.
    let first = words.get(1)?;
    let is_message = first.ends_with(':') || first.starts_with(|first: char| first.is_numeric());
    (!is_message && !words.iter().any(is_placeholder)).then(|| words[1..].to_vec())
}

#[test]
fn every_documented_command_line_is_understood() {
    let mut understood = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for words in text.lines().filter_map(command) {
            // An unknown option is reported before the help is shown.
            let done = run(Command::new(BINARY).args(&words).arg("--help"));
            assert_eq!(
                done.code,
                Some(0),
                "{}: {words:?}: {done:?}",
                page.display()
            );
            assert!(done.output.contains("Usage:"), "{words:?}");
            understood += 1;
        }
    }
    assert!(understood >= 40, "only {understood} command lines found");
}

/// Makes the files named in the table; absolute names are below the folder.
fn world(folder: &Path) {
    let files = [
        "src/file",
        "project/target/out",
        "project/main.o",
        "project/main.c",
        "photos/one",
        "new.conf",
        "etc/app.conf",
        "disk.img",
        "dump.sql",
    ];
    for name in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("room");
        fs::write(path, name).expect("room");
    }
    for name in ["backup", "mnt/usb", "mnt/nas"] {
        fs::create_dir_all(folder.join(name)).expect("room");
    }
}

#[test]
fn the_ten_command_lines_of_cp_copy_what_they_say() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cp.md");
    let text = fs::read_to_string(page).expect("the page");
    let table = text.split("## Ten command lines").nth(1).expect("a table");
    let table = table.split("\n## ").next().expect("its end");
    let lines: Vec<_> = table.lines().filter_map(command).collect();
    assert_eq!(lines.len(), 10);
    let folder = disk_folder();
    world(folder.path());
    for words in &lines {
        let words = words.iter().map(|word| match word.strip_prefix('/') {
            Some(path) => folder.path().join(path).display().to_string(),
            None => word.clone(),
        });
        let words: Vec<_> = words.collect();
        let done = run(Command::new(BINARY).args(&words).current_dir(folder.path()));
        let may_be_refused = words.iter().any(|word| word == "--reflink=always");
        let is_refused = may_be_refused && done.errors.contains("failed to clone");
        assert!(done.code == Some(0) || is_refused, "{words:?}: {done:?}");
    }
    let there = |name: &str| folder.path().join(name).exists();
    assert!(there("dst/file") && !there("dst/src"), "-T");
    assert!(there("backup/project/main.c") && !there("backup/project/main.o"));
    assert!(!there("backup/project/target"));
    assert!(there("backup/photos/one") && there("mnt/usb/photos/one"));
    assert!(there("mnt/nas/dump.sql") && there("mnt/usb/disk.img"));
    let conf = fs::read_to_string(folder.path().join("etc/app.conf")).expect("a copy");
    assert_eq!(conf, "new.conf");
}

/// Returns each section of the second level, as heading and text.
fn sections(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let sections = page.split("\n## ").skip(1);
    sections.filter_map(|section| section.split_once('\n'))
}

/// Returns the TOML code blocks, as one configuration.
fn configuration(section: &str) -> Option<String> {
    let paragraphs = section.split("\n\n").map(|text| text.trim_matches('\n'));
    // Not the fields of a reference, nor a part of a systemd unit.
    let others = ["    [site.access] ", "    [Service]"];
    let is_toml = |text: &&str| {
        text.starts_with("    [") && !others.iter().any(|other| text.starts_with(other))
    };
    let tables: Vec<_> = paragraphs.filter(is_toml).collect();
    (!tables.is_empty()).then(|| tables.join("\n").replace("\n    ", "\n").trim().to_owned())
}

/// Makes the files that the configurations of the page name, in a folder.
fn named_in_access(folder: &Path) {
    let hash = "$2y$04$abcdefghijklmnopqrstuuJ0SCBxa1qgyYLZ1cUgD0BcqZcAHPPzO";
    let users = ["anna", "ben", "carl"].map(|user| format!("{user}:{hash}\n"));
    let token = format!("ci:sha256:{}\n", "0".repeat(64));
    fs::create_dir(folder.join("site")).expect("room");
    for (name, content) in [
        ("users", users.concat()),
        ("tokens", token),
        ("link.key", "k".repeat(40)),
    ] {
        fs::write(folder.join(name), content).expect("room");
    }
    let only_ours = Permissions::from_mode(0o600);
    fs::set_permissions(folder.join("link.key"), only_ours).expect("its owner");
}

#[test]
fn the_configurations_of_the_page_about_access_are_valid_and_decide_what_it_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/access.md");
    let text = fs::read_to_string(page).expect("the page");
    let folder = tempfile::tempdir().expect("room");
    named_in_access(folder.path());
    let here = folder.path().display().to_string();
    let config = folder.path().join("site.toml");
    let (mut checked, mut asked) = (0, 0);
    for (heading, section) in sections(&text) {
        let Some(mut toml) = configuration(section) else {
            continue;
        };
        // The rest of a configuration that the page assumes.
        if !toml.contains("[site.access]") {
            toml = format!("[site.access]\nusers = '/etc/underpass/users'\n{toml}");
        }
        if !toml.contains("[[site]]") {
            toml = format!("[[site]]\nroot = '/srv/site'\n{toml}");
        }
        let toml = toml
            .replace("/etc/underpass", &here)
            .replace("/srv/team", "/srv/site");
        let toml = toml.replace("/srv/site", &format!("{here}/site"));
        fs::write(&config, &toml).expect("room");
        let check = |words: &[String]| {
            let mut serve = Command::new(BINARY);
            run(serve.args(["serve", "--check"]).arg(&config).args(words))
        };
        let done = check(&[]);
        assert_eq!(done.code, Some(0), "{heading}: {done:?}\n{toml}");
        // The folders in rules exist only on the reader's machine.
        let mut warnings = done
            .output
            .lines()
            .filter(|line| line.starts_with("warning:"));
        let is_absent = |line: &str| line.contains("there is nothing of that name");
        assert!(warnings.all(is_absent), "{heading}: {done:?}");
        checked += 1;
        let mut lines = section.lines();
        while let Some(line) = lines.next() {
            let words = line.strip_prefix("    underpass serve --check site.toml ");
            let Some(words) = words.and_then(shlex::split) else {
                continue;
            };
            let said = check(&words);
            assert_eq!(
                Some(said.output.trim()),
                lines.next().map(str::trim),
                "{line}"
            );
            asked += 1;
        }
    }
    assert_eq!(
        (checked, asked),
        (6, 1),
        "sections with a configuration, and questions"
    );
}

/// Makes a folder with a certificate for these names and its key.
fn certified(folder: &Path, names: &[&str]) {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    fs::create_dir_all(folder).expect("room");
    fs::write(folder.join("fullchain.pem"), made.cert.pem()).expect("room");
    let key = folder.join("privkey.pem");
    fs::write(&key, made.signing_key.serialize_pem()).expect("room");
    fs::set_permissions(key, Permissions::from_mode(0o640)).expect("its owner");
}

#[test]
fn the_configuration_of_two_domains_is_complete() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tls.md");
    let text = fs::read_to_string(page).expect("the page");
    let mut sections = sections(&text);
    let (_, section) = sections
        .find(|(heading, _)| *heading == "Two domains")
        .expect("the section");
    let lines = section.lines().skip_while(|line| !line.starts_with("    "));
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
    let toml: Vec<_> = lines.map(str::trim).collect();
    let folder = tempfile::tempdir().expect("room");
    let here = folder.path();
    certified(
        &here.join("tls/example.org"),
        &["example.org", "www.example.org"],
    );
    certified(&here.join("tls/example.net"), &["example.net"]);
    for made in ["log", "example.org", "example.net"] {
        fs::create_dir(here.join(made)).expect("room");
    }
    // On the reader's machine these belong to www-data.
    let us = rustix::process::geteuid().as_raw();
    let here = here.display().to_string();
    let toml = toml
        .join("\n")
        .replace("/etc/underpass/tls", &format!("{here}/tls"))
        .replace("/var/log/underpass", &format!("{here}/log"))
        .replace("/srv/", &format!("{here}/"))
        .replace("www-data", &format!("{us}:{us}"));
    let config = folder.path().join("underpass.toml");
    fs::write(&config, &toml).expect("room");
    let check = || run(Command::new(BINARY).args(["serve", "--check"]).arg(&config));
    let done = check();
    assert_eq!(done.code, Some(0), "{done:?}");
    for words in [
        "listens on https:[::]:443, http:[::]:80",
        "example.org for example.org, www.example.org, all other names",
        "example.net for example.net",
    ] {
        assert!(done.output.contains(words), "{words}: {done:?}");
    }
    assert!(!done.output.contains("warning"), "{done:?}");
}

/// Returns the lines of a section that a shell runs: those of curl, and assignments before them.
fn shell_lines(section: &str) -> Vec<&str> {
    let lines = section.lines().filter_map(|line| line.strip_prefix("    "));
    let is_shell =
        |line: &&str| line.starts_with("curl ") || line.contains("| curl ") || line.contains("=$(");
    lines.filter(is_shell).collect()
}

/// Runs lines of a page in a folder; they stop at the first that fails.
fn shell(lines: &[&str], (folder, token): (&Path, &str), server: &ServerProcess) -> String {
    let script = lines
        .join("\n")
        .replace("https://files.example.org/", &server.url(""))
        .replace("http://127.0.0.1:8080/", &server.url(""));
    let mut shell = Command::new("sh");
    shell.args(["-ec", &script]).env("TOKEN", token);
    let done = run(shell.current_dir(folder));
    assert_eq!(done.code, Some(0), "{script}: {done:?}");
    done.output
}

/// Makes the files that the page about uploads names, and returns the token `ci`.
fn named_in_uploads(folder: &Path) -> String {
    named_in_access(folder);
    let made = run(Command::new(BINARY).args(["serve", "hash", "--token", "ci"]));
    fs::write(folder.join("tokens"), &made.output).expect("room");
    for name in ["drop", "builds", "anna", "ben", "shared", "incoming"] {
        fs::create_dir(folder.join("site").join(name)).expect("room");
    }
    fs::create_dir(folder.join("project")).expect("room");
    for name in ["report.pdf", "beach.jpg", "app.tar.zst", "project/file"] {
        fs::write(folder.join(name), name).expect("room");
    }
    made.errors
        .lines()
        .last()
        .expect("a token")
        .trim()
        .to_owned()
}

#[test]
#[ignore = "needs curl and openssl; run by cargo xtask test"]
fn the_recipes_of_the_page_about_uploads_do_what_it_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/uploads.md");
    let text = fs::read_to_string(page).expect("the page");
    let folder = tempfile::tempdir().expect("room");
    let token = named_in_uploads(folder.path());
    let here = folder.path().display().to_string();
    let config = folder.path().join("site.toml");
    let serve = |words: &[&str]| {
        let mut serve = Command::new(BINARY);
        let serve = serve.args(["serve", "--listen", "127.0.0.1:0"]);
        ServerProcess::spawn(serve.args(words))
    };
    let (mut served, mut asked, mut pages) = (0, 0, 0);
    for (heading, section) in sections(&text) {
        let Some(toml) = configuration(section) else {
            continue;
        };
        let roots = ["/srv/team", "/srv/artefacts", "/srv/files"];
        let site = |toml: String, root: &&str| toml.replace(root, &format!("{here}/site"));
        let toml = roots
            .iter()
            .fold(toml, site)
            .replace("/etc/underpass", &here);
        // A machine for tests may have less.
        let toml = toml.replace("keep-free = \"5GB\"", "keep-free = \"1MB\"");
        fs::write(&config, &toml).expect("room");
        let done = run(Command::new(BINARY).args(["serve", "--check"]).arg(&config));
        assert_eq!(done.code, Some(0), "{heading}: {done:?}\n{toml}");
        assert!(!done.output.contains("warning"), "{heading}: {done:?}");
        let server = serve(&["--config", &config.display().to_string()]);
        let lines = shell_lines(section);
        shell(&lines, (folder.path(), &token), &server);
        let page = server.connect().get("/drop/");
        pages += usize::from(page.status == 200 && page.text().contains("id=\"upload\""));
        served += 1;
        let mut lines = section.lines();
        while let Some(line) = lines.next() {
            let words = line.strip_prefix("    underpass serve --check site.toml ");
            let Some(words) = words.and_then(shlex::split) else {
                continue;
            };
            let mut check = Command::new(BINARY);
            let said = run(check.args(["serve", "--check"]).arg(&config).args(words));
            assert_eq!(
                Some(said.output.trim()),
                lines.next().map(str::trim),
                "{line}"
            );
            asked += 1;
        }
    }
    assert_eq!(
        (served, asked),
        (4, 1),
        "sections with a configuration, and questions"
    );
    let there = |name: &str| folder.path().join("site").join(name).exists();
    assert!(there("drop/report.pdf") && there("builds/42/app.tar.zst"));
    assert!(
        pages >= 1,
        "the page of the drop box is not sent to everyone"
    );
    // The introduction and the section about protocols use one folder.
    let server = serve(&[
        "--upload=/incoming,delete,overwrite",
        &format!("{here}/site"),
    ]);
    let (introduction, rest) = text.split_once("\n## ").expect("sections");
    shell(&shell_lines(introduction), (folder.path(), &token), &server);
    for name in ["report.pdf", "beach.jpg", "project.tar"] {
        assert!(there(&format!("incoming/{name}")), "{name}");
    }
    let protocols = sections(rest).find(|(heading, _)| *heading == "Protocols");
    let (_, protocols) = protocols.expect("the section");
    let lines = shell_lines(protocols);
    assert_eq!(lines.len(), 3);
    shell(&lines[..2], (folder.path(), &token), &server);
    assert!(there("incoming/2026/report.pdf") && !there("incoming/report.pdf"));
    shell(&lines[2..], (folder.path(), &token), &server);
    assert!(!there("incoming/2026"));
}

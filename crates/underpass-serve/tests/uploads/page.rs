//! The page by which people upload, in a browser.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use super::browser::Browser;
use super::nginx::Nginx;
use super::support::{Server, pattern};
use tempfile::TempDir;
use underpass_testkit::{free_address, sha256, wait_until};

/// Starts a site that takes files in, with a page that is not empty.
fn server(more: &str) -> Server {
    let server = Server::configured(&format!("[[site.upload]]\npath = '/'\n{more}"));
    for (name, size) in [
        ("beach.jpg", 3_400_000),
        ("README.md", 2_140),
        ("old.txt", 12),
    ] {
        server.write(format!("in/{name}"), vec![b'x'; size]);
    }
    fs::create_dir(server.site().join("in/photos")).unwrap();
    server
}

fn open(server: &Server) -> Browser {
    let mut browser = Browser::start();
    browser.go(&url(server));
    browser.wait("document.querySelector('#choose-files')");
    browser
}

fn url(server: &Server) -> String {
    format!("http://{}/in/", server.address())
}

/// Makes files to upload, and returns their paths.
fn local(files: &[(&str, &[u8])]) -> (TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let paths = files.iter().map(|(name, content)| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    });
    let paths = paths.collect();
    (folder, paths)
}

/// Returns the hashes of all files beneath a folder, by their paths; folders have none.
fn hashes(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut hashes = BTreeMap::new();
    let mut left = vec![folder.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().to_owned();
            if path.is_dir() {
                hashes.insert(name, String::new());
                left.push(path);
            } else {
                hashes.insert(name, sha256(fs::read(&path).unwrap()));
            }
        }
    }
    hashes
}

const DONE: &str = "document.querySelector('.sum').textContent.includes('uploaded')";
const DIALOG: &str = "document.querySelector('dialog[open]')";

fn read(server: &Server, name: &str) -> Vec<u8> {
    fs::read(server.site().join("in").join(name)).unwrap()
}

#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn a_dropped_folder_arrives_whole() {
    let server = server("");
    let mut browser = open(&server);
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree \u{e4} #%");
    for number in 0..300 {
        let path = tree.join(format!("{}/{}/file {number}.bin", number % 7, number % 3));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, pattern(number * 97)).unwrap();
    }
    fs::create_dir_all(tree.join("empty/deep")).unwrap();
    fs::write(tree.join(".hidden"), "hidden").unwrap();
    browser.drag(std::slice::from_ref(&tree), &["dragEnter", "dragOver"]);
    browser.wait("document.body.classList.contains('dropping')");
    browser.picture("drop");
    browser.drag(std::slice::from_ref(&tree), &["drop"]);
    browser.wait("document.querySelector('.sum').textContent.startsWith('300 files uploaded')");
    assert!(browser.text(".sum").contains("1 hidden left out"));
    fs::remove_file(tree.join(".hidden")).unwrap();
    let arrived = server.site().join("in").join(tree.file_name().unwrap());
    wait_until("the empty folder", || arrived.join("empty/deep").is_dir());
    assert_eq!(hashes(&tree), hashes(&arrived));
    // The list shows it without a reload.
    browser.wait("document.querySelector('#rows').textContent.includes('tree')");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn a_taken_name_is_asked_about() {
    let server = server("overwrite = true");
    let mut browser = open(&server);
    let (_folder, files) = local(&[("old.txt", b"new"), ("README.md", b"new too"), ("a", b"a")]);
    browser.choose("#choose-files", &files);
    browser.wait(DIALOG);
    browser.picture("taken");
    // Either name may be found taken first.
    for _ in 0..2 {
        browser.wait(DIALOG);
        let about = browser.text("dialog .named");
        let answer = if about == "old.txt" {
            "rename"
        } else {
            "replace"
        };
        browser.click(&format!("dialog button[value={answer}]"));
        browser.wait(&format!(
            "document.querySelector('dialog .named')?.innerText !== '{about}'"
        ));
    }
    browser.wait(DONE);
    assert_eq!(read(&server, "old (1).txt"), b"new");
    assert_eq!(read(&server, "old.txt"), [b'x'; 12]);
    assert_eq!(read(&server, "README.md"), b"new too");
    assert_eq!(read(&server, "a"), b"a");
    // The same again: all of them are kept, by one answer.
    browser.choose("#choose-files", &files);
    browser.wait(DIALOG);
    browser.click("#for-all");
    browser.click("dialog button[value=rename]");
    browser.wait(DONE);
    for name in ["old (2).txt", "README (1).md", "a (1)"] {
        assert!(server.site().join("in").join(name).exists(), "{name}");
    }
    browser.choose("#choose-files", &files[..1]);
    browser.wait(DIALOG);
    browser.key("Escape", false);
    browser.wait("document.querySelector('.sum').textContent.includes('1 skipped')");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn a_name_is_not_replaced_where_that_is_not_allowed() {
    let server = server("");
    let mut browser = open(&server);
    let (_folder, files) = local(&[("old.txt", b"new")]);
    browser.choose("#choose-files", &files);
    browser.wait(DIALOG);
    assert_eq!(
        browser.evaluate("document.querySelectorAll('dialog button').length"),
        2
    );
    browser.click("dialog button[value=skip]");
    browser.wait("document.querySelector('.sum').textContent.includes('1 skipped')");
    assert_eq!(read(&server, "old.txt"), [b'x'; 12]);
    assert_eq!(
        browser.evaluate("document.querySelectorAll('td.acts').length"),
        0
    );
}

#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn an_upload_whose_answer_was_lost_is_told_from_an_older_file_of_the_same_size() {
    let server = server("");
    let old = server.site().join("in/old.txt");
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let file = fs::File::options().write(true).open(old).unwrap();
    file.set_modified(long_ago).unwrap();
    let mut browser = open(&server);
    // The first answer to each body is lost.
    browser.evaluate(
        "const send = XMLHttpRequest.prototype.send; const lost = new Set();
         XMLHttpRequest.prototype.send = function (body) {
           if (body instanceof File && !lost.has(body.name)) {
             lost.add(body.name);
             this.onload = () => this.onerror();
           }
           send.call(this, body);
         };",
    );
    let (_folder, files) = local(&[
        ("new.txt", b"new"),
        ("empty", b""),
        ("old.txt", b"other bytes!"),
    ]);
    browser.choose("#choose-files", &files);
    // Of the same size as the file that was there, which is not taken for the new one.
    browser.wait(DIALOG);
    assert_eq!(browser.text("dialog bdi"), "old.txt");
    browser.click("dialog button[value=skip]");
    browser.wait("document.querySelector('.sum').textContent.includes('2 files uploaded')");
    browser.wait("document.querySelector('#rows').textContent.includes('empty')");
    assert_eq!(
        (read(&server, "new.txt"), read(&server, "empty")),
        (b"new".to_vec(), Vec::new())
    );
    assert_eq!(read(&server, "old.txt"), [b'x'; 12]);
    assert_eq!(browser.evaluate("!document.querySelector('dialog')"), true);
}

#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn keys_alone_make_rename_and_delete() {
    let server = server("delete = true");
    let mut browser = open(&server);
    browser.focus("New folder");
    browser.key("Enter", false);
    browser.wait(DIALOG);
    browser.write("made #1");
    browser.key("Enter", false);
    browser.wait("document.querySelector('#rows').textContent.includes('made #1')");
    assert!(server.site().join("in/made #1").is_dir());
    browser.focus("Rename old.txt");
    browser.key("Enter", false);
    browser.wait(DIALOG);
    browser.picture("rename");
    browser.write("new \u{e4}?.txt");
    browser.key("Enter", false);
    browser.wait("document.querySelector('#rows').textContent.includes('new \u{e4}?.txt')");
    assert_eq!(read(&server, "new \u{e4}?.txt"), [b'x'; 12]);
    browser.evaluate("document.activeElement.blur()");
    browser.focus("Delete photos");
    browser.key("Enter", false);
    browser.wait(DIALOG);
    browser.picture("delete");
    // The harmless choice has the focus.
    browser.key("Enter", false);
    browser.wait("!document.querySelector('dialog')");
    assert!(server.site().join("in/photos").is_dir());
    browser.focus("Delete photos");
    browser.key("Enter", false);
    browser.wait(DIALOG);
    browser.focus("Delete");
    browser.key("Enter", false);
    browser.wait("!document.querySelector('#rows').textContent.includes('photos')");
    assert!(!server.site().join("in/photos").exists());
    browser.evaluate("document.activeElement.blur()");
    browser.focus("Rename README.md");
    browser.key("Enter", false);
    browser.wait(DIALOG);
    browser.write("beach.jpg");
    browser.key("Enter", false);
    browser.wait("document.querySelector('dialog')?.textContent.includes('exists already')");
    browser.key("Escape", false);
    browser.wait("!document.querySelector('dialog')");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn without_scripts_a_form_uploads() {
    let server = server("");
    let mut browser = Browser::start();
    let off = serde_json::json!({"value": true});
    browser.call("Emulation.setScriptExecutionDisabled", off);
    browser.call("Page.navigate", serde_json::json!({"url": url(&server)}));
    browser.event("Page.loadEventFired");
    let (_folder, files) = local(&[("one", b"1"), ("two \"q\" \u{e4}", b"2")]);
    browser.choose("#files-to-upload", &files);
    browser.picture("no-script");
    browser.click("#upload button");
    browser.event("Page.loadEventFired");
    assert_eq!(read(&server, "one"), b"1");
    assert_eq!(read(&server, "two \"q\" \u{e4}"), b"2");
    assert_eq!(browser.evaluate("location.href"), url(&server));
    assert!(browser.text("#rows").contains("one"));
}

#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn pages_fit_phones_and_follow_the_colour_scheme() {
    let server = server("delete = true\noverwrite = true");
    let mut browser = open(&server);
    let large = pattern(6 << 20);
    let names: Vec<_> = (0..12)
        .map(|number| format!("holiday film {number}.mkv"))
        .collect();
    let files: Vec<_> = names.iter().map(|name| (&name[..], &large[..])).collect();
    let (_folder, files) = local(&files);
    browser.limit(2_000_000, false);
    browser.choose("#choose-files", &files);
    browser.wait("document.querySelector('.sum').textContent.includes('/s')");
    for (name, scheme, width, height) in [
        ("light", "light", 1280, 1000),
        ("dark", "dark", 1280, 1000),
        ("phone-light", "light", 390, 1100),
        ("phone-dark", "dark", 390, 1100),
        ("narrow", "light", 320, 1100),
    ] {
        browser.resize(width, height);
        browser.scheme(scheme);
        browser.wait("document.querySelector('.queue li')");
        browser.picture(name);
        let measured = browser.evaluate(MEASURED);
        assert_eq!(
            measured,
            serde_json::json!([true, true, scheme == "light"]),
            "{name}"
        );
    }
    browser.limit(-1, false);
    browser.wait(DONE);
    browser.resize(390, 1100);
    browser.wait("document.querySelector('#rows').textContent.includes('film 11')");
    browser.picture("phone-done");
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Whether everything fits into the window, and whether the text is darker than the background.
const MEASURED: &str = "(() => {
  const style = getComputedStyle(document.body);
  const bright = (color) =>
    color.match(/[\\d.]+/g).slice(0, 3).reduce((sum, it) => sum + +it, 0);
  const inside = [...document.querySelectorAll('button, progress, .sum')]
    .every((it) => it.getBoundingClientRect().right <= innerWidth + 1);
  const fits = document.documentElement.scrollWidth <= innerWidth;
  return [fits, inside, bright(style.color) < bright(style.backgroundColor)];
})()";

#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn leaving_is_warned_of_while_uploads_run() {
    let server = server("");
    let mut browser = open(&server);
    let (_folder, files) = local(&[("slow", &pattern(4 << 20))]);
    browser.limit(100_000, false);
    browser.click("#upload .tools");
    browser.choose("#choose-files", &files);
    browser.wait("document.querySelector('.queue li')");
    browser.begin("Page.reload", serde_json::json!({}));
    let warning = browser.event("Page.javascriptDialogOpening");
    assert_eq!(warning["type"], "beforeunload");
    browser.call(
        "Page.handleJavaScriptDialog",
        serde_json::json!({"accept": false}),
    );
    browser.limit(-1, false);
    browser.wait(DONE);
    assert_eq!(read(&server, "slow"), pattern(4 << 20));
}

/// Larger than one that is sent whole, and slow enough to be cut.
const LARGE_BYTES: usize = 24 << 20;

#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn a_large_file_goes_on_after_a_reload() {
    let server = server("");
    let mut browser = open(&server);
    let content = pattern(LARGE_BYTES);
    let (_folder, files) = local(&[("film.mkv", &content)]);
    browser.limit(4_000_000, false);
    browser.choose("#choose-files", &files);
    wait_until("a part of the file", || partial(&server) > Some(4 << 20));
    browser.begin("Page.reload", serde_json::json!({}));
    // Without a gesture of the user the browser does not ask.
    browser.wait("performance.getEntriesByType('navigation')[0].type === 'reload'");
    browser.wait("document.querySelector('#choose-files')");
    let kept = partial(&server).unwrap();
    assert!(kept < LARGE_BYTES as u64, "it was not cut");
    assert!(browser.text("#upload .note").contains("film.mkv"));
    browser.picture("unfinished");
    browser.evaluate(OFFSETS);
    browser.choose("#choose-files", &files);
    browser.limit(-1, false);
    browser.wait(DONE);
    assert_eq!(sha256(read(&server, "film.mkv")), sha256(&content));
    // Received bytes are not sent again.
    let offsets = browser.evaluate("offsets");
    assert!(offsets[0].as_u64() >= Some(kept), "{offsets} after {kept}");
    assert_eq!(browser.evaluate("Object.keys(localStorage).length"), 0);
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Notes the offsets from which the page sends.
const OFFSETS: &str = "window.offsets = []; (() => {
  const set = XMLHttpRequest.prototype.setRequestHeader;
  XMLHttpRequest.prototype.setRequestHeader = function (name, value) {
    if (name === 'Upload-Offset') offsets.push(Number(value));
    return set.call(this, name, value);
  };
})()";

/// The size of the largest partial file.
fn partial(server: &Server) -> Option<u64> {
    let uploads = fs::read_dir(server.site().join(".underpass-uploads")).ok()?;
    let sizes = uploads.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()));
    sizes.max()
}

#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn a_large_file_goes_on_after_a_pause_and_when_the_network_is_back() {
    let server = server("");
    let mut browser = open(&server);
    let content = pattern(LARGE_BYTES);
    let (_folder, files) = local(&[("sub.film.mkv", &content)]);
    browser.evaluate(OFFSETS);
    browser.limit(4_000_000, false);
    browser.choose("#choose-files", &files);
    wait_until("a part of the file", || partial(&server) > Some(2 << 20));
    browser.focus("Pause sub.film.mkv");
    browser.key("Enter", false);
    browser.wait("document.querySelector('.queue li.paused')");
    browser.picture("paused");
    browser.focus("Resume sub.film.mkv");
    browser.key("Enter", false);
    browser.wait("offsets.length === 2");
    wait_until("another part", || partial(&server) > Some(6 << 20));
    browser.limit(4_000_000, true);
    browser.wait("document.querySelector('.queue li.retrying')");
    browser.picture("no-network");
    browser.limit(-1, false);
    browser.wait(DONE);
    assert_eq!(sha256(read(&server, "sub.film.mkv")), sha256(&content));
    let offsets = browser.evaluate("offsets");
    let offsets: Vec<_> = offsets
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_u64().unwrap())
        .collect();
    assert!(
        offsets.is_sorted_by(|one, other| one < other),
        "{offsets:?}"
    );
    assert_eq!(offsets.len(), 3, "{offsets:?}");
}

#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn large_files_of_folders_and_taken_names_are_like_small_ones() {
    let server = server("overwrite = true");
    let content = pattern(9 << 20);
    server.write("in/tree/sub/large \u{e4}", "before");
    let mut browser = open(&server);
    let (folder, _) = local(&[
        ("tree/sub/large \u{e4}", &content),
        ("tree/sub/new", &content),
    ]);
    let tree = [folder.path().join("tree")];
    for answer in ["rename", "replace"] {
        browser.drag(&tree, &["dragEnter", "dragOver", "drop"]);
        browser.wait(DIALOG);
        browser.click("#for-all");
        browser.click(&format!("dialog button[value={answer}]"));
        browser.wait(DONE);
    }
    for name in ["large \u{e4}", "large \u{e4} (1)", "new", "new (1)"] {
        let is_there = name != "new (1)";
        let path = server.site().join("in/tree/sub").join(name);
        assert_eq!(path.exists(), is_there, "{name}");
        assert!(!is_there || fs::read(path).unwrap() == content, "{name}");
    }
    // Cancelling removes the partial file.
    browser.limit(2_000_000, false);
    browser.choose("#choose-files", &[folder.path().join("tree/sub/new")]);
    wait_until("a part of the file", || partial(&server) > Some(1 << 20));
    browser.focus("Cancel new");
    browser.key("Enter", false);
    wait_until("its end", || partial(&server).is_none());
    assert_eq!(browser.evaluate("Object.keys(localStorage).length"), 0);
    assert_eq!(browser.complaints(), [""; 0]);
}

/// The configuration that docs/uploads.md gives for nginx, passing `/files/` to `/in/`.
fn nginx_server(listen: SocketAddr, server: &Server) -> String {
    let page = include_str!("../../../../docs/uploads.md");
    let (_, section) = page.split_once("\n## Behind nginx\n").unwrap();
    let (location, _) = section.split_once("\n    }\n").unwrap();
    let location = location
        .replace("location / {", "location /files/ {")
        .replace("127.0.0.1:8080", &format!("{}/in/", server.address()));
    format!("server {{ listen {listen}; {location} }} }}")
}

#[test]
#[ignore = "needs chromium and nginx-light; run by cargo xtask test"]
fn the_page_works_behind_nginx_that_removes_a_prefix() {
    let server = server("delete = true");
    let home = tempfile::tempdir().unwrap();
    let listen = free_address();
    let more = nginx_server(listen, &server);
    let _nginx = Nginx::start(home.path(), home.path(), &more);
    wait_until("nginx", || TcpStream::connect(listen).is_ok());
    let mut browser = Browser::start();
    browser.go(&format!("http://{listen}/files/"));
    browser.wait("document.querySelector('#choose-files')");
    let content = pattern(LARGE_BYTES);
    let (_folder, files) = local(&[("film.mkv", &content), ("small", b"small")]);
    browser.choose("#choose-files", &files);
    browser.wait(DONE);
    assert_eq!(sha256(read(&server, "film.mkv")), sha256(&content));
    assert_eq!(read(&server, "small"), b"small");
    browser.wait("document.querySelector('#rows').textContent.includes('film.mkv')");
    browser.focus("Rename small");
    browser.key("Enter", false);
    browser.wait(DIALOG);
    browser.write("renamed");
    browser.key("Enter", false);
    browser.wait("document.querySelector('#rows').textContent.includes('renamed')");
    assert_eq!(read(&server, "renamed"), b"small");
    // The form, too: nginx passes on what the browser says of its origin.
    let off = serde_json::json!({"value": true});
    browser.call("Emulation.setScriptExecutionDisabled", off);
    browser.call("Page.reload", serde_json::json!({}));
    browser.wait("!document.querySelector('#choose-files')");
    let (_folder, files) = local(&[("by-form", &content[..3 << 20])]);
    browser.choose("#files-to-upload", &files);
    browser.click("#upload button");
    browser.wait("document.querySelector('#rows').textContent.includes('by-form')");
    assert!(read(&server, "by-form") == content[..3 << 20]);
    assert_eq!(browser.evaluate("location.pathname"), "/files/");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn an_uploaded_index_does_not_get_into_the_page() {
    let server = server("");
    let mut browser = open(&server);
    browser.evaluate(
        "window.refreshed = []; const real = fetch; window.fetch = async (...terms) => {
           const answer = await real(...terms); refreshed.push(answer.status); return answer; }",
    );
    let index = "<main id=\"files\">planted</main><p id=\"count\">planted</p>";
    let (_folder, files) = local(&[("index.html", index.as_bytes()), ("a", b"a")]);
    browser.choose("#choose-files", &files);
    browser.wait(DONE);
    browser.wait("refreshed.includes(200)");
    // The answer has been looked at once the page has done something else.
    browser.evaluate("new Promise((done) => setTimeout(done, 0))");
    assert!(!browser.text("body").contains("planted"));
    assert!(browser.text("#rows").contains("old.txt"));
}

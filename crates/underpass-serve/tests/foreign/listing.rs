//! Listings as shown by a browser. Screenshots are left in `target/tmp/listing`, in the folder for
//! temporary files of the tests.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::Server;

/// Starts a site with a realistic folder.
fn site() -> Server {
    let server = Server::start();
    for folder in ["photos", "music", "backups 2026", "src"] {
        server.write(format!("shelf/{folder}/f"), "f");
    }
    for (name, size) in [
        ("README.md", 2_140),
        ("beach.jpg", 3_400_000),
        ("song.flac", 14 << 20),
        ("chapter 1.pdf", 184_320),
        ("chapter 2.pdf", 1_310_720),
        ("chapter 10.pdf", 96_000),
        ("holiday film.mkv", 24 << 20),
        ("disk-image.iso.zst", 9 << 20),
        ("notes.txt", 12),
        ("empty", 0),
        (
            "\u{dc}bersicht \u{2014} \u{65e5}\u{672c}\u{8a9e}.html",
            5_120,
        ),
        (
            "a rather long name of a file that somebody downloaded (1) (final) (final2).tar.gz",
            777_216,
        ),
    ] {
        server.write(format!("shelf/{name}"), vec![b'x'; size]);
    }
    server
}

/// Runs the browser in a time zone 5½ hours ahead of UTC, on pages that belong to the test.
fn chromium(options: &[&str], url: &str) -> Vec<u8> {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .env("TZ", "Asia/Kolkata")
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ])
        .args([
            "--no-first-run",
            "--disable-background-networking",
            "--disable-sync",
        ])
        .args([
            "--disable-component-update",
            "--virtual-time-budget=3000",
            "--timeout=20000",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(options)
        .arg(url)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

fn pictures() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("listing");
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn dom(server: &Server, target: &str) -> String {
    let url = format!("http://{}{target}", server.address());
    let dom = chromium(&["--dump-dom"], &url);
    String::from_utf8(dom).unwrap()
}

/// Writes a copy of a listing without its script next to the folder: a headless browser with
/// scripts disabled cannot dump a page.
fn without_script(server: &Server, target: &str) -> &'static str {
    let page = String::from_utf8(server.get(target).body).unwrap();
    let (before, rest) = page.split_once("<script>").unwrap();
    let (_, after) = rest.split_once("</script>").unwrap();
    server.write("no-script.html", [before, after].concat());
    "/no-script.html"
}

#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn rows_labels_and_links_are_there_with_and_without_scripts() {
    let server = site();
    let target = "/shelf/?sort=date";
    for (target, class) in [
        (target, "class=\"live\""),
        (without_script(&server, target), "<body>"),
    ] {
        let dom = dom(&server, target);
        assert_eq!(dom.matches("<tr><th scope=\"row\">").count(), 16, "{dom}");
        for part in [
            "<caption>Folders and files</caption>",
            "<label for=\"search\">",
            "aria-sort=\"ascending\"",
            "href=\"?sort=size&amp;order=asc\"",
            "name=\"download\" value=\"tar\"",
            "<html lang=\"en\">",
            "12 files",
        ] {
            assert!(dom.contains(part), "{part}: {dom}");
        }
        // The script has run, which shows that the policy allows it.
        assert!(dom.contains(class), "{dom}");
    }
}

#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn times_are_the_viewers_and_without_the_script_in_utc() {
    let server = site();
    let target = "/shelf/?sort=date";
    for (target, time, zone) in [
        (target, "1994-11-06 14:19", "Times are in Asia/"),
        (
            without_script(&server, target),
            "1994-11-06 08:49",
            "Times are in UTC",
        ),
    ] {
        let dom = dom_with(&server, target, |dom| dom.contains(zone));
        assert_eq!(dom.matches(time).count(), 12, "{dom}");
        assert!(dom.contains("datetime=\"1994-11-06T08:49:37.123456789Z\""));
    }
}

#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn a_phone_shows_dates_and_sorts_within_its_window() {
    let server = site();
    server.write("shelf/phone.html", PHONE);
    let dom = dom_with(&server, "/shelf/phone.html", is_finished);
    assert!(
        dom.contains("<output>Name, Size, Modified; 0 outside; 0 hidden</output>"),
        "{dom}"
    );
}

/// Renders the listing's own style and rows in a column as narrow as a phone, and counts cells
/// outside of it and invisible ones.
const PHONE: &str = r##"<!DOCTYPE html><meta charset="utf-8"><output></output><script>
(async () => {
  const answer = await fetch("./");
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const style = page.querySelector("style");
  const phone = style.textContent.replace("(max-width: 40rem)", "all");
  style.textContent = phone + "body { width: 336px }";
  document.head.append(style);
  const output = document.querySelector("output");
  document.body.append(...page.body.children);
  const end = document.body.getBoundingClientRect().right;
  const cells = [...document.querySelectorAll("thead a, tbody th, tbody td")];
  const full = cells.filter((cell) => cell.textContent);
  const boxes = full.map((cell) => cell.getBoundingClientRect());
  output.textContent = [...document.querySelectorAll("thead a")]
    .map((head) => head.firstChild.textContent).join(", ") + "; " +
    boxes.filter((box) => box.right > end).length + " outside; " +
    boxes.filter((box) => box.width < 20 || box.height < 15).length + " hidden";
})();
</script>"##;

/// Typing into the search box of the listing's content, in a page of the test.
#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn typing_filters_the_rows() {
    let server = site();
    server.write("shelf/typed.html", TYPED);
    let dom = dom_with(&server, "/shelf/typed.html", is_finished);
    assert!(
        dom.contains(
            "<output>chapter 1.pdf, chapter 2.pdf, chapter 10.pdf / 3 of 17 shown</output>"
        ),
        "{dom}"
    );
}

/// Returns whether the script of a page of the test has finished.
fn is_finished(dom: &str) -> bool {
    !dom.contains("<output></output>")
}

/// Dumps a page until it is complete: the browser dumps it once it has loaded, which on a busy
/// machine may be before the script has finished.
fn dom_with(server: &Server, target: &str, is_complete: impl Fn(&str) -> bool) -> String {
    let mut tries = (0..TRIES_MAX).map(|_| dom(server, target));
    let dom = tries.find(|dom| is_complete(dom));
    dom.expect("the script comes to its end")
}

/// Each attempt takes a second or two.
const TRIES_MAX: usize = 10;

/// Runs the listing's own script in a document with the same content, since frames are forbidden.
const TYPED: &str = r##"<!DOCTYPE html><meta charset="utf-8"><output></output><script>
(async () => {
  const answer = await fetch("./");
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const output = document.querySelector("output");
  const script = page.querySelector("script").textContent;
  document.body.append(...page.body.children);
  eval(script);
  const input = document.getElementById("search");
  input.value = "CHAPTER";
  input.dispatchEvent(new Event("input"));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const rows = [...document.querySelectorAll("#rows tr:not(.up)")].filter((row) => !row.hidden);
  output.textContent = rows.map((row) => row.querySelector("bdi").textContent).join(", ") +
    " / " + document.getElementById("count").textContent;
})();
</script>"##;

/// The colours follow the viewer's scheme, a narrow window shows whole lines, and inputs and
/// buttons have the same font weight.
#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn a_dark_scheme_is_dark_and_a_phone_shows_the_whole_width() {
    let server = site();
    server.write("shelf/measured.html", MEASURED);
    let url = format!("http://{}/shelf/measured.html", server.address());
    for (scheme, size, expected) in [
        (0, "1280,1000", "dark on dark, fits, one weight"),
        (1, "1280,1000", "light on light, fits, one weight"),
        (1, "500,1000", "light on light, fits, one weight"),
        (0, "500,1000", "dark on dark, fits, one weight"),
    ] {
        let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
        let size = format!("--window-size={size}");
        let mut tries = (0..TRIES_MAX).map(|_| {
            let dom = chromium(&["--dump-dom", &scheme, &size], &url);
            String::from_utf8(dom).unwrap()
        });
        let dom = tries.find(|dom| !dom.contains("<output></output>"));
        let dom = dom.expect("the script comes to its end");
        let expected = format!("<output>{expected}</output>");
        assert!(dom.contains(&expected), "{scheme} {size}: {dom}");
    }
}

/// Measures the listing in a document with the same content and style: whether the backgrounds of
/// the page and of an input are brighter or darker than the text, whether anything is wider than
/// the window, and whether search box, button and the link styled as a button are equally bold.
const MEASURED: &str = r##"<!DOCTYPE html><meta charset="utf-8"><output></output><script>
(async () => {
  const answer = await fetch("./");
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  document.head.append(...page.head.children);
  const output = document.querySelector("output");
  document.body.append(...page.body.children);
  const bright = (color) => color.match(/[\d.]+/g).slice(0, 3).reduce((sum, it) => sum + +it, 0);
  const scheme = (element) => {
    const style = getComputedStyle(element);
    return bright(style.backgroundColor) > bright(style.color) ? "light" : "dark";
  };
  const root = document.documentElement;
  const pressed = ["#search", "button", ".button"].map((it) => document.querySelector(it));
  const weights = new Set(pressed.map((it) => getComputedStyle(it).fontWeight));
  output.textContent = scheme(document.body) + " on " + scheme(document.getElementById("search")) +
    ", " + (root.scrollWidth <= root.clientWidth ? "fits" : "overflows") +
    ", " + (weights.size === 1 ? "one weight" : [...weights].join(" and "));
})();
</script>"##;

#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn pictures_for_people_to_look_at() {
    let server = site();
    let (light, dark) = (
        "--blink-settings=preferredColorScheme=1",
        "--blink-settings=preferredColorScheme=0",
    );
    let plain = without_script(&server, "/shelf/?search=chapter&sort=size&order=desc");
    for (name, target, size, more) in [
        ("light", "/shelf/", "1280,1000", light),
        ("dark", "/shelf/", "1280,1000", dark),
        (
            "phone",
            "/shelf/",
            "500,1000",
            "--force-device-scale-factor=2",
        ),
        ("no-script", plain, "1280,700", light),
        ("root", "/", "1280,500", dark),
        (
            "nothing",
            "/shelf/?search=nothing+like+it",
            "1280,500",
            light,
        ),
    ] {
        let picture = pictures().join(format!("{name}.png"));
        let _ = fs::remove_file(&picture);
        let url = format!("http://{}{target}", server.address());
        let taken = format!("--screenshot={}", picture.display());
        chromium(&[&taken, &format!("--window-size={size}"), more], &url);
        let length = fs::metadata(&picture).unwrap().len();
        assert!(length > 5_000, "{name} is empty: {length}");
    }
}

//! A listing for people: one page without anything from elsewhere. All of it works without the
//! script, which filters the rows during typing.

use std::borrow::Cow;
use std::io::Write as _;
use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

use crate::body::listing::view::{ListingTotals, ListingView, Sorting};
use crate::http::calendar::Moment;
use crate::request::path::encoded;
use crate::request::query::{SortDirection, SortKey};
use crate::site::folder::{FolderEntry, FolderEntryKind};
use crate::site::rules::Offer;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const ICONS: &str = include_str!("icons.svg");

/// Nothing is loaded, and nothing is run or styled but what this program put into the page:
/// whatever a name contains.
pub(crate) static CONTENT_SECURITY_POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |content: &str| BASE64_STANDARD.encode(Sha256::digest(content));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

/// What stands before anything is read: head, where we are, the search.
pub(crate) fn open(out: &mut Vec<u8>, view: &ListingView) {
    let name = String::from_utf8_lossy(view.path.name());
    let title = if name.is_empty() { "Files" } else { &*name };
    push(
        out,
        &[
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>",
            &escaped(title),
            "</title>\n<style>",
            STYLE,
            "</style>\n</head>\n<body>\n",
            ICONS,
            "<a class=\"skip\" href=\"#files\">Skip to the files</a>\n<header>\n",
        ],
    );
    crumbs(out, view);
    tools(out, view);
    push(out, &["</header>\n<main id=\"files\" tabindex=\"-1\">\n"]);
}

/// The way from the root to here: the last one is where we are.
fn crumbs(out: &mut Vec<u8>, view: &ListingView) {
    let path = view.path.bytes();
    let segments: Vec<_> = path
        .split(|&byte| byte == b'/')
        .filter(|segment| !segment.is_empty())
        .collect();
    push(out, &["<nav aria-label=\"Folders above\">\n<ol>"]);
    let names = std::iter::once(&b"Files"[..]).chain(segments.iter().copied());
    for (depth, name) in names.enumerate() {
        let shown = escaped_lossy(name);
        match segments.len() - depth {
            0 => push(
                out,
                &[
                    "<li><h1 aria-current=\"page\"><bdi>",
                    &shown,
                    "</bdi></h1></li>",
                ],
            ),
            up => push(
                out,
                &[
                    "<li><a href=\"",
                    &"../".repeat(up),
                    "\"><bdi>",
                    &shown,
                    "</bdi></a></li>",
                ],
            ),
        }
    }
    push(out, &["</ol>\n</nav>\n"]);
}

fn tools(out: &mut Vec<u8>, view: &ListingView) {
    push(
        out,
        &[
            "<div class=\"tools\">\n<form role=\"search\">\n\
         <label for=\"search\">Search this folder</label>\n\
         <input id=\"search\" name=\"search\" type=\"search\" placeholder=\"Search this folder\" \
         autocomplete=\"off\" spellcheck=\"false\" value=\"",
            &escaped_lossy(&view.search),
            "\">\n",
        ],
    );
    if view.order.key != SortKey::Name || view.order.direction != SortDirection::Ascending {
        let (sort, order) = (view.order.key.name(), view.order.direction.name());
        push(
            out,
            &[
                "<input type=\"hidden\" name=\"sort\" value=\"",
                sort,
                "\">",
                "<input type=\"hidden\" name=\"order\" value=\"",
                order,
                "\">\n",
            ],
        );
    }
    push(out, &["<button>Search</button>\n</form>\n"]);
    if view.archives == Offer::On {
        push(
            out,
            &[
                "<a class=\"button\" href=\"?download=tar\" download>",
                "<svg aria-hidden=\"true\"><use href=\"#i-save\"/></svg>",
                "<span>Download folder</span></a>\n",
            ],
        );
    }
    push(out, &["</div>\n"]);
}

/// What stands before the first row.
pub(crate) fn begin(out: &mut Vec<u8>, view: &ListingView, sorting: Sorting) {
    if sorting == Sorting::Unsorted {
        push(
            out,
            &[
                "<p class=\"note\">This folder is too large to be sorted: its entries are in the \
             order in which they are stored.</p>\n",
            ],
        );
    }
    if !view.search.is_empty() {
        push(
            out,
            &[
                "<p class=\"note\">Names that contain <q>",
                &escaped_lossy(&view.search),
                "</q>. <a href=\"?",
                &sort_query(
                    view,
                    view.order.key,
                    view.order.direction,
                    Searched::Dropped,
                ),
                "\">Show all</a></p>\n",
            ],
        );
    }
    push(
        out,
        &["<table>\n<caption>Folders and files</caption>\n<thead>\n<tr>"],
    );
    for key in SortKey::ALL {
        column(out, view, key, sorting);
    }
    push(out, &["</tr>\n</thead>\n<tbody id=\"rows\">\n"]);
    if !view.path.bytes().is_empty() {
        push(
            out,
            &[
                "<tr class=\"up\"><th scope=\"row\"><a href=\"../\">",
                "<svg aria-hidden=\"true\"><use href=\"#i-up\"/></svg>",
                "<span>Parent folder</span></a></th><td></td><td></td></tr>\n",
            ],
        );
    }
}

/// The head of a column: a link that sorts by it, the other way round where it is sorted already.
fn column(out: &mut Vec<u8>, view: &ListingView, key: SortKey, sorting: Sorting) {
    let (label, class) = match key {
        SortKey::Name => ("Name", "name"),
        SortKey::Size => ("Size", "size"),
        SortKey::Date => ("Modified", "date"),
    };
    let order = view.order;
    let is_sorted = sorting == Sorting::Sorted && order.key == key;
    let (sorted, mark) = match order.direction {
        _ if !is_sorted => ("", ""),
        SortDirection::Ascending => (" aria-sort=\"ascending\"", " \u{2191}"),
        SortDirection::Descending => (" aria-sort=\"descending\"", " \u{2193}"),
    };
    let next = match is_sorted {
        true => order.direction.reversed(),
        false => SortDirection::Ascending,
    };
    push(
        out,
        &[
            "<th scope=\"col\" class=\"",
            class,
            "\"",
            sorted,
            "><a href=\"?",
            &sort_query(view, key, next, Searched::Kept),
            "\">",
            label,
            "<span aria-hidden=\"true\">",
            mark,
            "</span></a></th>",
        ],
    );
}

/// What becomes of the search in a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Searched {
    Kept,
    Dropped,
}

/// A query, escaped for an attribute.
fn sort_query(
    view: &ListingView,
    key: SortKey,
    direction: SortDirection,
    searched: Searched,
) -> String {
    let mut query = format!("sort={}&amp;order={}", key.name(), direction.name());
    if searched == Searched::Kept && !view.search.is_empty() {
        query.push_str("&amp;search=");
        query.extend(encoded(&view.search));
    }
    query
}

/// One row.
pub(crate) fn row(out: &mut Vec<u8>, entry: &FolderEntry) {
    let (class, icon, slash) = match entry.kind {
        FolderEntryKind::Folder => ("folder", "#i-folder", "/"),
        FolderEntryKind::File { .. } => ("file", "#i-file", ""),
    };
    push(out, &["<tr><th scope=\"row\"><a href=\"./"]);
    for part in encoded(&entry.name) {
        push(out, &[part]);
    }
    push(
        out,
        &[
            slash,
            "\" class=\"",
            class,
            "\"><svg aria-hidden=\"true\"><use href=\"",
            icon,
            "\"/></svg><bdi>",
            &escaped_lossy(&entry.name),
            slash,
            "</bdi></a></th>",
        ],
    );
    match entry.kind {
        FolderEntryKind::Folder => push(out, &["<td></td>"]),
        FolderEntryKind::File { size } => push(
            out,
            &[
                "<td title=\"",
                &grouped(size),
                &plural(size, " byte"),
                "\">",
                &human(size),
                "</td>",
            ],
        ),
    }
    let moment = Moment::of(entry.changed);
    // Writing into memory cannot fail.
    let _ = writeln!(
        out,
        "<td><time datetime=\"{moment}\" title=\"{moment}\">{}</time></td></tr>",
        moment.minutes()
    );
}

/// What stands behind the last row.
pub(crate) fn close(out: &mut Vec<u8>, view: &ListingView, tally: ListingTotals) {
    push(out, &["</tbody>\n</table>\n"]);
    let none = match (tally.entries(), view.search.is_empty()) {
        (0, true) => "This folder is empty.",
        (0, false) => "No name here contains that.",
        _ => "Nothing matches.",
    };
    let hidden = if tally.entries() == 0 { "" } else { " hidden" };
    push(
        out,
        &[
            "<p id=\"none\" class=\"none\"",
            hidden,
            ">",
            none,
            "</p>\n</main>\n<footer>\n",
        ],
    );
    let (folders, files) = (tally.folders, tally.files);
    push(
        out,
        &[
            "<p id=\"count\" role=\"status\">",
            &grouped(folders),
            &plural(folders, " folder"),
            ", ",
            &grouped(files),
            &plural(files, " file"),
            ", <span title=\"",
            &grouped(tally.bytes),
            &plural(tally.bytes, " byte"),
            "\">",
            &human(tally.bytes),
            "</span></p>\n<p>Times are in UTC</p>\n</footer>\n<script>",
            SCRIPT,
            "</script>\n</body>\n</html>\n",
        ],
    );
}

fn push(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Text as it may stand in HTML, in attributes too.
fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>', '"', '\'']) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

fn escaped_lossy(name: &[u8]) -> String {
    escaped(&String::from_utf8_lossy(name)).into_owned()
}

/// `1.2 MiB`, `340 B`: three digits at the most where there is a unit.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    // What would be rounded to 1024 is shown as 1 of the next unit.
    while size >= 1023.5 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ if size < 9.95 => format!("{size:.1} {}", UNITS[unit]),
        _ => format!("{size:.0} {}", UNITS[unit]),
    }
}

/// `1,234,567`
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn plural(number: u64, word: &str) -> String {
    match number {
        1 => word.to_owned(),
        _ => format!("{word}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        for (bytes, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (10_188, "9.9 KiB"),
            (10_200, "10 KiB"),
            (1_048_063, "1023 KiB"),
            (1_048_575, "1.0 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(human(bytes), shown, "{bytes}");
        }
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn no_name_leaves_its_place() {
        let mut out = Vec::new();
        let entry = FolderEntry {
            name: b"a\"><script>&'\xff:#?%/".to_vec(),
            kind: FolderEntryKind::File { size: 1 },
            changed: crate::http::validator::FileTime {
                seconds: 0,
                nanoseconds: 0,
            },
        };
        row(&mut out, &entry);
        let row = String::from_utf8(out).unwrap();
        let link = "href=\"./a%22%3E%3Cscript%3E%26%27%FF:%23%3F%25%2F\"";
        assert!(row.contains(link), "{row}");
        let shown = "<bdi>a&quot;&gt;&lt;script&gt;&amp;&#39;\u{fffd}:#?%/</bdi>";
        assert!(row.contains(shown), "{row}");
        assert!(row.contains("title=\"1 byte\""), "{row}");
    }

    #[test]
    fn what_is_hashed_cannot_end_its_element() {
        assert!(!STYLE.contains("</") && !SCRIPT.contains("</"));
    }
}

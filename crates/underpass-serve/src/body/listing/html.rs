//! A listing for people: a single page without external resources. Everything works without the
//! script, which filters the rows during typing and shows times in the viewer's time zone. Readers
//! who may put files into the folder get a form for that (`upload_form`).

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use underpass_http::calendar::{minutes, rfc3339};
use underpass_http::path::encoded;

use crate::access::links::PARAMETER as SIGNED;
use crate::body::listing::embedded::{self, ICONS, SCRIPT, STYLE};
use crate::body::listing::upload_form;
use crate::body::listing::view::{ListingTotals, ListingView, Sorting, is_invisible};
use crate::body::query::{SortDirection, SortKey, SortOrder};
use crate::rules::Offer;
use crate::site::folder::{FolderEntry, FolderEntryKind};

/// Writes the part before the folder is read: head, breadcrumbs and search.
pub(crate) fn open(out: &mut Vec<u8>, view: &ListingView) -> io::Result<()> {
    let title = match view.path.name() {
        b"" => b"Files",
        name => name,
    };
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n\
         <style>{STYLE}</style>\n",
        shown(title)
    )?;
    if view.changes.is_some() {
        writeln!(out, "<style>{}</style>", embedded::UPLOAD_STYLE)?;
    }
    write!(out, "</head>\n<body>\n{ICONS}")?;
    if view.changes.is_some() {
        out.extend_from_slice(embedded::UPLOAD_ICONS.as_bytes());
    }
    write!(
        out,
        "<a class=\"skip\" href=\"#files\">Skip to the files</a>\n<header>\n"
    )?;
    crumbs(out, view)?;
    tools(out, view)?;
    writeln!(out, "</header>")?;
    if let Some(changes) = view.changes {
        upload_form::write(out, changes)?;
    }
    writeln!(out, "<main id=\"files\" tabindex=\"-1\">")
}

/// Writes the path from the root, or from the signed folder; the last segment is the listed folder.
fn crumbs(out: &mut Vec<u8>, view: &ListingView) -> io::Result<()> {
    let segments = view.path.names().count();
    write!(out, "<nav aria-label=\"Folders above\">\n<ol>")?;
    let names = std::iter::once(&b"Files"[..]).chain(view.path.names());
    for (depth, name) in names.enumerate().skip(view.top) {
        let shown = shown(name);
        match "../".repeat(segments - depth).as_str() {
            "" => write!(
                out,
                "<li><h1 aria-current=\"page\"><bdi>{shown}</bdi></h1></li>"
            )?,
            up => {
                let signed = signed(view, "?");
                write!(
                    out,
                    "<li><a href=\"{up}{signed}\"><bdi>{shown}</bdi></a></li>"
                )?;
            }
        }
    }
    write!(out, "</ol>\n</nav>\n")
}

fn tools(out: &mut Vec<u8>, view: &ListingView) -> io::Result<()> {
    write!(
        out,
        "<div class=\"tools\">\n<form role=\"search\">\n\
         <label for=\"search\">Search this folder</label>\n\
         <input id=\"search\" name=\"search\" type=\"search\" placeholder=\"Search this folder\" \
         autocomplete=\"off\" spellcheck=\"false\" value=\"{}\">\n",
        escaped(&view.query.search)
    )?;
    if (view.query.order().key, view.query.order().direction)
        != (SortKey::Name, SortDirection::Ascending)
    {
        let (sort, order) = (
            view.query.order().key.name(),
            view.query.order().direction.name(),
        );
        writeln!(
            out,
            "<input type=\"hidden\" name=\"sort\" value=\"{sort}\">\
             <input type=\"hidden\" name=\"order\" value=\"{order}\">"
        )?;
    }
    if let Some(signed) = &view.query.signed {
        writeln!(
            out,
            "<input type=\"hidden\" name=\"{SIGNED}\" value=\"{signed}\">"
        )?;
    }
    write!(out, "<button>Search</button>\n</form>\n")?;
    if view.archives == Offer::On {
        // A form rather than a link, because tools that mirror a site follow links.
        write!(out, "<form>")?;
        if let Some(signed) = &view.query.signed {
            write!(
                out,
                "<input type=\"hidden\" name=\"{SIGNED}\" value=\"{signed}\">"
            )?;
        }
        writeln!(
            out,
            "<button class=\"button\" name=\"download\" value=\"tar\">\
             <svg aria-hidden=\"true\"><use href=\"#i-save\"/></svg>\
             <span>Download folder</span></button></form>"
        )?;
    }
    writeln!(out, "</div>")
}

/// Writes the part before the first row.
pub(crate) fn begin(out: &mut Vec<u8>, view: &ListingView, sorting: Sorting) -> io::Result<()> {
    if sorting == Sorting::Unsorted {
        writeln!(
            out,
            "<p class=\"note\">This folder is too large to be sorted: its entries are in the \
             order in which they are stored.</p>"
        )?;
    }
    if !view.query.search.is_empty() {
        writeln!(
            out,
            "<p class=\"note\">Names that contain <q>{}</q>. <a href=\"?{}\">Show all</a></p>",
            shown(&view.query.search),
            sort_query(view, view.query.order(), b"")
        )?;
    }
    write!(
        out,
        "<table>\n<caption>Folders and files</caption>\n<thead>\n<tr>"
    )?;
    for key in SortKey::ALL {
        column(out, view, key, sorting)?;
    }
    write!(out, "</tr>\n</thead>\n<tbody id=\"rows\">\n")?;
    if view.path.names().count() > view.top {
        writeln!(
            out,
            "<tr class=\"up\"><th scope=\"row\"><a href=\"../{}\">\
             <svg aria-hidden=\"true\"><use href=\"#i-up\"/></svg>\
             <span>Parent folder</span></a></th><td></td><td></td></tr>",
            signed(view, "?")
        )?;
    }
    Ok(())
}

/// Writes a column header: a link that sorts by it, or reverses the order if sorted by it already.
fn column(out: &mut Vec<u8>, view: &ListingView, key: SortKey, sorting: Sorting) -> io::Result<()> {
    let (label, class) = match key {
        SortKey::Name => ("Name", "name"),
        SortKey::Size => ("Size", "size"),
        SortKey::Date => ("Modified", "date"),
    };
    let order = view.query.order();
    let is_sorted = sorting == Sorting::Sorted && order.key == key;
    let (sorted, mark) = match order.direction {
        _ if !is_sorted => ("", ""),
        SortDirection::Ascending => (" aria-sort=\"ascending\"", " \u{2191}"),
        SortDirection::Descending => (" aria-sort=\"descending\"", " \u{2193}"),
    };
    let direction = match is_sorted {
        true => order.direction.reversed(),
        false => SortDirection::Ascending,
    };
    let query = sort_query(view, SortOrder { key, direction }, &view.query.search);
    write!(
        out,
        "<th scope=\"col\" class=\"{class}\"{sorted}><a href=\"?{query}\" rel=\"nofollow\">\
         {label}<span aria-hidden=\"true\">{mark}</span></a></th>"
    )
}

/// Returns a query, escaped for an attribute.
fn sort_query(view: &ListingView, order: SortOrder, search: &[u8]) -> String {
    let (key, direction) = (order.key.name(), order.direction.name());
    let mut query = format!("sort={key}&amp;order={direction}");
    if !search.is_empty() {
        query.push_str("&amp;search=");
        query.extend(encoded(search));
    }
    query + &signed(view, "&amp;")
}

/// Returns the parameter that links need on a page read by a signed link, after `before`.
fn signed(view: &ListingView, before: &str) -> String {
    let signed = view.query.signed.as_ref();
    signed.map_or_else(String::new, |signed| format!("{before}{SIGNED}={signed}"))
}

/// Writes a row.
pub(crate) fn row(out: &mut Vec<u8>, view: &ListingView, entry: &FolderEntry) -> io::Result<()> {
    let (class, icon, slash) = match entry.kind {
        FolderEntryKind::Folder => ("folder", "folder", "/"),
        FolderEntryKind::File { .. } => ("file", icon(&entry.name), ""),
    };
    write!(out, "<tr><th scope=\"row\"><a href=\"./")?;
    for part in encoded(&entry.name) {
        out.extend_from_slice(part.as_bytes());
    }
    write!(
        out,
        "{slash}{}\" class=\"{class}\"><svg aria-hidden=\"true\"><use href=\"#i-{icon}\"/></svg>\
         <bdi>{}{slash}</bdi></a></th>",
        signed(view, "?"),
        shown(&entry.name)
    )?;
    match entry.kind {
        FolderEntryKind::Folder => write!(out, "<td></td>")?,
        FolderEntryKind::File { size } => write!(
            out,
            "<td title=\"{}\">{}</td>",
            counted(size, "byte"),
            human(size)
        )?,
    }
    let moment = rfc3339(entry.changed);
    writeln!(
        out,
        "<td><time datetime=\"{moment}\" title=\"{moment}\">{}</time></td></tr>",
        minutes(entry.changed)
    )
}

/// Writes the part after the last row.
pub(crate) fn close(
    out: &mut Vec<u8>,
    view: &ListingView,
    totals: ListingTotals,
) -> io::Result<()> {
    let (none, hidden) = match (totals.entries(), view.query.search.is_empty()) {
        (0, true) => ("This folder is empty.", ""),
        (0, false) => ("No name here contains that.", ""),
        _ => ("Nothing matches.", " hidden"),
    };
    write!(
        out,
        "</tbody>\n</table>\n<p id=\"none\" class=\"none\"{hidden}>{none}</p>\n</main>\n<footer>\n\
         <p id=\"count\" role=\"status\">{}, {}, <span title=\"{}\">{}</span></p>\n\
         <p id=\"zone\">Times are in UTC</p>\n</footer>\n\
         <script>{SCRIPT}</script>\n",
        counted(totals.folders, "folder"),
        counted(totals.files, "file"),
        counted(totals.bytes, "byte"),
        human(totals.bytes)
    )?;
    if view.changes.is_some() {
        writeln!(out, "<script>{}</script>", embedded::UPLOAD_SCRIPT)?;
    }
    write!(out, "</body>\n</html>\n")
}

/// Returns the icon for a file, by the type its name implies.
fn icon(name: &[u8]) -> &'static str {
    let name = Path::new(OsStr::from_bytes(name));
    let media = mime_guess::from_path(name).first_raw().unwrap_or("");
    let ending = name.extension().unwrap_or_default().as_bytes();
    match media.split_once('/') {
        Some(("image", _)) => "image",
        Some(("audio", _)) => "sound",
        Some(("video", _)) => "video",
        _ if ARCHIVES
            .iter()
            .any(|known| ending.eq_ignore_ascii_case(known)) =>
        {
            "archive"
        }
        Some(("text", _)) => "text",
        Some((_, "pdf" | "json" | "xml" | "rtf" | "x-sh")) => "text",
        _ => "file",
    }
}

/// Extensions of files that contain other files.
const ARCHIVES: [&[u8]; 14] = [
    b"7z", b"bz2", b"deb", b"gz", b"iso", b"jar", b"lz4", b"rar", b"rpm", b"tar", b"tgz", b"xz",
    b"zip", b"zst",
];

/// Returns a name as HTML for display, with invisible characters escaped.
fn shown(name: &[u8]) -> Cow<'_, str> {
    let escaped = escaped(name);
    if !escaped.contains(is_invisible) {
        return escaped;
    }
    let mut shown = String::with_capacity(escaped.len() + 16);
    for character in escaped.chars() {
        match is_invisible(character) {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

/// Escapes text for HTML, including attributes.
fn escaped(name: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(name);
    if !text.contains(['&', '<', '>', '"', '\'']) {
        return text;
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

/// Formats a size: `1.2 MiB`, `340 B`; at most three digits before a unit other than bytes.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    // A size that would be rounded to 1024 is shown as 1 of the next unit.
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

/// Formats a number: `1,234,567`.
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

/// Formats a count: `1 file`, `1,234 files`.
fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
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
            changed: underpass_http::fields::validator::FileTime {
                seconds: 0,
                nanoseconds: 0,
            },
        };
        let view = ListingView {
            path: underpass_http::path::SitePath::parse(b"/").unwrap(),
            top: 0,
            format: crate::body::query::ListingFormat::Html,
            query: crate::body::query::Query::default(),
            archives: Offer::On,
            changes: None,
        };
        row(&mut out, &view, &entry).unwrap();
        let row = String::from_utf8(out).unwrap();
        let link = "href=\"./a%22%3E%3Cscript%3E%26%27%FF:%23%3F%25%2F\"";
        assert!(row.contains(link), "{row}");
        let shown = "<bdi>a&quot;&gt;&lt;script&gt;&amp;&#39;\u{fffd}:#?%/</bdi>";
        assert!(row.contains(shown), "{row}");
        assert!(row.contains("title=\"1 byte\""), "{row}");
    }

    #[test]
    fn what_nobody_could_see_is_spelt_out() {
        for (name, expected) in [
            (&b"a\nb\tc"[..], r"a\nb\tc"),
            (b"\x1b[31m<", r"\u{1b}[31m&lt;"),
            (b"\x7f", r"\u{7f}"),
            ("\u{9b}x".as_bytes(), r"\u{9b}x"),
            ("photo\u{202e}gpj.exe".as_bytes(), r"photo\u{202e}gpj.exe"),
            (
                "\u{dc}ber \u{65e5}\u{672c}".as_bytes(),
                "\u{dc}ber \u{65e5}\u{672c}",
            ),
        ] {
            assert_eq!(shown(name), expected);
        }
        assert_eq!(escaped(b"a\nb"), "a\nb", "a search is sent again as it was");
    }

    #[test]
    fn files_have_symbols_by_their_kind() {
        for (name, symbol) in [
            ("a.JPG", "image"),
            ("a.flac", "sound"),
            ("a.mkv", "video"),
            ("a.tar.gz", "archive"),
            ("README.md", "text"),
            ("a.pdf", "text"),
            ("a", "file"),
            ("jpg", "file"),
        ] {
            assert_eq!(icon(name.as_bytes()), symbol, "{name}");
            assert!(ICONS.contains(&format!("id=\"i-{symbol}\"")), "{symbol}");
        }
    }

    #[test]
    fn what_is_hashed_cannot_end_its_element() {
        assert!(!STYLE.contains("</") && !SCRIPT.contains("</"));
    }
}

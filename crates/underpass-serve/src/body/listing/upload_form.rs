//! The upload form of a page. It works without scripts; the script replaces it.

use std::io::{self, Write as _};

use crate::body::listing::view::FolderChanges;
use crate::rules::Offer;

/// Writes the form. It posts to the folder, without the query of the page.
pub(crate) fn write(out: &mut Vec<u8>, changes: FolderChanges) -> io::Result<()> {
    let flag = |offer, name| match offer {
        Offer::On => name,
        Offer::Off => "",
    };
    write!(
        out,
        "<section id=\"upload\" class=\"upload\" aria-label=\"Upload\"{}{}>\n\
         <form method=\"post\" enctype=\"multipart/form-data\" action=\"./\">\n\
         <label for=\"files-to-upload\">Files to upload</label>\n\
         <input id=\"files-to-upload\" name=\"file\" type=\"file\" multiple required>\n\
         <button>Upload</button>\n</form>\n</section>\n",
        flag(changes.overwrite, " data-overwrite"),
        flag(changes.delete, " data-delete")
    )
}

//! The part of a page by which its reader puts files into the folder: a form that works without
//! scripts, and a script that replaces it.

use std::io::{self, Write as _};

use crate::body::listing::view::FolderChanges;
use crate::site::rules::Offer;

/// Writes the form. Its encoding is that of RFC 7578, and its target the folder without a query.
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

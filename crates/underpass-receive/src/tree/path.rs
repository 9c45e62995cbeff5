//! Paths of members and targets of links: what a sender may name.

use crate::folder::UPLOADS_FOLDER;
use crate::tree::error::TreeFault;
use crate::tree::settings::{HiddenNames, TreeSettings};

/// Returns the names of a path from the top of the tree; none for the top itself.
pub(super) fn names<'p>(
    path: &'p [u8],
    settings: &TreeSettings,
) -> Result<Vec<&'p [u8]>, TreeFault> {
    let limits = &settings.limits;
    if path.len() > limits.path_bytes_max {
        return Err(TreeFault::Limit("bytes of a path"));
    }
    if path.starts_with(b"/") {
        return Err(TreeFault::Refused("absolute paths are not received"));
    }
    let mut names = Vec::new();
    for name in path.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => continue,
            b".." => return Err(TreeFault::Refused("paths with '..' are not received")),
            _ if name == UPLOADS_FOLDER.as_bytes() => {
                return Err(TreeFault::Refused("the name is reserved for partial files"));
            }
            _ if name.contains(&0) => {
                return Err(TreeFault::Refused("a path contains a zero byte"));
            }
            _ if name.len() > limits.name_bytes_max => {
                return Err(TreeFault::Limit("bytes of a name"));
            }
            name => names.push(name),
        }
    }
    let is_hidden = names.first().is_some_and(|name| name.starts_with(b"."));
    if is_hidden && settings.hidden == HiddenNames::Refused {
        return Err(TreeFault::Refused(
            "names at the top that begin with a dot are not received",
        ));
    }
    match names.len() > limits.depth_max + 1 {
        true => Err(TreeFault::Limit("folders within each other")),
        false => Ok(names),
    }
}

/// Whether a link that is beneath `depth` folders stays in the tree. A `..` after a name could
/// leave a folder that another link has led to, so only leading ones count as going up.
pub(super) fn stays_beneath(target: &[u8], depth: usize) -> bool {
    let (mut up, mut descends) = (0, false);
    for name in target.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." if descends => return false,
            b".." => up += 1,
            _ => descends = true,
        }
    }
    !target.starts_with(b"/") && up <= depth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_neither_climb_nor_hide_nor_grow() {
        let settings = TreeSettings::default();
        let names = |path: &[u8]| names(path, &settings).map(|names| names.join(&b"/"[..]));
        for (path, clean) in [
            (&b"a/b"[..], &b"a/b"[..]),
            (b"./a//./b", b"a/b"),
            (b".", b""),
            (b"a..b/...", b"a..b/..."),
            (b"a/.b\n\xff\\", b"a/.b\n\xff\\"),
        ] {
            assert_eq!(names(path), Ok(clean.to_vec()), "{}", path.escape_ascii());
        }
        let deep = b"d/".repeat(129);
        let long = [b'n'; 256];
        for path in [
            &b"/a"[..],
            b"..",
            b"../a",
            b"a/..",
            b"a/../b",
            b"./..",
            b".a",
            b"./.a",
            b"a\0b",
            b"a/.underpass-uploads",
            &long,
            &b"a/".repeat(2048),
            &[&deep[..], b"f"].concat(),
        ] {
            assert!(names(path).is_err(), "{}", path.escape_ascii());
        }
        let allowed = TreeSettings {
            hidden: HiddenNames::Allowed,
            ..settings
        };
        assert!(super::names(b".a", &allowed).is_ok());
        assert!(super::names(b".underpass-uploads/a", &allowed).is_err());
    }

    #[test]
    fn links_go_up_only_at_their_start_and_not_beyond_the_top() {
        for (target, depth, stays) in [
            (&b"a"[..], 0, true),
            (b"./a/b", 0, true),
            (b"..", 0, false),
            (b"..", 1, true),
            (b"../../a", 1, false),
            (b"../../a", 2, true),
            (b"a/..", 5, false),
            (b"../a/../..", 5, false),
            (b"/a", 5, false),
            (b"/", 5, false),
        ] {
            assert_eq!(
                stays_beneath(target, depth),
                stays,
                "{}",
                target.escape_ascii()
            );
        }
    }
}

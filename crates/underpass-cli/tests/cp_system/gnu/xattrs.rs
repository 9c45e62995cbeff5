//! Extended attributes of a world: plain ones, capabilities, and access control lists as the
//! kernel has them (acl(5), `linux/posix_acl_xattr.h`), so that no tool is needed to set them.

use underpass_testkit::SeededRandom;

pub(crate) const ACL: &str = "system.posix_acl_access";
pub(crate) const DEFAULT_ACL: &str = "system.posix_acl_default";

/// The kind of file that has the attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bearer {
    File,
    Folder,
    /// Only `trusted.*`.
    Symlink,
    /// A FIFO, socket or device: only `trusted.*` and access control lists.
    Special,
}

/// Draws a few attributes, often none.
pub(crate) fn some(
    rng: &mut SeededRandom,
    bearer: Bearer,
    mode: u32,
) -> Vec<(&'static str, Vec<u8>)> {
    let mut xattrs = Vec::new();
    let is_plain = matches!(bearer, Bearer::File | Bearer::Folder);
    if is_plain && rng.chance(20) {
        xattrs.push(("user.colour", b"blue".to_vec()));
    }
    if is_plain && rng.chance(8) {
        xattrs.push(("user.empty", Vec::new()));
        xattrs.push(("user.long", (0..=199).collect()));
    }
    if rng.chance(6) {
        xattrs.push(("trusted.secret", b"\0\xff".to_vec()));
    }
    if bearer == Bearer::File && rng.chance(6) {
        xattrs.push(("security.capability", capability()));
    }
    if bearer != Bearer::Symlink && rng.chance(12) {
        xattrs.push((ACL, list(rng, mode)));
    }
    if bearer == Bearer::Folder && rng.chance(10) {
        xattrs.push((DEFAULT_ACL, list(rng, mode)));
    }
    xattrs
}

/// `cap_net_raw` permitted and effective, revision 2.
fn capability() -> Vec<u8> {
    let words: [u32; 5] = [0x0200_0001, 1 << 13, 0, 0, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Draws a list with a named user, sometimes a named group, and the required mask.
pub(crate) fn list(rng: &mut SeededRandom, mode: u32) -> Vec<u8> {
    const NOBODY_IN_PARTICULAR: u32 = u32::MAX;
    let bits = |shift: u32| (mode >> shift & 7) as u16;
    let mut entries = vec![(1, bits(6), NOBODY_IN_PARTICULAR)];
    entries.push((2, rng.pick(&[4, 5, 6, 7, 0]), rng.pick(&[1000, 2, 65_534])));
    entries.push((4, bits(3), NOBODY_IN_PARTICULAR));
    if rng.chance(40) {
        entries.push((8, rng.pick(&[4, 7]), rng.pick(&[1000, 3])));
    }
    entries.push((16, rng.pick(&[7, 5, 4, 7]), NOBODY_IN_PARTICULAR));
    entries.push((32, bits(0), NOBODY_IN_PARTICULAR));
    raw(&entries)
}

/// Encodes entries of tag, permissions and id, which must be in the order of tags.
fn raw(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, whose) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(whose.to_le_bytes());
    }
    value
}

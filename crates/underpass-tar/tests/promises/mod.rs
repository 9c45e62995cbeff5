//! Properties that hold for any stream: functions that panic if one is violated, for the tests
//! below and for fuzzers (`fuzz/` in the repository).
//!
//! This is not a public interface: it is included in tests and with the feature `fuzz`.

#![allow(missing_docs, reason = "hidden; what each promises stands beside it")]

use crate::{Error, Member, MemberKind, ReadMember, TarEvent, TarReader, padding};

/// What a reader finds in a stream: members with their contents, and how it ends.
pub type Found = (Vec<(ReadMember, Vec<u8>)>, Result<(), Error>);

/// Reads a stream in pieces of the given sizes, which are repeated.
pub fn read(stream: &[u8], sizes: &[usize]) -> Found {
    let mut reader = TarReader::new();
    let mut members: Vec<(ReadMember, Vec<u8>)> = Vec::new();
    let mut sizes = sizes.iter().copied().map(|size| size.max(1)).cycle();
    let mut rest = stream;
    let result = loop {
        let size = sizes.next().unwrap_or(usize::MAX).min(rest.len());
        let (mut piece, after) = rest.split_at(size);
        rest = after;
        let fed = feed(&mut reader, &mut piece, &mut members);
        match fed {
            Err(error) => break Err(error),
            Ok(()) if rest.is_empty() => break reader.finish(),
            Ok(()) => {}
        }
    };
    (members, result)
}

/// Feeds a piece, content included.
fn feed(
    reader: &mut TarReader,
    piece: &mut &[u8],
    members: &mut Vec<(ReadMember, Vec<u8>)>,
) -> Result<(), Error> {
    loop {
        let before = reader.offset();
        let (used, event) = reader.feed(piece)?;
        assert_eq!(reader.offset(), before + used as u64);
        *piece = &piece[used..];
        match event {
            // Zeros may follow the end.
            TarEvent::End if !piece.is_empty() => {}
            TarEvent::More(_) | TarEvent::End => {
                assert!(piece.is_empty(), "bytes are left over");
                return Ok(());
            }
            TarEvent::Member(member) => {
                assert_eq!(reader.content_left(), member.member.kind.stored());
                members.push((*member, Vec::new()));
            }
            TarEvent::Content(left) => {
                assert_eq!(left, reader.content_left());
                let taken = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
                let (content, after) = piece.split_at(taken);
                if let Some((_, so_far)) = members.last_mut() {
                    so_far.extend_from_slice(content);
                }
                reader.advance(taken as u64);
                *piece = after;
                if piece.is_empty() {
                    return Ok(());
                }
            }
        }
    }
}

/// Writes members with their contents, and the end.
pub fn write(members: &[(Member, Vec<u8>)]) -> Vec<u8> {
    let mut stream = Vec::new();
    for (member, content) in members {
        assert_eq!(member.kind.stored(), content.len() as u64);
        member.write(&mut stream);
        stream.extend_from_slice(content);
        stream.extend_from_slice(padding(content.len() as u64));
    }
    stream.extend_from_slice(&crate::END);
    stream
}

/// However a stream is split, the same members are found, with the same contents, and the same end.
/// What is found is written and found again.
///
/// The first two bytes are sizes of pieces.
pub fn tar_reader(data: &[u8]) {
    let [one, two, stream @ ..] = data else {
        return;
    };
    let whole = read(stream, &[usize::MAX]);
    let split = read(stream, &[usize::from(*one), usize::from(*two) * 8]);
    assert_eq!(same(&whole), same(&split));
    let of_known_types = whole.0.into_iter().filter(|(read, content)| {
        let is_whole = read.member.kind.stored() == content.len() as u64;
        is_whole && is_written_as_it_is(&read.member)
    });
    let members: Vec<_> = of_known_types
        .map(|(read, content)| (read.member, content))
        .collect();
    let (again, end) = read(&write(&members), &[usize::MAX]);
    assert_eq!(end, Ok(()));
    let again = again
        .into_iter()
        .map(|(read, content)| (read.member, content));
    assert_eq!(again.collect::<Vec<_>>(), members);
}

fn same(found: &Found) -> String {
    format!("{found:?}")
}

/// Whether the writer spells everything of a member. A long name that is not UTF-8 is written as
/// a record of bytes, names of owners end with their field, and unknown types have their own rules.
fn is_written_as_it_is(member: &Member) -> bool {
    !matches!(member.kind, MemberKind::Other { .. })
        && !member.path.ends_with(b"/")
        && [&member.owner.user, &member.owner.group]
            .iter()
            .all(|name| !name.contains(&0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;
    use crate::{MemberOwner, SparseExtent, TarTime};

    fn name() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![8 => b'a'..=b'f', 1 => 1u8..=255];
        let byte = byte.prop_map(|byte| if byte == b'/' { b'_' } else { byte });
        vec(byte, 1..130)
    }

    fn kind() -> impl Strategy<Value = (MemberKind, Vec<u8>)> {
        let gaps = vec((0u64..1 << 40, 1usize..3), 0..60);
        prop_oneof![
            Just((MemberKind::Folder, Vec::new())),
            vec(any::<u8>(), 0..1500).prop_map(|content| {
                let size = content.len() as u64;
                (MemberKind::File { size }, content)
            }),
            name().prop_map(|target| (MemberKind::Symlink(target), Vec::new())),
            name().prop_map(|target| (MemberKind::HardLink(target), Vec::new())),
            Just((MemberKind::Fifo, Vec::new())),
            Just((MemberKind::BlockDevice, Vec::new())),
            gaps.prop_map(|gaps| {
                let (mut extents, mut end, mut content) = (Vec::new(), 0, Vec::new());
                let last = gaps.len();
                for (number, (gap, blocks)) in gaps.into_iter().enumerate() {
                    // The last one ends anywhere.
                    let len = if number + 1 < last {
                        blocks * 512
                    } else {
                        blocks * 300
                    };
                    let offset = end + gap;
                    end = offset + len as u64;
                    content.resize(content.len() + len, extents.len() as u8);
                    extents.push(SparseExtent {
                        offset,
                        len: len as u64,
                    });
                }
                (
                    MemberKind::SparseFile {
                        size: end + 5,
                        extents,
                    },
                    content,
                )
            }),
        ]
    }

    fn member() -> impl Strategy<Value = (Member, Vec<u8>)> {
        let ids = (any::<u32>(), any::<u32>()).prop_map(|(uid, gid)| (uid / 2, gid / 3));
        let owner = (ids, prop_oneof![Just(Vec::new()), name()], name());
        let time = (any::<i64>(), 0u32..1_000_000_000).prop_map(|(seconds, nanoseconds)| TarTime {
            seconds: seconds / 4,
            nanoseconds,
        });
        let xattrs = btree_map(name(), vec(any::<u8>(), 0..90), 0..4);
        (name(), kind(), 0u32..0o10000, time, owner, xattrs).prop_map(
            |(path, (kind, content), mode, modified, ((uid, gid), user, group), xattrs)| {
                let owner = MemberOwner {
                    uid,
                    gid,
                    user,
                    group,
                };
                let xattrs: BTreeMap<_, _> = xattrs;
                let member = Member {
                    path,
                    kind,
                    mode,
                    modified,
                    owner,
                    xattrs,
                };
                (member, content)
            },
        )
    }

    proptest! {
        #[test]
        fn written_members_are_read_however_the_stream_is_split(
            members in vec(member(), 0..5),
            sizes in vec(1usize..2000, 1..4),
        ) {
            let (found, end) = read(&write(&members), &sizes);
            prop_assert_eq!(end, Ok(()));
            let found = found.into_iter().map(|(read, content)| (read.member, content));
            prop_assert_eq!(found.collect::<Vec<_>>(), members);
        }

        #[test]
        fn any_bytes_keep_the_promise(data in vec(any::<u8>(), 0..2000)) {
            tar_reader(&data);
        }

        #[test]
        fn damaged_streams_keep_the_promise(
            members in vec(member(), 1..4),
            damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            sizes in any::<[u8; 2]>(),
        ) {
            let mut stream = write(&members);
            for (at, byte) in damage {
                let at = at.index(stream.len());
                stream[at] = byte;
            }
            // Without correct checksums every stream would end at the damaged header.
            for block in stream.chunks_exact_mut(512).filter(|block| block[257..262] == *b"ustar") {
                block[148..156].fill(b' ');
                let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
                block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            }
            tar_reader(&[&sizes[..], &stream].concat());
        }
    }
}

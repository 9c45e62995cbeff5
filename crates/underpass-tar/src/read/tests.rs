//! Streams that a hostile sender could write, and those of a continued transfer.

use super::*;
use crate::fuzz::{read, write};
use crate::member::{SparseExtent, TarTime};
use crate::pax::push_record;
use crate::{END, padding};

const TIME: TarTime = TarTime {
    seconds: 1,
    nanoseconds: 0,
};

fn file(path: &str, size: u64) -> Member {
    Member::new(path, MemberKind::File { size }, 0o644, TIME)
}

/// A header block with fields replaced, and a correct checksum.
fn block(flag: u8, size: u64, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut block = Vec::new();
    let kind = MemberKind::Other { flag, size };
    Member::new("n", kind, 0o644, TIME).write(&mut block);
    let mut block = block[block.len() - BLOCK..].to_vec();
    change(&mut block);
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// An extension with its content.
fn extension(flag: u8, text: &[u8]) -> Vec<u8> {
    let head = block(flag, text.len() as u64, |_| {});
    [&head, text, padding(text.len() as u64)].concat()
}

fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in records {
        push_record(&mut text, key.as_bytes(), value.as_bytes());
    }
    extension(b'x', &text)
}

fn fault(parts: &[&[u8]]) -> TarFault {
    let (_, end) = read(&[&parts.concat()[..], &END].concat(), &[usize::MAX]);
    end.expect_err("the stream is refused").fault
}

fn plain(flag: u8) -> Vec<u8> {
    block(flag, 0, |_| {})
}

fn gnu(flag: u8, size: u64, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    block(flag, size, |block| {
        block[257..265].copy_from_slice(b"ustar  \0");
        change(block);
    })
}

#[test]
fn headers_that_implementations_read_differently_are_refused() {
    let set = |at: usize, text: &'static [u8]| {
        move |block: &mut [u8]| block[at..at + text.len()].copy_from_slice(text)
    };
    let mut damaged = plain(b'0');
    damaged[0] ^= 1;
    let long = vec![b'n'; crate::limits::PATH_BYTES_MAX + 1];
    let large = block(b'x', EXTENSION_BYTES_MAX + 1, |_| {});
    for (stream, expected) in [
        (damaged, TarFault::Checksum),
        (vec![b'x'; BLOCK], TarFault::Checksum),
        (block(b'0', 0, set(257, b"Ustar")), TarFault::Magic),
        (block(b'0', 0, set(263, b"01")), TarFault::Magic),
        (
            block(b'0', 0, set(124, b"0000000000g\0")),
            TarFault::Field("size"),
        ),
        (
            block(b'0', 0, set(124, b"-0000000001\0")),
            TarFault::Field("size"),
        ),
        (block(b'0', 0, set(124, &[0; 12])), TarFault::Field("size")),
        (
            block(b'0', 0, set(124, &[0xff; 12])),
            TarFault::Field("size"),
        ),
        (
            block(b'0', 0, set(124, b"\x80\0\0\0\x80\0\0\0\0\0\0\0")),
            TarFault::Field("size"),
        ),
        (
            block(
                b'0',
                0,
                set(124, b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff"),
            ),
            TarFault::SizeOverflow,
        ),
        (block(b'0', 0, set(136, b"x")), TarFault::Field("mtime")),
        (block(b'0', 0, set(108, b"x")), TarFault::Field("uid")),
        (
            block(b'0', 0, set(100, b"\xff\xff\xff\xff\xff\xff\xff\xff")),
            TarFault::Field("mode"),
        ),
        (block(b'0', 0, set(0, b"\0")), TarFault::Name("path")),
        (block(b'3', 0, set(0, b"a/")), TarFault::Name("path")),
        (block(b'7', 0, set(0, b"a/")), TarFault::Name("path")),
        (plain(b'2'), TarFault::Name("link target")),
        (plain(b'1'), TarFault::Name("link target")),
        (block(b'5', 1, |_| {}), TarFault::UnexpectedContent),
        (block(b'2', 1, set(157, b"t")), TarFault::UnexpectedContent),
        (block(b'1', 1, set(157, b"t")), TarFault::UnexpectedContent),
        (block(b'3', 1, |_| {}), TarFault::UnexpectedContent),
        (block(b'6', 1, |_| {}), TarFault::UnexpectedContent),
        (block(b'0', 1, set(0, b"a/")), TarFault::UnexpectedContent),
        (large, TarFault::ExtensionTooLong),
        (extension(b'L', &long), TarFault::NameTooLong("path")),
        (extension(b'K', &long), TarFault::NameTooLong("link target")),
        (extension(b'L', b""), TarFault::Name("path")),
        (extension(b'L', b"a\0b\0"), TarFault::Name("path")),
        (extension(b'L', b"\0"), TarFault::Name("path")),
        (extension(b'x', b"nonsense"), TarFault::MalformedRecord),
        (extension(b'x', b"6 a=b\n6 a="), TarFault::MalformedRecord),
    ] {
        assert_eq!(
            fault(&[&stream]),
            expected,
            "{}",
            stream[..300].escape_ascii()
        );
    }
}

#[test]
fn extensions_that_do_not_belong_to_one_member_are_refused() {
    let (path, link) = (extension(b'L', b"p\0"), extension(b'K', b"t\0"));
    let (x, g) = (pax(&[("path", "p")]), extension(b'g', b"9 uid=17\n"));
    let member = plain(b'0');
    for parts in [
        &[&x, &x, &member][..],
        &[&path, &path, &member],
        &[&link, &link, &member],
        &[&x, &path, &member],
        &[&path, &x, &member],
        &[&link, &x, &member],
        &[&x, &g, &member],
        &[&path, &g, &member],
        &[&member, &x],
        &[&path],
    ] {
        let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        assert_eq!(fault(&parts), TarFault::StrayExtension);
    }
    let global = fault(&[&extension(b'g', b"9 path=p\n"), &member]);
    assert_eq!(global, TarFault::Global("path"));
}

#[test]
fn the_pax_size_wins_and_hides_no_member() {
    // The header says 0 bytes, the record 512: a reader that believes the header would find a
    // second member in the content (CVE-2025-62518).
    let smuggled = block(b'0', 0, |block| block[0] = b's');
    for header_size in [0, 7, 512, 5000] {
        let member = block(b'0', header_size, |_| {});
        let extension = pax(&[("size", "512")]);
        let stream = [&extension[..], &member, &smuggled, &END].concat();
        let (found, end) = read(&stream, &[usize::MAX]);
        assert_eq!(end, Ok(()));
        let [(read, content)] = &found[..] else {
            panic!("one member: {found:?}");
        };
        assert_eq!(read.member.kind, MemberKind::File { size: 512 });
        assert_eq!(*content, smuggled);
    }
    // The record's size is that of the member, not of another extension before it.
    let nested = [pax(&[("size", "9")]), extension(b'L', b"p\0"), plain(b'0')].concat();
    assert_eq!(fault(&[&nested]), TarFault::StrayExtension);
    let folder = [pax(&[("size", "9")]), plain(b'5')].concat();
    assert_eq!(fault(&[&folder]), TarFault::UnexpectedContent);
    let overflow = [pax(&[("size", "9223372036854775807")]), plain(b'0')].concat();
    assert_eq!(fault(&[&overflow]), TarFault::SizeOverflow);
}

#[test]
fn maps_that_are_not_ascending_parts_of_the_file_are_refused() {
    let form_1 = |size: &str, map: &[u8]| {
        let records = [
            ("GNU.sparse.major", "1"),
            ("GNU.sparse.minor", "0"),
            ("GNU.sparse.realsize", size),
        ];
        let mut map = map.to_vec();
        map.resize(map.len().next_multiple_of(BLOCK), 0);
        let head = block(b'0', map.len() as u64 + 4, |_| {});
        let content = [&b"1234"[..], padding(4)].concat();
        [pax(&records), head, map, content].concat()
    };
    let form_0 = |records: &[(&str, &str)]| {
        let content = [&b"1234"[..], padding(4)].concat();
        [pax(records), block(b'0', 4, |_| {}), content].concat()
    };
    let map = |map, size| form_0(&[("GNU.sparse.map", map), ("GNU.sparse.size", size)]);
    let (sparse, decimal) = (TarFault::SparseMap, TarFault::Record("GNU.sparse.map"));
    for (stream, expected) in [
        (form_1("9", b"1\n0\n5\n"), sparse),
        (form_1("3", b"1\n0\n4\n"), sparse),
        (form_1("9", b"2\n4\n2\n0\n2\n"), sparse),
        (form_1("9", b"2\n0\n3\n2\n1\n"), sparse),
        (form_1("9", b"2\n0\n3\n4\n1\n"), sparse),
        (form_1("9", b"1\n18446744073709551615\n4\n"), sparse),
        (form_1("9", b"1\n0\n4\nx"), sparse),
        (form_1("9", b"1\n0\n-4\n"), sparse),
        (form_1("9", b"\n"), sparse),
        (form_1("9", b"1"), sparse),
        (form_1("9", b"1\n0000000000000000000000000\n4\n"), sparse),
        (form_1("9", b"9999999\n"), TarFault::TooManyExtents),
        (form_1("18446744073709551615", b"1\n0\n4\n"), sparse),
        (map("0,4", "3"), sparse),
        (map("0,5", "9"), sparse),
        (map("0", "9"), TarFault::SparseMap),
        (map("0,4,", "9"), sparse),
        (map("0,4,,", "9"), decimal),
        (map("a,4", "9"), decimal),
        (form_0(&[("GNU.sparse.size", "9")]), sparse),
        (form_0(&[("GNU.sparse.map", "0,4")]), sparse),
        (
            form_0(&[("GNU.sparse.major", "2"), ("GNU.sparse.size", "9")]),
            sparse,
        ),
        (
            form_0(&[("GNU.sparse.unknown", "2")]),
            TarFault::Record("GNU.sparse"),
        ),
        (
            form_0(&[("GNU.sparse.numbytes", "4"), ("GNU.sparse.size", "9")]),
            sparse,
        ),
        (gnu(b'S', 0, |_| {}), sparse),
        (block(b'S', 0, |_| {}), sparse),
    ] {
        assert_eq!(
            fault(&[&stream]),
            expected,
            "{}",
            stream[..1100].escape_ascii()
        );
    }
    let folder = [
        &pax(&[("GNU.sparse.map", ""), ("GNU.sparse.size", "9")])[..],
        &plain(b'5'),
    ];
    assert_eq!(fault(&folder), TarFault::SparseMap);
}

#[test]
fn every_form_of_a_sparse_file_is_read() {
    let extents = vec![
        SparseExtent {
            offset: 2,
            len: 512,
        },
        SparseExtent {
            offset: 900,
            len: 1,
        },
    ];
    let kind = MemberKind::SparseFile { size: 901, extents };
    let content = [&[b'c'; 513][..], padding(513)].concat();
    let old = gnu(b'S', 513, |block| {
        for (at, number) in [2, 512, 900, 1].into_iter().enumerate() {
            let field = format!("{number:011o}\0");
            block[386 + 12 * at..][..12].copy_from_slice(field.as_bytes());
        }
        block[483..495].copy_from_slice(b"00000001605\0");
    });
    let list = pax(&[("GNU.sparse.size", "901"), ("GNU.sparse.numblocks", "2")]);
    let mut text = list[BLOCK..].to_vec();
    text.truncate(text.iter().position(|&byte| byte == 0).unwrap());
    for (key, value) in [
        ("offset", "2"),
        ("numbytes", "512"),
        ("offset", "900"),
        ("numbytes", "1"),
    ] {
        push_record(
            &mut text,
            format!("GNU.sparse.{key}").as_bytes(),
            value.as_bytes(),
        );
    }
    let map = pax(&[
        ("GNU.sparse.size", "901"),
        ("GNU.sparse.name", "n"),
        ("GNU.sparse.map", "2,512,900,1"),
    ]);
    for headers in [
        old,
        [extension(b'x', &text), block(b'0', 513, |_| {})].concat(),
        [map, block(b'0', 513, |_| {})].concat(),
    ] {
        let (found, end) = read(
            &[headers, content.clone(), END.to_vec()].concat(),
            &[7, 600],
        );
        assert_eq!(end, Ok(()));
        assert_eq!(found[0].0.member.kind, kind);
        assert_eq!(found[0].0.member.path, b"n");
        assert_eq!(found[0].1, vec![b'c'; 513]);
    }
}

#[test]
fn the_end_is_two_blocks_and_only_zeros_follow() {
    let stream = write(&[(file("a", 3), b"abc".to_vec())]);
    for end in 0..stream.len() {
        let (_, result) = read(&stream[..end], &[100]);
        let fault = result.map_err(|error| error.fault);
        assert_eq!(fault, Err(TarFault::Truncated), "cut at {end}");
    }
    let (_, result) = read(&[&stream[..], &[0; 9000]].concat(), &[100]);
    assert_eq!(result, Ok(()));
    let after = [&stream[..], &[0; 100], b"x"].concat();
    let error = read(&after, &[100]).1.unwrap_err();
    assert_eq!(
        (error.fault, error.offset),
        (TarFault::AfterEnd, after.len() as u64 - 1)
    );
    let lone = [&END[..BLOCK], &stream].concat();
    assert_eq!(
        read(&lone, &[100]).1.unwrap_err().fault,
        TarFault::LoneZeroBlock
    );
}

#[test]
fn an_error_names_member_and_place_and_stays() {
    let first = write(&[(file("first", 0), Vec::new())]);
    let second = [pax(&[("path", "se\u{1b}cond")]), block(b'5', 9, |_| {})].concat();
    let stream = [&first[..BLOCK], &second].concat();
    let mut reader = TarReader::new();
    let (used, _) = reader.feed(&stream).unwrap();
    let error = reader.feed(&stream[used..]).unwrap_err();
    let text =
        "tar stream, byte 512, 'se\\u{1b}cond': content is announced for a member that has none";
    assert_eq!(error.to_string(), text);
    assert_eq!(reader.feed(&first).unwrap_err(), error);
    assert_eq!(reader.finish(), Err(error));
}

#[test]
fn global_records_apply_until_others_replace_them() {
    let global = |text: &[u8]| extension(b'g', text);
    let own = pax(&[("uid", "7")]);
    let member = plain(b'0');
    let parts = [
        &global(b"8 uid=5\n11 mtime=9\n")[..],
        &member,
        &own,
        &member,
    ];
    let stream = [&parts.concat()[..], &global(b"8 uid=6\n"), &member, &END].concat();
    let (found, end) = read(&stream, &[usize::MAX]);
    assert_eq!(end, Ok(()));
    let uids: Vec<_> = found
        .iter()
        .map(|(read, _)| read.member.owner.uid)
        .collect();
    assert_eq!(uids, [5, 7, 6]);
    assert!(
        found
            .iter()
            .all(|(read, _)| read.member.modified.seconds == 9)
    );
}

#[test]
fn devices_and_unknown_types_are_reported_and_records_without_meaning_listed() {
    let records = pax(&[("SCHILY.dev", "7"), ("atime", "1"), ("comment", "c")]);
    let parts = [
        plain(b'3'),
        plain(b'4'),
        plain(b'6'),
        plain(b'V'),
        records,
        plain(b'D'),
    ];
    let (found, end) = read(&[&parts.concat()[..], &END].concat(), &[usize::MAX]);
    assert_eq!(end, Ok(()));
    let kinds: Vec<_> = found
        .iter()
        .map(|(read, _)| read.member.kind.clone())
        .collect();
    let other = |flag| MemberKind::Other { flag, size: 0 };
    let expected = [
        MemberKind::CharacterDevice,
        MemberKind::BlockDevice,
        MemberKind::Fifo,
        other(b'V'),
        other(b'D'),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(found[4].0.ignored, [b"SCHILY.dev".to_vec()]);
}

#[test]
fn a_cut_stream_is_continued_within_a_member() {
    let members = [
        (file("a", 3), b"abc".to_vec()),
        (file("b", 600), vec![b'b'; 600]),
        (file("c", 0), Vec::new()),
    ];
    let (all, _) = read(&write(&members), &[usize::MAX]);
    let chains: Vec<_> = all.iter().map(|(read, _)| read.chain).collect();
    let own = (members.iter()).fold(HeaderChain::new(), |chain, (member, _)| {
        let mut headers = Vec::new();
        member.write(&mut headers);
        chain.then(&headers)
    });
    assert_eq!(own, chains[2]);

    let whole = write(&members[1..]);
    let rest = [&whole[..BLOCK], &whole[BLOCK + 250..]].concat();
    let mut reader = TarReader::within(chains[0], chains[1], 250);
    let (used, event) = reader.feed(&rest).unwrap();
    let TarEvent::Member(found) = event else {
        panic!("a member: {event:?}");
    };
    assert_eq!(
        (found.present, found.chain, reader.content_left()),
        (250, chains[1], 350)
    );
    reader.advance(350);
    let (more, event) = reader.feed(&rest[used + 350..]).unwrap();
    assert!(matches!(event, TarEvent::Member(found) if found.chain == own));
    assert!(matches!(
        reader.feed(&rest[used + 350 + more..]),
        Ok((_, TarEvent::End))
    ));

    for mut reader in [
        TarReader::within(chains[0], chains[2], 250),
        TarReader::within(chains[1], chains[1], 250),
        TarReader::within(chains[0], chains[1], 601),
    ] {
        let changed = reader.feed(&rest).map(drop).unwrap_err();
        assert_eq!(changed.fault, TarFault::Changed);
    }
}

#[test]
fn headers_are_asked_for_without_content() {
    let stream = write(&[
        (file("a", 700), vec![b'a'; 700]),
        (file("b", 0), Vec::new()),
    ]);
    let mut reader = TarReader::new();
    let (mut at, mut want, mut members) = (0, 0, 0);
    loop {
        let (used, event) = reader.feed(&stream[at..at + want]).unwrap();
        at += used;
        want -= used;
        match event {
            TarEvent::More(more) => want = more,
            TarEvent::Member(_) => members += 1,
            TarEvent::Content(left) => {
                assert_eq!(want, 0, "content was asked for");
                at += left as usize;
                reader.advance(left);
            }
            TarEvent::End => break,
        }
    }
    assert_eq!((at, members), (stream.len(), 2));
}

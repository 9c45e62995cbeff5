//! Damaged archives: whatever the reader accepts, GNU tar and bsdtar read the same.

use underpass_tar::{END, Member, MemberKind, MemberOwner, SparseExtent, TarTime};
use underpass_testkit::{Cases, SeededRandom};

use crate::listing::{expand, read, run};

const CASES: u64 = 300;

/// Contents that a damaged map makes larger are not compared.
const CONTENT_BYTES_MAX: u64 = 1 << 20;

/// What another program has read: a line for each member, all contents, and its messages.
struct OtherReading {
    is_read: bool,
    lines: Vec<String>,
    contents: Vec<u8>,
    message: String,
}

impl OtherReading {
    fn of(program: &str, list: &[&str], stream: &[u8], line: fn(&str) -> String) -> OtherReading {
        let folder = tempfile::tempdir().unwrap();
        let listed = run(program, list, folder.path(), stream);
        let contents = run(program, &["-x", "-O", "-f", "-"], folder.path(), stream);
        let lines = String::from_utf8_lossy(&listed.stdout);
        OtherReading {
            is_read: listed.status.success() && contents.status.success(),
            lines: lines.lines().map(line).collect(),
            contents: contents.stdout,
            message: String::from_utf8_lossy(&[listed.stderr, contents.stderr].concat()).into(),
        }
    }
}

#[test]
#[ignore = "needs tar; run by cargo xtask test"]
fn what_is_accepted_of_a_damaged_archive_gnu_tar_reads_the_same() {
    let list = [
        "-t",
        "-v",
        "--numeric-owner",
        "--quoting-style=c",
        "-f",
        "-",
    ];
    compare(listed_by_us, |stream| {
        OtherReading::of("tar", &list, stream, listed_by_gnu)
    });
}

#[test]
#[ignore = "needs bsdtar; run by cargo xtask test"]
fn what_is_accepted_of_a_damaged_archive_bsdtar_reads_the_same() {
    let list = ["-t", "-v", "--numeric-owner", "-f", "-"];
    compare(without_name, |stream| {
        OtherReading::of("bsdtar", &list, stream, listed_by_bsdtar)
    });
}

/// Draws archives, and compares what is accepted with what the other program reads.
fn compare(line: fn(&Member) -> String, other: impl Fn(&[u8]) -> OtherReading) {
    let cases = Cases::from_env("UNDERPASS_TAR", CASES);
    let (mut compared, mut refused) = (0, 0);
    for number in cases.numbers.clone() {
        let case = format!(
            "UNDERPASS_TAR_SEED={} UNDERPASS_TAR_CASE={number}",
            cases.seed
        );
        let seed = SeededRandom::of_case(cases.seed, number).next_u64();
        let stream = damaged(&mut fastrand::Rng::with_seed(seed));
        let Ok(members) = read(&stream) else {
            refused += 1;
            continue;
        };
        // A receiver refuses unknown types, which others take for files.
        let is_unknown = |member: &Member| matches!(member.kind, MemberKind::Other { .. });
        let is_compared =
            |member: &Member| size(member) <= CONTENT_BYTES_MAX && !is_unknown(member);
        if !members.iter().all(|(read, _)| is_compared(&read.member)) {
            continue;
        }
        let found = other(&stream);
        // The other program may refuse more.
        if !found.is_read {
            continue;
        }
        compared += 1;
        let own = members.iter().map(|(read, _)| line(&read.member));
        assert_eq!(
            own.collect::<Vec<_>>(),
            found.lines,
            "{case}: {}",
            found.message
        );
        let own = members
            .iter()
            .flat_map(|(read, content)| expand(&read.member, content));
        let own: Vec<u8> = own.collect();
        let is_same = blake3::hash(&own) == blake3::hash(&found.contents);
        assert!(is_same, "{case}: {}", found.message);
    }
    // Damage that is always noticed, or never, compares nothing.
    let drawn = cases.numbers.end - cases.numbers.start;
    let is_meaningful = compared > drawn / 10 && refused > drawn / 10;
    assert!(
        drawn < CASES || is_meaningful,
        "{compared} compared, {refused} refused"
    );
}

fn size(member: &Member) -> u64 {
    match &member.kind {
        MemberKind::SparseFile { size, .. } => *size,
        kind => kind.stored(),
    }
}

/// Returns an archive with one or two fields changed, and checksums that are correct.
fn damaged(rng: &mut fastrand::Rng) -> Vec<u8> {
    let (mut stream, mut headers) = (Vec::new(), Vec::new());
    for number in 0..rng.usize(1..4) {
        let (member, content) = member(rng, number);
        let start = stream.len();
        member.write(&mut stream);
        headers.push(start..stream.len());
        stream.extend_from_slice(&content);
        stream.extend_from_slice(underpass_tar::padding(content.len() as u64));
    }
    stream.extend_from_slice(&END);
    for _ in 0..rng.usize(1..3) {
        let header = headers[rng.usize(..headers.len())].clone();
        let block = header.start + 512 * rng.usize(..header.len() / 512);
        // Name, size, time, type, target, magic, prefix, and records.
        let field = [
            0..9,
            124..136,
            136..148,
            156..157,
            157..165,
            257..265,
            345..350,
            0..60,
        ];
        let field = field[rng.usize(..field.len())].clone();
        let at = block + rng.usize(field);
        stream[at] = match rng.usize(..4) {
            0 => b"01234567xgLKS5/ \n=\0\x80\xff"[rng.usize(..21)],
            1 => stream[at].wrapping_add(1),
            _ => rng.u8(b'0'..=b'9'),
        };
    }
    for block in stream
        .chunks_exact_mut(512)
        .filter(|block| block[257..262] == *b"ustar")
    {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    stream
}

fn member(rng: &mut fastrand::Rng, number: usize) -> (Member, Vec<u8>) {
    let size = [0, 5, 512, 700, 3000][rng.usize(..5)];
    let content: Vec<u8> = (0..size).map(|_| rng.alphanumeric() as u8).collect();
    let length = [3, 99, 100, 101, 180][rng.usize(..5)];
    let path = format!("{number}{}", "n".repeat(length));
    let (kind, content) = match rng.usize(..6) {
        0 => (MemberKind::Folder, Vec::new()),
        1 => (MemberKind::Symlink(vec![b't'; length]), Vec::new()),
        2 => (MemberKind::HardLink(vec![b'h'; length]), Vec::new()),
        3 if size > 512 => {
            let len = size as u64;
            let extents = vec![
                SparseExtent {
                    offset: 10,
                    len: 512,
                },
                SparseExtent {
                    offset: 1000,
                    len: len - 512,
                },
            ];
            (
                MemberKind::SparseFile {
                    size: 9000,
                    extents,
                },
                content,
            )
        }
        _ => (MemberKind::File { size: size as u64 }, content),
    };
    let modified = TarTime {
        seconds: 1_000_000_000,
        nanoseconds: rng.u32(0..2) * 5,
    };
    let owner = MemberOwner {
        uid: [0, 1000, 5_000_000][rng.usize(..3)],
        ..MemberOwner::default()
    };
    let member = Member::new(path, kind, 0o644, modified);
    (Member { owner, ..member }, content)
}

/// Names a member as [`listed_by_gnu`] does: type, size, path and target.
fn listed_by_us(member: &Member) -> String {
    let path = quoted(&member.path);
    let kind = match &member.kind {
        MemberKind::Folder => "d",
        MemberKind::File { .. } | MemberKind::SparseFile { .. } => "-",
        MemberKind::Symlink(target) => return format!("l 0 {path} -> {}", quoted(target)),
        MemberKind::HardLink(target) => return format!("h 0 {path} link to {}", quoted(target)),
        MemberKind::CharacterDevice => "c",
        MemberKind::BlockDevice => "b",
        MemberKind::Fifo => "p",
        MemberKind::Other { flag, size } => return format!("{flag} {size} {path}"),
    };
    format!("{kind} {} {path}", size(member))
}

/// Quotes a name as in C.
fn quoted(name: &[u8]) -> String {
    let quoted = name.iter().map(|byte| match byte {
        7 => "\\a".to_owned(),
        8 => "\\b".to_owned(),
        11 => "\\v".to_owned(),
        12 => "\\f".to_owned(),
        b'\n' => "\\n".to_owned(),
        b'\r' => "\\r".to_owned(),
        b'\t' => "\\t".to_owned(),
        b'"' | b'\\' => format!("\\{}", *byte as char),
        b' '..=b'~' => (*byte as char).to_string(),
        byte => format!("\\{byte:03o}"),
    });
    format!("\"{}\"", quoted.collect::<String>())
}

/// Reads a line of `tar -t -v --quoting-style=c`: mode, owner, size, date, time, name.
fn listed_by_gnu(line: &str) -> String {
    let (columns, name) = line.split_at(line.find('"').unwrap_or(line.len()));
    let columns: Vec<_> = columns.split_ascii_whitespace().collect();
    let kind = columns
        .first()
        .and_then(|mode| mode.get(..1))
        .unwrap_or_default();
    // Contiguous files are files.
    let kind = if kind == "C" { "-" } else { kind };
    let size = columns.get(2).copied().unwrap_or_default();
    let size = if kind == "c" || kind == "b" {
        "0"
    } else {
        size
    };
    let name = match kind {
        "d" => name.trim_end_matches(['/', '"']).to_owned() + "\"",
        _ => name.to_owned(),
    };
    format!("{kind} {size} {name}")
}

/// Names type and size of a member, as [`listed_by_bsdtar`] does.
fn without_name(member: &Member) -> String {
    let line = listed_by_us(member);
    line.splitn(3, ' ').take(2).collect::<Vec<_>>().join(" ")
}

/// Reads a line of `bsdtar -t -v`: mode, links, user, group, size, date, name.
fn listed_by_bsdtar(line: &str) -> String {
    let columns: Vec<_> = line.split_ascii_whitespace().collect();
    let kind = columns
        .first()
        .and_then(|mode| mode.get(..1))
        .unwrap_or_default();
    let size = columns.get(4).copied().unwrap_or_default();
    let size = if kind == "c" || kind == "b" {
        "0"
    } else {
        size
    };
    format!("{kind} {size}")
}

//! Trees that other programs pack.

use std::process::{Command, Stdio};

use super::*;
use crate::forks::spawn;

/// Packs a tree with a program, receives it, and compares it with the original.
fn receives(program: &str, arguments: &[&str]) {
    let (folder, area) = area();
    // Folders without a member of their own have the time of their arrival.
    let is_named = |(member, _): &(Member, _)| !member.path.starts_with(b"./implied");
    let members: Members = everything().into_iter().filter(is_named).collect();
    let mut original = area.begin_tree(settings()).unwrap();
    original.push(&stream(&members)).unwrap();
    original
        .commit(&path("original"), TreeMerge::Refused)
        .unwrap();
    let original = folder.path().join("original");
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(&original)
        .env("LC_ALL", "C.UTF-8")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let packed = spawn(&mut command).wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&packed.stderr);
    assert!(packed.status.success(), "{message}");
    let mut tree = area.begin_tree(settings()).unwrap();
    for piece in packed.stdout.chunks(10_240) {
        tree.push(piece).unwrap();
    }
    tree.commit(&path("copy"), TreeMerge::Refused).unwrap();
    let seconds = |listing: BTreeMap<String, String>| {
        let is_exact = |argument: &&str| ["--format=posix", "--format=pax"].contains(argument);
        let is_exact = arguments.iter().any(is_exact);
        match is_exact {
            true => listing,
            // Other formats have whole seconds.
            false => listing
                .into_iter()
                .map(|(path, line)| (path, line.replace("123456789", "0")))
                .collect(),
        }
    };
    let copy = listing(&folder.path().join("copy"));
    assert_eq!(seconds(copy), seconds(listing(&original)), "{arguments:?}");
}

#[test]
#[ignore = "needs tar; run by cargo xtask test"]
fn trees_of_gnu_tar_are_received() {
    receives("tar", &["-c", "--format=posix", "--sparse", "-f", "-", "."]);
    receives("tar", &["-c", "--format=gnu", "--sparse", "-f", "-", "."]);
}

#[test]
#[ignore = "needs bsdtar; run by cargo xtask test"]
fn trees_of_bsdtar_are_received() {
    receives("bsdtar", &["-c", "--format=pax", "-f", "-", "."]);
}

#[test]
#[ignore = "needs busybox; run by cargo xtask test"]
fn trees_of_busybox_are_received() {
    receives("busybox", &["tar", "-c", "-f", "-", "."]);
}

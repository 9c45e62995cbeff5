//! The file system of a directory: `fstatfs(2)`, and its line in `/proc/self/mountinfo`.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags};
use serde::Serialize;

/// A file system, and how it is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct MountedFileSystem {
    /// The type of the mount (`ext4`, `fuse.sshfs`), or by the magic number if that is unknown.
    pub(super) name: String,
    /// `f_type` of statfs(2), in hexadecimal.
    pub(super) magic: String,
    /// The name of the magic number; several file systems may share one.
    pub(super) magic_name: Option<&'static str>,
    pub(super) mount: Option<Mount>,
}

/// A line of mountinfo, proc_pid_mountinfo(5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Mount {
    pub(super) file_system: String,
    pub(super) mount_point: String,
    pub(super) device: String,
    pub(super) options: String,
    pub(super) super_options: String,
}

impl MountedFileSystem {
    pub(super) fn of(directory: &Path) -> Option<Self> {
        let stat = rustix::fs::statfs(directory).ok()?;
        // Sign extension differs between architectures; the magic numbers have 32 bits.
        let magic = stat.f_type as u32;
        let mount = mount_id(directory).and_then(|id| {
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
            mounts.lines().find_map(|line| parse(line, id))
        });
        let magic_name = magic_name(magic);
        let name = match (&mount, magic_name) {
            (Some(mount), _) => mount.file_system.clone(),
            (None, Some(name)) => name.to_owned(),
            (None, None) => "unknown".to_owned(),
        };
        let magic = format!("{magic:#x}");
        Some(Self {
            name,
            magic,
            magic_name,
            mount,
        })
    }

    /// Returns whether the kernel generates its files on reading.
    pub(super) fn is_pseudo(&self) -> bool {
        let name = self.magic_name.unwrap_or_default();
        PSEUDO.split(' ').any(|pseudo| pseudo == name)
    }

    /// Formats as `ext4 on /dev/vda, mounted at /: rw,relatime`.
    pub(super) fn describe(&self) -> String {
        match &self.mount {
            None => format!("{}, magic number {}", self.name, self.magic),
            Some(mount) => format!(
                "{} on {}, mounted at {}: {}",
                self.name,
                mount.device,
                mount.mount_point,
                merged(&mount.options, &mount.super_options)
            ),
        }
    }
}

/// Returns the mount's options, and those of the file system that differ from them.
fn merged(options: &str, super_options: &str) -> String {
    let own: Vec<_> = options.split(',').collect();
    let more = super_options.split(',');
    let more = more.filter(|option| !own.contains(option) && !matches!(*option, "rw" | "ro"));
    let all = own.iter().copied().chain(more);
    all.collect::<Vec<_>>().join(",")
}

fn mount_id(directory: &Path) -> Option<u64> {
    let stat = rustix::fs::statx(CWD, directory, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

/// Parses `36 35 98:0 /root /mnt rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
fn parse(line: &str, id: u64) -> Option<Mount> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mount: Vec<_> = mount.split(' ').collect();
    let file_system: Vec<_> = file_system.split(' ').collect();
    if mount.first()?.parse() != Ok(id) {
        return None;
    }
    Some(Mount {
        file_system: unescaped(file_system.first()?),
        mount_point: unescaped(mount.get(4)?),
        device: unescaped(file_system.get(1)?),
        options: (*mount.get(5)?).to_owned(),
        super_options: file_system.get(2).copied().unwrap_or_default().to_owned(),
    })
}

/// Decodes the escapes of proc_pid_mountinfo(5), the one of the backslash last.
fn unescaped(word: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\043", "#"),
        ("\\134", "\\"),
    ];
    let decoded = |word: String, (escape, plain): (&str, &str)| word.replace(escape, plain);
    escapes.into_iter().fold(word.to_owned(), decoded)
}

fn magic_name(magic: u32) -> Option<&'static str> {
    let known = MAGICS.iter().find(|(number, _)| *number == magic);
    known.map(|(_, name)| *name)
}

const PSEUDO: &str = "bpf cgroup cgroup2 configfs debugfs devpts efivarfs proc securityfs \
                      selinuxfs sysfs tracefs";

/// The names in linux/magic.h and in the sources of file systems outside of the kernel's tree.
const MAGICS: &[(u32, &str)] = &[
    (0x0000_1cd1, "devpts"),
    (0x0000_3434, "nilfs2"),
    (0x0000_4d44, "vfat"),
    (0x0000_517b, "smb"),
    (0x0000_6969, "nfs"),
    (0x0000_9660, "iso9660"),
    (0x0000_9fa0, "proc"),
    (0x0000_ef53, "ext2/ext3/ext4"),
    (0x0000_f15f, "ecryptfs"),
    (0x0027_e0eb, "cgroup"),
    (0x00c3_6400, "ceph"),
    (0x0102_1994, "tmpfs"),
    (0x0102_1997, "9p"),
    (0x1501_3346, "udf"),
    (0x2011_bab0, "exfat"),
    (0x2fc1_2fc1, "zfs"),
    (0x3153_464a, "jfs"),
    (0x5265_4973, "reiserfs"),
    (0x5346_414f, "afs"),
    (0x5346_544e, "ntfs"),
    (0x5846_5342, "xfs"),
    (0x6265_6570, "configfs"),
    (0x6265_6572, "sysfs"),
    (0x6367_7270, "cgroup2"),
    (0x6462_6720, "debugfs"),
    (0x6573_5546, "fuse"),
    (0x7366_746e, "ntfs3"),
    (0x7371_7368, "squashfs"),
    (0x7363_6673, "securityfs"),
    (0x7461_636f, "ocfs2"),
    (0x7472_6163, "tracefs"),
    (0x794c_7630, "overlay"),
    (0x8584_58f6, "ramfs"),
    (0x9123_683e, "btrfs"),
    (0x9584_58f6, "hugetlbfs"),
    (0xca45_1a4e, "bcachefs"),
    (0xcafe_4a11, "bpf"),
    (0xde5e_81e4, "efivarfs"),
    (0xe0f5_e1e2, "erofs"),
    (0xf2f5_2010, "f2fs"),
    (0xf97c_ff8c, "selinuxfs"),
    (0xfe53_4d42, "smb2"),
    (0xff53_4d42, "cifs"),
];

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "36 35 98:0 /sub /mnt\\040two rw,noatime master:1 - ext3 /dev/root \
                        rw,errors=continue";

    #[test]
    fn a_mounts_line_is_read() {
        let mount = parse(LINE, 36).unwrap();
        assert_eq!(mount.mount_point, "/mnt two");
        assert_eq!((&*mount.file_system, &*mount.device), ("ext3", "/dev/root"));
        assert_eq!(
            merged(&mount.options, &mount.super_options),
            "rw,noatime,errors=continue"
        );
        assert_eq!(parse(LINE, 35), None);
        assert_eq!(parse("36 half a line", 36), None);
    }

    #[test]
    fn no_magic_number_stands_for_two() {
        let mut numbers: Vec<_> = MAGICS.iter().map(|(number, _)| number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), MAGICS.len());
    }

    #[test]
    fn proc_is_recognised_by_its_magic_number() {
        let proc = MountedFileSystem::of(Path::new("/proc")).unwrap();
        assert_eq!((proc.magic_name, proc.is_pseudo()), (Some("proc"), true));
    }
}

//! What a test may need from the machine, and whether the machine has it: by trying.
//!
//! A test names its needs in its attribute `#[ignore = "needs root, strace and curl; …"]`.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope,
};

/// Something a test needs.
#[derive(Debug, PartialEq)]
pub(crate) struct Need {
    /// As the tests name it.
    name: &'static str,
    /// The Debian package it comes in.
    package: Option<&'static str>,
    check: Check,
}

#[derive(Debug, PartialEq)]
enum Check {
    /// Nothing but time.
    Time,
    Root,
    /// To mount, in a mount namespace of its own.
    Mounts,
    /// A command that succeeds, with its arguments: to attach an image file as a block device, say.
    Trial(&'static [&'static str]),
    /// Landlock with all that its ABI 6 has.
    Landlock,
    /// GNU's cp, in the version whose words the tests know.
    GnuCp,
    /// A program in the search path.
    Program(&'static str),
    /// A program that is too big to be installed for a test: used where it is there.
    Toolchain(&'static str),
}

const ALL: &[Need] = &[
    need("a minute", None, Check::Time),
    need("root", None, Check::Root),
    need("loop devices", None, Check::Trial(&["losetup", "--find"])),
    need("Landlock of ABI 6", None, Check::Landlock),
    need("GNU cp", None, Check::GnuCp),
    need("mounts", Some("mount"), Check::Mounts),
    need(
        "strace",
        Some("strace"),
        Check::Trial(&["strace", "-o", "/dev/null", "true"]),
    ),
    need("bsdtar", Some("libarchive-tools"), Check::Program("bsdtar")),
    need("Btrfs", Some("btrfs-progs"), Check::Program("mkfs.btrfs")),
    need("chromium", Some("chromium"), Check::Toolchain("chromium")),
    need("curl", Some("curl"), Check::Program("curl")),
    need("ext4", Some("e2fsprogs"), Check::Program("mkfs.ext4")),
    need("gcc", Some("gcc"), Check::Program("cc")),
    need("Go", Some("golang-go"), Check::Toolchain("go")),
    need("gzip", Some("gzip"), Check::Program("gzip")),
    need(
        "a JDK",
        Some("default-jdk-headless"),
        Check::Toolchain("javac"),
    ),
    need("nginx-light", Some("nginx-light"), Check::Program("nginx")),
    need("python3", Some("python3"), Check::Program("python3")),
    need("skopeo", Some("skopeo"), Check::Program("skopeo")),
    need(
        "slowhttptest",
        Some("slowhttptest"),
        Check::Program("slowhttptest"),
    ),
    need("tar", Some("tar"), Check::Program("tar")),
    need("XFS", Some("xfsprogs"), Check::Program("mkfs.xfs")),
    need("zstd", Some("zstd"), Check::Program("zstd")),
];

const fn need(name: &'static str, package: Option<&'static str>, check: Check) -> Need {
    Need {
        name,
        package,
        check,
    }
}

/// As `cp --version` begins.
const GNU_CP_VERSION: &str = "cp (GNU coreutils) 9.1";

/// A program that runs another in a mount namespace of its own: whatever it mounts is gone when
/// it ends, however it ends.
pub(crate) const PRIVATE_MOUNTS: [&str; 4] = ["unshare", "--mount", "--propagation", "private"];

const REASON_START: &str = "needs ";
const REASON_END: &str = "; run by cargo xtask test";

/// The needs in the reason for which a test is ignored, which reads
/// `needs NAME, NAME and NAME; run by cargo xtask test`.
///
/// # Errors
/// What is wrong with the reason.
pub(crate) fn of_reason(reason: &str) -> Result<Vec<&'static Need>, String> {
    let named = reason.strip_prefix(REASON_START);
    let Some(named) = named.and_then(|rest| rest.strip_suffix(REASON_END)) else {
        return Err(format!(
            "reads otherwise than `{REASON_START}…{REASON_END}`"
        ));
    };
    let names = named.split(", ").flat_map(|names| names.split(" and "));
    names
        .map(|name| named_need(name).ok_or_else(|| unknown(name)))
        .collect()
}

/// Why the first of the named needs that is not met is not met.
pub(crate) fn lack_of(names: &[&str]) -> Option<String> {
    let mut lacks = names.iter().map(|name| match named_need(name) {
        Some(need) => need.lack().map(|lack| lack.to_string()),
        None => Some(unknown(name)),
    });
    lacks.find_map(|lack| lack)
}

fn named_need(name: &str) -> Option<&'static Need> {
    ALL.iter().find(|need| need.name == name)
}

fn unknown(name: &str) -> String {
    format!("names the unknown need `{name}`; the known ones are in xtask/src/needs.rs")
}

/// Why something could not be run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lack {
    reason: String,
    /// Root or a package: whoever sets up the machine can provide it. Otherwise the kernel or the
    /// container refuses it, or it has failed already as something else.
    pub(crate) is_curable: bool,
}

impl Lack {
    pub(crate) fn curable(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            is_curable: true,
        }
    }

    pub(crate) fn of_machine(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            is_curable: false,
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Need {
    pub(crate) fn all() -> impl Iterator<Item = &'static Need> {
        ALL.iter()
    }

    /// Why the need is not met, or `None` where it is.
    pub(crate) fn lack(&self) -> Option<Lack> {
        match self.check {
            Check::Time => None,
            Check::Root => (!is_root()).then(|| Lack::curable("not root")),
            Check::Mounts => {
                let mount = ["mount", "-t", "tmpfs", "none", "/mnt"];
                trial_lack(&[PRIVATE_MOUNTS.as_slice(), &mount].concat())
            }
            Check::Trial(command) => self.absence().or_else(|| trial_lack(command)),
            Check::Landlock => landlock_lack(),
            Check::GnuCp => gnu_cp_lack(),
            Check::Program(_) | Check::Toolchain(_) => self.absence(),
        }
    }

    /// The package that would be installed for a test and is not.
    pub(crate) fn missing_package(&self) -> Option<&'static str> {
        self.absence().filter(|lack| lack.is_curable)?;
        self.package
    }

    pub(crate) fn is_mounts(&self) -> bool {
        self.check == Check::Mounts
    }

    /// That its program is missing.
    fn absence(&self) -> Option<Lack> {
        let (Check::Program(program) | Check::Toolchain(program) | Check::Trial(&[program, ..])) =
            self.check
        else {
            return None;
        };
        let package = self.package?;
        let is_there =
            env::split_paths(&search_path()).any(|folder| folder.join(program).is_file());
        let reason = format!("{program} is not there; it is in Debian's package {package}");
        let lack = match self.check {
            Check::Toolchain(_) => Lack::of_machine(reason),
            _ => Lack::curable(reason),
        };
        (!is_there).then_some(lack)
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.package {
            Some(package) if package != self.name => {
                write!(f, "{} (package {package})", self.name)
            }
            _ => f.write_str(self.name),
        }
    }
}

/// `PATH` with the directories where programs for root are, which others lack.
pub(crate) fn search_path() -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    env::join_paths(env::split_paths(&path).chain(sbin)).unwrap_or(path)
}

/// Whether the effective user is root, as /proc says.
pub(crate) fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    effective_user(&status) == Some("0")
}

/// From `Uid: real effective saved filesystem`.
fn effective_user(status: &str) -> Option<&str> {
    let line = status.lines().find(|line| line.starts_with("Uid:"))?;
    line.split_whitespace().nth(2)
}

/// Why the command does not succeed, by the last line of what it says.
fn trial_lack(command: &[&str]) -> Option<Lack> {
    let (program, arguments) = command.split_first()?;
    let tried = Command::new(program)
        .args(arguments)
        .env("PATH", search_path())
        .stdin(Stdio::null())
        .output();
    match tried {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().next_back().unwrap_or("it said nothing");
            let command = command.join(" ");
            Some(Lack::of_machine(format!("`{command}` failed: {said}")))
        }
        Err(error) => {
            let reason = format!("`{program}` could not be started: {error}");
            Some(Lack::curable(reason))
        }
    }
}

/// Whether the kernel refuses a set of rules that it does not know, or has none at all.
fn landlock_lack() -> Option<Lack> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V6))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(ABI::V6)))
        .and_then(|rules| rules.scope(Scope::from_all(ABI::V6)))
        .and_then(|rules| rules.create());
    rules.err().map(|error| Lack::of_machine(error.to_string()))
}

/// Whether `cp` is another one.
fn gnu_cp_lack() -> Option<Lack> {
    let output = Command::new("cp").arg("--version").output().ok();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let said = said.unwrap_or_default();
    let version = said.lines().next().unwrap_or("no cp");
    let lacks = version != GNU_CP_VERSION;
    lacks.then(|| Lack::of_machine(format!("`{version}` is not {GNU_CP_VERSION}")))
}

#[cfg(test)]
pub(crate) fn fake_program(name: &'static str) -> Need {
    need(
        name,
        Some(name),
        Check::Program("underpass-no-such-program"),
    )
}

#[cfg(test)]
pub(crate) fn fake_toolchain() -> Need {
    let check = Check::Toolchain("underpass-no-such-program");
    need("underpass-none", Some("underpass-none"), check)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABSENCE: &str =
        "underpass-no-such-program is not there; it is in Debian's package underpass-none";

    #[test]
    fn the_effective_user_is_the_second() {
        let status = "Name:\ta\nUid:\t1000\t0\t1000\t1000\nGid:\t1\t1\t1\t1\n";
        assert_eq!(effective_user(status), Some("0"));
        assert_eq!(effective_user(""), None);
    }

    #[test]
    fn a_missing_program_is_a_lack_that_a_package_cures() {
        let need = fake_program("underpass-none");
        assert_eq!(need.lack(), Some(Lack::curable(ABSENCE)));
        assert_eq!(need.missing_package(), Some("underpass-none"));
    }

    #[test]
    fn a_missing_toolchain_is_no_fault_of_the_machine_and_not_installed() {
        assert_eq!(fake_toolchain().lack(), Some(Lack::of_machine(ABSENCE)));
        assert_eq!(fake_toolchain().missing_package(), None);
    }

    #[test]
    fn a_trial_that_fails_gives_the_last_line() {
        let reason = trial_lack(&["ls", "/no/such/file"]).map(|lack| lack.to_string());
        let reason = reason.expect("a reason");
        assert!(reason.starts_with("`ls /no/such/file` failed: ls: "));
        assert_eq!(trial_lack(&["true"]), None);
    }

    #[test]
    fn reasons_name_needs() {
        let names = |reason: &str| {
            let needs = of_reason(&format!("{reason}; run by cargo xtask test"))?;
            Ok(needs.iter().map(|need| need.name).collect())
        };
        let expected = Ok(vec!["root", "loop devices", "curl"]);
        assert_eq!(names("needs root, loop devices and curl"), expected);
        assert_eq!(names("needs a minute"), Ok(vec!["a minute"]));
        let unknown: Result<_, String> = names("needs luck");
        assert!(unknown.expect_err("no need").contains("`luck`"));
        assert!(of_reason("slow").is_err() && of_reason("needs root").is_err());
    }
}

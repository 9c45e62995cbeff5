//! Requirements of tests on the machine, and whether it meets them, which is tried out.
//!
//! A test names its needs in its attribute `#[ignore = "needs root, strace and curl; …"]`;
//! `needs.toml` describes each.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, OnceLock};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope,
};
use serde::Deserialize;

static TABLE: LazyLock<NeedTable> = LazyLock::new(|| {
    let table = include_str!("../needs.toml");
    toml::from_str(table).expect("needs.toml has the fields of a need")
});

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NeedTable {
    may_be_missing: Vec<Excuse>,
    need: Vec<Need>,
}

/// A reason why a machine for continuous integration may lack something.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Excuse {
    /// The name of a need, or of something else that runs tests.
    name: String,
    reason: String,
    /// A command that succeeds on the excused machines; `None` excuses all.
    r#where: Option<String>,
}

impl Excuse {
    /// Returns the reason why this machine may lack something with this name.
    fn of(name: &str) -> Option<&'static str> {
        let named = TABLE.may_be_missing.iter().find(|it| it.name == name)?;
        let holds = named.r#where.as_deref().and_then(failure).is_none();
        holds.then_some(&named.reason)
    }
}

/// Something a test needs; `needs.toml` describes the fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Need {
    name: String,
    package: Option<String>,
    program: Option<String>,
    trial: Option<String>,
    provide: Option<String>,
    landlock: bool,
    large: bool,
    all: bool,
    alone: bool,
    /// The result of [`Need::lack`], once tests are about to run.
    #[serde(skip)]
    tried: OnceLock<Option<Lack>>,
}

/// A program that runs another one in a separate mount namespace: its mounts end with it, however
/// it ends.
pub(crate) const PRIVATE_MOUNTS: [&str; 4] = ["unshare", "--mount", "--propagation", "private"];

const REASON_START: &str = "needs ";
const REASON_END: &str = "; run by cargo xtask test";

/// Parses the reason for which a test is ignored, which has the form
/// `needs NAME, NAME and NAME; run by cargo xtask test`.
///
/// # Errors
/// A message about a malformed reason or an unknown need.
pub(crate) fn of_reason(reason: &str) -> Result<Vec<&'static Need>, String> {
    let named = reason.strip_prefix(REASON_START);
    let Some(named) = named.and_then(|rest| rest.strip_suffix(REASON_END)) else {
        return Err(format!(
            "reads otherwise than `{REASON_START}…{REASON_END}`"
        ));
    };
    let names = named.split(", ").flat_map(|names| names.split(" and "));
    names.map(named_need).collect()
}

/// Returns the reason why the first unmet need of these is not met.
pub(crate) fn lack_of(names: &[&str]) -> Option<String> {
    let mut lacks = names.iter().map(|name| match named_need(name) {
        Ok(need) => need.lack().map(|lack| lack.to_string()),
        Err(unknown) => Some(unknown),
    });
    lacks.find_map(|lack| lack)
}

/// Returns why one of the needs is not met: the first lack without an excuse, else the first one.
/// Each need is tried once, after missing packages were installed.
pub(crate) fn worst_lack(needs: &[&Need]) -> Option<Lack> {
    let tried = |need: &&Need| need.tried.get_or_init(|| need.lack()).clone();
    let lacks: Vec<_> = needs.iter().filter_map(tried).collect();
    let worst = lacks.iter().find(|lack| !lack.is_excused());
    worst.or(lacks.first()).cloned()
}

fn named_need(name: &str) -> Result<&'static Need, String> {
    let found = Need::all().find(|need| need.name == name);
    let unknown = "the known ones are in xtask/needs.toml";
    found.ok_or_else(|| format!("names the unknown need `{name}`; {unknown}"))
}

/// The name by which needs.toml excuses a missing guest.
pub(crate) const GUEST: &str = "guest";

/// The reason why something could not be run.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Lack {
    reason: String,
    /// The reason why it is not a failure in continuous integration.
    excuse: Option<&'static str>,
}

impl Lack {
    /// Makes a lack with this name, by which needs.toml may excuse it.
    pub(crate) fn of(name: &str, reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            excuse: Excuse::of(name),
        }
    }

    /// Makes a lack for something that already counts as a failure.
    pub(crate) fn of_failure(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            excuse: Some("it has failed already"),
        }
    }

    pub(crate) fn is_excused(&self) -> bool {
        self.excuse.is_some()
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Need {
    pub(crate) fn all() -> impl Iterator<Item = &'static Need> {
        TABLE.need.iter()
    }

    /// Returns why the need is not met, or `None` if it is.
    pub(crate) fn lack(&self) -> Option<Lack> {
        self.absence().or_else(|| self.refusal())
    }

    /// Returns why a machine for continuous integration may lack it.
    pub(crate) fn excuse(&self) -> Option<&'static str> {
        Excuse::of(&self.name)
    }

    /// Returns the missing package that would be installed for a test.
    pub(crate) fn missing_package(&self) -> Option<&str> {
        self.absence().filter(|_| !self.large)?;
        self.package.as_deref()
    }

    /// Returns the shell command that would provide what the trial has not found.
    pub(crate) fn missing_provision(&self) -> Option<&str> {
        self.provide.as_deref().filter(|_| self.lack().is_some())
    }

    pub(crate) fn is_mounts(&self) -> bool {
        self.name == "mounts"
    }

    /// Returns whether only `cargo xtask test --all` runs the tests that need it.
    pub(crate) fn is_for_all(&self) -> bool {
        self.all
    }

    /// Returns whether a test that needs it runs while no other test does.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Returns a lack if its program is missing.
    fn absence(&self) -> Option<Lack> {
        let (program, package) = (self.program.as_ref()?, self.package.as_ref()?);
        if has_program(program) {
            return None;
        }
        let reason = format!("{program} is not there; it is in Debian's package {package}");
        Some(Lack::of(&self.name, reason))
    }

    /// Returns a lack if its trial fails, or if the kernel rejects Landlock rules.
    fn refusal(&self) -> Option<Lack> {
        let trial = self.trial.as_deref().and_then(failure);
        let reason = trial.or_else(|| landlock_failure().filter(|_| self.landlock))?;
        Some(Lack::of(&self.name, reason))
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match &self.package {
            Some(package) if *package != self.name => write!(f, " (package {package})"),
            _ => Ok(()),
        }
    }
}

/// Returns `PATH` with the directories of programs for root, which other users' `PATH` lacks.
pub(crate) fn search_path() -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/lib/openssh"];
    let sbin = folders.map(PathBuf::from);
    env::join_paths(env::split_paths(&path).chain(sbin)).unwrap_or(path)
}

/// Returns whether a directory of the search path has the program.
pub(crate) fn has_program(name: &str) -> bool {
    env::split_paths(&search_path()).any(|folder| folder.join(name).is_file())
}

/// Returns whether the effective user is root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a shell command in the workspace; returns the last line of its errors if it fails.
pub(crate) fn failure(command: &str) -> Option<String> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("PATH", search_path());
    shell.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    match shell.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.lines().next_back().map(str::to_owned);
            Some(last.unwrap_or_else(|| format!("`{command}` failed")))
        }
        Err(error) => Some(format!("sh could not be started: {error}")),
    }
}

/// Returns why the kernel rejects a set of rules: it does not know them, or has no Landlock.
fn landlock_failure() -> Option<String> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V6))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(ABI::V6)))
        .and_then(|rules| rules.scope(Scope::from_all(ABI::V6)))
        .and_then(|rules| rules.create());
    rules.err().map(|error| error.to_string())
}

#[cfg(test)]
pub(crate) fn fake_program(name: &str) -> Need {
    Need {
        name: name.to_owned(),
        package: Some(name.to_owned()),
        program: Some("underpass-no-such-program".to_owned()),
        ..Need::default()
    }
}

#[cfg(test)]
pub(crate) fn fake_toolchain() -> Need {
    Need {
        large: true,
        ..fake_program("underpass-none")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABSENCE: &str =
        "underpass-no-such-program is not there; it is in Debian's package underpass-none";

    fn unexcused(reason: &str) -> Lack {
        Lack::of("a need that the list does not name", reason)
    }

    #[test]
    fn a_missing_program_is_a_lack_that_a_package_cures() {
        let need = fake_program("underpass-none");
        assert_eq!(need.lack(), Some(unexcused(ABSENCE)));
        assert_eq!(need.missing_package(), Some("underpass-none"));
    }

    #[test]
    fn a_missing_toolchain_is_not_installed() {
        assert_eq!(fake_toolchain().lack(), Some(unexcused(ABSENCE)));
        assert_eq!(fake_toolchain().missing_package(), None);
    }

    #[test]
    fn a_trial_that_fails_gives_the_last_line() {
        let trial = |trial: &str| Need {
            trial: Some(trial.to_owned()),
            ..Need::default()
        };
        let failing = "echo one >&2; ! echo two >&2";
        assert_eq!(trial(failing).lack(), Some(unexcused("two")));
        let silent = unexcused("`false` failed");
        assert_eq!(trial("false").lack(), Some(silent));
        assert_eq!(trial("true").lack(), None);
    }

    #[test]
    fn what_the_list_names_may_be_missing_and_nothing_else() {
        let need = |name: &str| Need {
            name: name.to_owned(),
            trial: Some("false".to_owned()),
            ..Need::default()
        };
        for strict in [
            "root",
            "loop devices",
            "mounts",
            "strace",
            "network namespaces",
            "nginx-light",
            "python3",
            "XFS",
        ] {
            assert!(named_need(strict).is_ok(), "{strict} is a need");
            let lack = need(strict).lack().expect("a lack");
            assert!(!lack.is_excused(), "{strict}");
        }
        let module = need("kernel TLS").lack().expect("a lack");
        assert!(module.is_excused());
    }

    #[test]
    fn an_excuse_names_a_need_once_and_what_nobody_installs_has_one() {
        let excuses = &TABLE.may_be_missing;
        for excuse in excuses {
            let name = &excuse.name;
            assert!(name == GUEST || named_need(name).is_ok(), "{name}");
            assert_eq!(excuses.iter().filter(|it| it.name == *name).count(), 1);
            assert!(!excuse.reason.is_empty(), "{name}");
        }
        let large = Need::all().filter(|need| need.large);
        for need in large {
            assert!(need.excuse().is_some(), "nobody installs {need}");
        }
    }

    #[test]
    fn landlock_is_excused_where_the_kernel_is_too_old_for_it() {
        let landlock = TABLE.may_be_missing.iter();
        let landlock = landlock.filter_map(|excuse| excuse.r#where.as_deref());
        let landlock = landlock.into_iter().find(|it| it.contains("uname"));
        let is_excused = |release: &str| {
            let uname = format!("uname() {{ echo {release}; }}\n");
            failure(&(uname + landlock.expect("a command"))).is_none()
        };
        let releases = [
            "5.10.0-30-amd64",
            "6.1.0-30-amd64",
            "6.8.0-31",
            "6.12.0-1",
            "6.18.44",
        ];
        assert_eq!(releases.map(is_excused), [true, true, true, false, false]);
    }

    #[test]
    fn a_lack_that_nothing_excuses_outweighs_one_that_is_excused() {
        let need = |name: &str, trial: &str| Need {
            name: name.to_owned(),
            trial: Some(trial.to_owned()),
            ..Need::default()
        };
        let (module, root) = (need("kernel TLS", "false"), need("root", "false"));
        let met = need("mounts", "true");
        assert!(worst_lack(&[&module, &met]).is_some_and(|lack| lack.is_excused()));
        assert!(worst_lack(&[&module, &root]).is_some_and(|lack| !lack.is_excused()));
        assert_eq!(worst_lack(&[&met]), None);
    }

    #[test]
    fn what_is_provided_is_what_a_trial_has_not_found() {
        let need = |trial: &str| Need {
            trial: Some(trial.to_owned()),
            provide: Some("it".to_owned()),
            ..Need::default()
        };
        assert_eq!(need("false").missing_provision(), Some("it"));
        assert_eq!(need("true").missing_provision(), None);
    }

    #[test]
    fn a_need_has_a_name_of_its_own_and_a_program_has_a_package() {
        let mut names: Vec<_> = Need::all().map(|need| &need.name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(Need::all().all(|need| need.program.is_some() == need.package.is_some()));
        assert!(Need::all().any(Need::is_mounts));
    }

    #[test]
    fn reasons_name_needs() {
        let names = |reason: &str| {
            let needs = of_reason(&format!("{reason}; run by cargo xtask test"))?;
            Ok(needs.iter().map(|need| need.name.as_str()).collect())
        };
        let expected = Ok(vec!["root", "loop devices", "curl"]);
        assert_eq!(names("needs root, loop devices and curl"), expected);
        assert_eq!(names("needs a minute"), Ok(vec!["a minute"]));
        let unknown: Result<_, String> = names("needs luck");
        assert!(unknown.expect_err("no need").contains("`luck`"));
        assert!(of_reason("slow").is_err() && of_reason("needs root").is_err());
    }
}

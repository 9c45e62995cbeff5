//! What a test may need from the machine, and whether the machine has it: by trying.
//!
//! A test names its needs in its attribute `#[ignore = "needs root, strace and curl; …"]`;
//! `needs.toml` describes each.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope,
};
use serde::Deserialize;

static TABLE: LazyLock<NeedTable> = LazyLock::new(|| {
    let table = include_str!("../needs.toml");
    toml::from_str(table).expect("needs.toml has the fields of a need")
});

#[derive(Deserialize)]
struct NeedTable {
    need: Vec<Need>,
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
    large: Option<String>,
    refused: Option<String>,
}

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
    names.map(named_need).collect()
}

/// Why the first of the named needs that is not met is not met.
pub(crate) fn lack_of(names: &[&str]) -> Option<String> {
    let mut lacks = names.iter().map(|name| match named_need(name) {
        Ok(need) => need.lack().map(|lack| lack.to_string()),
        Err(unknown) => Some(unknown),
    });
    lacks.find_map(|lack| lack)
}

fn named_need(name: &str) -> Result<&'static Need, String> {
    let found = Need::all().find(|need| need.name == name);
    let unknown = "the known ones are in xtask/needs.toml";
    found.ok_or_else(|| format!("names the unknown need `{name}`; {unknown}"))
}

/// Why something could not be run.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
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
            is_curable: false,
            ..Self::curable(reason)
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
        TABLE.need.iter()
    }

    /// Why the need is not met, or `None` where it is.
    pub(crate) fn lack(&self) -> Option<Lack> {
        self.absence().or_else(|| self.refusal())
    }

    /// The package that would be installed for a test and is not.
    pub(crate) fn missing_package(&self) -> Option<&str> {
        self.absence().filter(|lack| lack.is_curable)?;
        self.package.as_deref()
    }

    /// The shell command that would provide what the trial has not found.
    pub(crate) fn missing_provision(&self) -> Option<&str> {
        self.provide.as_deref().filter(|_| self.lack().is_some())
    }

    pub(crate) fn is_mounts(&self) -> bool {
        self.name == "mounts"
    }

    /// That its program is missing.
    fn absence(&self) -> Option<Lack> {
        let (program, package) = (self.program.as_ref()?, self.package.as_ref()?);
        if has_program(program) {
            return None;
        }
        Some(Lack {
            reason: format!("{program} is not there; it is in Debian's package {package}"),
            is_curable: self.large.is_none(),
        })
    }

    /// That its trial fails, or that the kernel refuses Landlock's rules.
    fn refusal(&self) -> Option<Lack> {
        let trial = self.trial.as_deref().and_then(failure);
        let reason = trial.or_else(|| landlock_failure().filter(|_| self.landlock))?;
        Some(Lack {
            reason,
            is_curable: self.refused.is_none(),
        })
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

/// `PATH` with the directories where programs for root are, which others lack.
pub(crate) fn search_path() -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    env::join_paths(env::split_paths(&path).chain(sbin)).unwrap_or(path)
}

/// Whether a directory of the search path has the program.
pub(crate) fn has_program(name: &str) -> bool {
    env::split_paths(&search_path()).any(|folder| folder.join(name).is_file())
}

/// Whether the effective user is root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Why the shell command fails in the workspace, by the last line of its standard error.
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

/// Why the kernel refuses a set of rules: it does not know them, or has no Landlock at all.
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
        large: Some("it is not for a test".to_owned()),
        ..fake_program("underpass-none")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABSENCE: &str =
        "underpass-no-such-program is not there; it is in Debian's package underpass-none";

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
        let trial = |trial: &str, refused: Option<&str>| Need {
            trial: Some(trial.to_owned()),
            refused: refused.map(str::to_owned),
            ..Need::default()
        };
        let failing = "echo one >&2; ! echo two >&2";
        assert_eq!(trial(failing, None).lack(), Some(Lack::curable("two")));
        let refused = trial(failing, Some("the kernel may forbid it"));
        assert_eq!(refused.lack(), Some(Lack::of_machine("two")));
        let silent = Lack::curable("`false` failed");
        assert_eq!(trial("false", None).lack(), Some(silent));
        assert_eq!(trial("true", None).lack(), None);
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

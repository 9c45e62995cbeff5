//! User-mode Linux from a release of Debian: a kernel that runs as an ordinary program.
//!
//! Nothing is installed, and apt's own state does not change. The guest has this machine's files as
//! a read-only root, so that programs built here run there.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::workspace::{Fallible, output};

/// A fetched kernel.
pub(super) struct UserModeLinux {
    /// A folder for its files only.
    folder: PathBuf,
}

const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The time limit of a call of apt, which gives up on a silent mirror earlier.
const FETCH_SECONDS: &str = "120";

/// The prefix of the guest's line with the exit code of its command.
const END: &str = "guest: ";

/// The guest's init script. In `modules.dep` the dependencies of a module follow it, the first one
/// to load last; modules that a kernel has built in or does not know are missing.
const INIT: &str = r#"#!/bin/sh
mount -t proc none /proc && mount -t sysfs none /sys && mount -t tmpfs -o size=400m none /run
export TMPDIR=/run
mount -t tmpfs none $FOLDER/../../tmp
mkdir -p /dev/pts; mount -t devpts none /dev/pts; ulimit -n 65536
PATH=$FOLDER/usr/bin:$FOLDER/bin:$PATH
modules=$FOLDER/usr/lib/uml/modules/$(uname -r)
busybox ip link set lo up
for name in gcm ccm ctr ghash ghash-generic chacha chacha_generic poly1305_generic \
    chacha20poly1305 tls sch_netem; do
    files=
    for file in $(grep "/$name.ko:" $modules/modules.dep | tr -d :); do files="$file $files"; done
    for file in $files; do busybox insmod $modules/$file 2>/dev/null; done
done
echo "Linux $(uname -r)"
( $COMMAND )
echo "guest: $?"
busybox poweroff -f
"#;

impl UserModeLinux {
    /// Fetches the kernel of a release into `folder`, unless it is there already.
    ///
    /// # Errors
    /// A message about something missing on this machine, or the error of apt.
    pub(super) fn fetch(folder: PathBuf, release: &str) -> Fallible<UserModeLinux> {
        if ARCH != "x86_64" {
            return Err(format!("not for {ARCH}").into());
        }
        let uml = UserModeLinux { folder };
        let complete = uml.folder.join("complete");
        if !complete.exists() {
            let _incomplete = fs::remove_dir_all(&uml.folder);
            fs::create_dir_all(&uml.folder)?;
            // The patchelf of the oldest release runs with any C library.
            uml.unpack("bookworm", &["patchelf"])?;
            let patchelf = uml.folder.join("patchelf");
            fs::rename(uml.folder.join("usr/bin/patchelf"), &patchelf)?;
            uml.unpack(release, &["user-mode-linux", "libc6", "busybox-static"])?;
            let libraries = ["usr/lib", "lib"].map(|lib| uml.folder.join(lib));
            let libraries = libraries.map(|lib| lib.join("x86_64-linux-gnu"));
            let loader = |lib: &PathBuf| lib.join("ld-linux-x86-64.so.2");
            let mut libraries = libraries.iter().filter(|lib| loader(lib).is_file());
            let libraries = libraries.next().ok_or("libc6 has no loader")?;
            let mut version = Command::new(uml.program());
            // A kernel built for an older C library than this machine's runs with the machine's.
            if output(version.arg("--version").env("HOME", &uml.folder)).is_err() {
                let mut patch = Command::new(patchelf);
                patch.arg("--set-interpreter").arg(loader(libraries));
                patch.args(["--force-rpath", "--set-rpath"]).arg(libraries);
                output(patch.arg(uml.program()))?;
            }
            fs::write(complete, "")?;
        }
        Ok(uml)
    }

    fn program(&self) -> PathBuf {
        self.folder.join("usr/bin/linux.uml")
    }

    /// Downloads packages of a release, with signatures checked by apt, and unpacks them.
    fn unpack(&self, release: &str, packages: &[&str]) -> Fallible<()> {
        let downloads = self.folder.join("downloads");
        for folder in ["lists/partial", "cache/archives/partial", "downloads"] {
            fs::create_dir_all(self.folder.join(folder))?;
        }
        let source = format!(
            "deb [arch=amd64 signed-by={KEYS}] {} {release} main\n",
            mirror()?
        );
        fs::write(self.folder.join("sources"), source)?;
        fs::write(self.folder.join("status"), "")?;
        for call in [&["update"][..], &[&["download"], packages].concat()] {
            let mut apt = Command::new("timeout");
            apt.args([FETCH_SECONDS, "apt-get", "-qq"])
                .current_dir(&downloads);
            for (name, file) in [
                ("Dir::State", ""),
                ("Dir::State::lists", "lists"),
                ("Dir::State::status", "status"),
                ("Dir::Cache", "cache"),
                ("Dir::Etc::sourcelist", "sources"),
            ] {
                let file = self.folder.join(file);
                apt.args(["-o", &format!("{name}={}", file.display())]);
            }
            for option in [
                "APT::Sandbox::User=root",
                "Dir::Etc::sourceparts=/dev/null",
                "Dir::Etc::preferences=/dev/null",
                "Dir::Etc::preferencesparts=/dev/null",
                "Acquire::Languages=none",
            ] {
                apt.args(["-o", option]);
            }
            output(apt.args(call))?;
        }
        for package in fs::read_dir(&downloads)? {
            let mut unpack = Command::new("dpkg-deb");
            output(unpack.arg("-x").arg(package?.path()).arg(&self.folder))?;
        }
        ["downloads", "lists", "cache"]
            .iter()
            .try_for_each(|folder| fs::remove_dir_all(self.folder.join(folder)))?;
        Ok(())
    }

    /// Returns a program that boots the guest, runs `command` in a shell there as root, prints its
    /// output, and succeeds if it did. It is killed after `seconds`.
    pub(super) fn boot(&self, command: &str, seconds: u32) -> Fallible<Command> {
        let folder = self.folder.display().to_string();
        let (init, console) = (self.folder.join("init"), self.folder.join("console"));
        let script = INIT
            .replace("$FOLDER", &folder)
            .replace("$COMMAND", command);
        fs::write(&init, script)?;
        output(Command::new("chmod").arg("+x").arg(&init))?;
        let mut boot = Command::new("sh");
        boot.args([
            "-c",
            "console=$1; shift; \"$@\" 2>&1 | tee $console; grep -q \"$END\" $console",
        ])
        .args([Path::new("boot"), &console])
        .args(["timeout", "--kill-after=10", &seconds.to_string()])
        .arg(self.program())
        .args("root=/dev/root rootfstype=hostfs rootflags=/ ro mem=1024M".split(' '))
        .args("quiet loglevel=3 con=null con0=null,fd:1".split(' '))
        .arg(format!("init={}", init.display()))
        .args(["umid=guest", &format!("uml_dir={folder}/")])
        .env("END", format!("^{END}0"))
        // Kernels before 7 crash without HOME. The guest's memory is a file in TMPDIR.
        .envs(["HOME", "TMPDIR"].map(|name| (name, &self.folder)))
        .stdin(Stdio::null());
        Ok(boot)
    }
}

/// Returns the mirror used by this machine.
fn mirror() -> Fallible<String> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let mut apt = Command::new("apt-get");
    apt.args([
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
    ]);
    apt.args([
        "Origin: Debian",
        &format!("Codename: {}", codename.unwrap_or("none")),
    ]);
    let mirrors = output(&mut apt).unwrap_or_default();
    let first = mirrors
        .lines()
        .next()
        .ok_or("apt has no mirror of Debian")?;
    Ok(first.to_owned())
}

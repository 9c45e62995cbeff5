//! User-mode Linux of a release of Debian: a kernel that runs as an ordinary program.
//!
//! Nothing is installed, and apt's own state stays as it is. The guest has this machine's files as
//! its root, which it cannot change, so that programs built here run there.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::workspace::{Fallible, output};

/// A kernel that was fetched.
pub(super) struct UserModeLinux {
    /// Has only what belongs to it.
    folder: PathBuf,
}

const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// For a call of apt. A mirror that does not answer is given up before.
const FETCH_SECONDS: &str = "120";

/// The tail of a line of the guest's that says how its command ended.
const END: &str = "guest: ";

/// What the guest does first and last. Of modules, those that one needs stand behind it in
/// `modules.dep`, the first needed last; those that a kernel has built in or does not know are
/// missing.
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
    /// Fetches that of a release into `folder`, unless it is there already.
    ///
    /// # Errors
    /// What is missing on this machine, or what apt says.
    pub(super) fn fetch(folder: PathBuf, release: &str) -> Fallible<UserModeLinux> {
        if ARCH != "x86_64" {
            return Err(format!("not for {ARCH}").into());
        }
        let uml = UserModeLinux { folder };
        let complete = uml.folder.join("complete");
        if !complete.exists() {
            let _incomplete = fs::remove_dir_all(&uml.folder);
            fs::create_dir_all(&uml.folder)?;
            // The one of the oldest release runs with any C library.
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
            // One that is older than this machine's C library runs with that.
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

    /// Downloads packages of a release, whose signatures apt checks, and unpacks them.
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

    /// A program that boots it, has a shell run `command` there as root, prints what that prints,
    /// and succeeds if it did. It is killed after `seconds`.
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
        // Without HOME kernels before 7 crash. The guest's memory is a file in TMPDIR.
        .envs(["HOME", "TMPDIR"].map(|name| (name, &self.folder)))
        .stdin(Stdio::null());
        Ok(boot)
    }
}

/// The mirror that this machine uses.
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

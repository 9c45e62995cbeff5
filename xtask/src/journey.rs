//! `cargo xtask journey`: counts the source files that a request and a copy pass, by coverage.
//!
//! ```text
//! our crates, instrumented ─► serve: 100 requests, count, 100 more, count ─► what grew by 100
//!                          └► cp -a of one file ─► what ran at all
//! ```
//!
//! A file is passed when one of its functions is called. The compiler instruments only our crates,
//! so dependencies are not rebuilt, and counts calls, inlined or not.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitCode};
use std::time::{Duration, SystemTime};

use underpass_testkit::{HttpClient, ServerProcess};

use crate::artifacts;
use crate::needs::lack_of;
use crate::tidy::{Tree, in_layers};
use crate::workspace::{Fallible, Workspace, exit_code, output};

/// Set when cargo runs this program as its compiler.
const COMPILER: &str = "XTASK_INSTRUMENTS";

/// Counters are kept in a file while the program runs, which can be copied at any time.
const INSTRUMENT: [&str; 3] = [
    "-Cinstrument-coverage",
    "-Cllvm-args=-runtime-counter-relocation",
    "-Cdebuginfo=0",
];

/// The folder of the instrumented build.
const FOLDER: &str = "target/journey";

const REQUESTS: u64 = 100;
const CONTENT: &[u8] = b"a file of one line\n";

/// The source files that one operation passes.
struct Journey {
    operation: &'static str,
    files_max: usize,
    /// Paths relative to the root of the workspace, in the order of the layers.
    files: Vec<(String, Passage)>,
}

/// The called functions of a file, and the number of calls.
#[derive(Debug, Default, PartialEq)]
struct Passage {
    functions: usize,
    calls: u64,
}

/// The number of calls of each function, by file.
type Counters = BTreeMap<String, BTreeMap<String, u64>>;

pub(crate) fn run(workspace: &Workspace) -> Fallible<ExitCode> {
    let journeys = journeys(workspace)?;
    journeys.iter().for_each(|journey| println!("{journey}"));
    Ok(exit_code(journeys.iter().all(Journey::is_short)))
}

/// Makes the journeys of a hot GET and of a copy.
fn journeys(workspace: &Workspace) -> Fallible<Vec<Journey>> {
    if let Some(lack) = lack_of(&["llvm-tools"]) {
        return Err(lack.into());
    }
    let folder = tempfile::tempdir()?;
    let tools = Tools::of(workspace)?;
    let program = build(workspace)?;
    let site = folder.path().join("site");
    fs::create_dir(&site)?;
    fs::write(site.join("file"), CONTENT)?;
    // A file that has just changed may change again unnoticed, so the server would not cache it.
    let past = SystemTime::now() - Duration::from_secs(3600);
    fs::File::options()
        .write(true)
        .open(site.join("file"))?
        .set_modified(past)?;
    let tree = Tree::read(workspace)?;
    let journey = |operation, files_max, passed: BTreeMap<String, Passage>| {
        let order = in_layers(&tree, &passed.keys().map(String::as_str).collect());
        let mut files: Vec<_> = passed.into_iter().collect();
        files.sort_by_key(|(file, _)| order.iter().position(|found| found == file));
        Journey {
            operation,
            files_max,
            files,
        }
    };
    let (before, after) = requests(&tools, &program, &site)?;
    let copy = copy(&tools, &program, &site)?;
    Ok(vec![
        journey("GET of a hot file", 25, passed(&before, &after, REQUESTS)),
        journey("cp -a of one file", 30, passed(&Counters::new(), &copy, 1)),
    ])
}

impl Journey {
    fn is_short(&self) -> bool {
        self.files.len() <= self.files_max
    }
}

impl fmt::Display for Journey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            operation,
            files_max,
            files,
        } = self;
        writeln!(
            f,
            "{operation}: {} files, of at most {files_max}",
            files.len()
        )?;
        writeln!(f, "  functions  calls  file")?;
        for (file, Passage { functions, calls }) in files {
            writeln!(f, "  {functions:9}  {calls:5}  {file}")?;
        }
        Ok(())
    }
}

/// The compiler's own tools for reading coverage data.
struct Tools {
    root: PathBuf,
    profdata: PathBuf,
    cov: PathBuf,
}

impl Tools {
    fn of(workspace: &Workspace) -> Fallible<Self> {
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output = Command::new(rustc)
            .args(["--print", "target-libdir"])
            .current_dir(&workspace.root)
            .output()?;
        let libraries = PathBuf::from(String::from_utf8(output.stdout)?.trim());
        let programs = libraries.with_file_name("bin");
        Ok(Self {
            root: workspace.root.clone(),
            profdata: programs.join("llvm-profdata"),
            cov: programs.join("llvm-cov"),
        })
    }

    /// Returns the counters of a program at this time.
    fn read(&self, program: &Path, raw: &Path) -> Fallible<Counters> {
        let (copy, indexed) = (raw.with_extension("copy"), raw.with_extension("profdata"));
        fs::copy(raw, &copy)?;
        let mut merge = Command::new(&self.profdata);
        output(
            merge
                .args(["merge", "-sparse", "-o"])
                .args([&indexed, &copy]),
        )?;
        let mut export = Command::new(&self.cov);
        export.args(["export", "-format=lcov", "-instr-profile"]);
        let traced = output(export.args([&indexed, program]))?;
        Ok(counters(&traced, &self.root))
    }
}

/// Runs the compiler with our flags, if cargo has started this process as its compiler.
pub(crate) fn compile() -> Option<ExitCode> {
    env::var_os(COMPILER)?;
    let mut arguments = env::args_os().skip(1);
    let error = Command::new(arguments.next()?)
        .args(arguments)
        .args(INSTRUMENT)
        .exec();
    eprintln!("error: {error}");
    Some(ExitCode::FAILURE)
}

/// Builds the tool with counters, apart from the ordinary one, which other tests may be using.
fn build(workspace: &Workspace) -> Fallible<PathBuf> {
    let mut instrumented = artifacts::debug_build(workspace);
    instrumented.args(["--target-dir", FOLDER]);
    // By process id, since the tests may have replaced the file of this program.
    let own = format!("/proc/{}/exe", process::id());
    instrumented.env("RUSTC_WORKSPACE_WRAPPER", own);
    artifacts::tool(instrumented.env(COMPILER, "1"))
}

/// Returns the counters of a server before and after requests for a file requested earlier.
fn requests(tools: &Tools, program: &Path, site: &Path) -> Fallible<(Counters, Counters)> {
    let raw = site.with_file_name("serve.profraw");
    let server = ServerProcess::serve(counting(program, &raw), &[], site);
    let mut client = HttpClient::connect(server.address());
    let mut ask = || {
        for _ in 0..REQUESTS {
            let response = client.get("/file");
            if response.body != CONTENT {
                return Err(format!("not the content of the file: {response:?}"));
            }
        }
        Ok(())
    };
    ask()?;
    let before = tools.read(program, &raw)?;
    ask()?;
    let after = tools.read(program, &raw)?;
    server.stop();
    Ok((before, after))
}

fn copy(tools: &Tools, program: &Path, site: &Path) -> Fallible<Counters> {
    let raw = site.with_file_name("cp.profraw");
    let mut cp = counting(program, &raw);
    cp.args(["cp", "-a"]).arg(site.join("file"));
    output(cp.arg(site.with_file_name("copy")))?;
    tools.read(program, &raw)
}

fn counting(program: &Path, raw: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LLVM_PROFILE_FILE", format!("{}%c", raw.display()));
    command
}

/// Parses `SF:file` and `FNDA:calls,function`, without files outside of the root.
fn counters(traced: &str, root: &Path) -> Counters {
    let mut counters = Counters::new();
    let mut file = None;
    for line in traced.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let ours = Path::new(path).strip_prefix(root).ok();
            file = ours.map(|path| path.to_string_lossy().into_owned());
        }
        let called = line
            .strip_prefix("FNDA:")
            .and_then(|line| line.split_once(','));
        if let (Some(file), Some((calls, function))) = (&file, called) {
            let functions = counters.entry(file.clone()).or_default();
            functions.insert(function.to_owned(), calls.parse().unwrap_or(0));
        }
    }
    counters
}

/// Returns the files with functions that were called at least `times` between the two counts.
fn passed(before: &Counters, after: &Counters, times: u64) -> BTreeMap<String, Passage> {
    let passage = |file: &String, functions: &BTreeMap<String, u64>| {
        let earlier = |name| before.get(file).and_then(|before| before.get(name));
        let grown = functions
            .iter()
            .map(|(name, calls)| calls - earlier(name).unwrap_or(&0));
        let grown: Vec<_> = grown.filter(|grown| *grown >= times).collect();
        Passage {
            functions: grown.len(),
            calls: grown.iter().sum::<u64>() / times,
        }
    };
    let files = after
        .iter()
        .map(|(file, functions)| (file.clone(), passage(file, functions)));
    files.filter(|(_, passage)| passage.functions > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(traced: &str) -> Counters {
        counters(traced, Path::new("/w"))
    }

    #[test]
    fn counters_are_read_and_others_files_left_out() {
        let traced = "SF:/w/a/src/b.rs\nFN:1,f\nFNDA:2,f\nFNDA:0,g\nDA:1,2\nend_of_record\n\
                      SF:/c/d.rs\nFNDA:3,h\nend_of_record\n";
        let counters = of(traced);
        assert_eq!(counters.len(), 1);
        assert_eq!(counters["a/src/b.rs"]["f"], 2);
        assert_eq!(counters["a/src/b.rs"]["g"], 0);
    }

    #[test]
    fn a_file_is_passed_where_a_function_runs_every_time() {
        let before = of("SF:/w/a.rs\nFNDA:7,f\nSF:/w/b.rs\nFNDA:1,g\nSF:/w/c.rs\nFNDA:9,i\n");
        let after = of(
            "SF:/w/a.rs\nFNDA:207,f\nSF:/w/b.rs\nFNDA:3,g\nSF:/w/c.rs\nFNDA:9,i\n\
             SF:/w/d.rs\nFNDA:100,j\nFNDA:100,k\n",
        );
        let passed = passed(&before, &after, 100);
        let passage = |functions, calls| Passage { functions, calls };
        let expected = [("a.rs", passage(1, 2)), ("d.rs", passage(2, 2))];
        assert_eq!(
            passed,
            expected.map(|(file, it)| (file.to_owned(), it)).into()
        );
    }

    #[test]
    fn a_journey_is_short_or_not() {
        let journey = |files: usize| Journey {
            operation: "GET",
            files_max: 2,
            files: (0..files)
                .map(|number| (format!("{number}.rs"), Passage::default()))
                .collect(),
        };
        assert!(journey(2).is_short() && !journey(3).is_short());
        assert!(
            journey(3)
                .to_string()
                .starts_with("GET: 3 files, of at most 2\n")
        );
    }
}

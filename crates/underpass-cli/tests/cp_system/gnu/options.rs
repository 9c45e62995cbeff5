//! The options of cp, their frequencies, and their spellings.

use underpass_testkit::SeededRandom;

/// An option, of which one spelling is drawn; a spelling is one argument.
#[derive(Debug)]
pub(crate) struct Choice {
    /// The name by which coverage is counted.
    pub(crate) name: &'static str,
    percent: usize,
    spellings: &'static [&'static str],
}

const fn choice(name: &'static str, percent: usize, spellings: &'static [&'static str]) -> Choice {
    Choice {
        name,
        percent,
        spellings,
    }
}

/// Options that depend on the operands (`-t`, `-T`) are not drawn here.
pub(crate) const CHOICES: [Choice; 26] = [
    choice("-a", 12, &["-a", "-a", "--archive"]),
    choice("-b", 8, &["-b"]),
    choice(
        "--backup",
        7,
        &[
            "--backup",
            "--backup=numbered",
            "--backup=t",
            "--backup=existing",
            "--backup=nil",
            "--backup=simple",
            "--backup=never",
            "--backup=none",
            "--backup=off",
            "--backup=wrong",
            "--backup=n",
        ],
    ),
    choice("-S", 6, &["-S.bak", "--suffix=.old", "-S", "--suffix=x"]),
    choice("-d", 7, &["-d"]),
    choice("-f", 14, &["-f", "--force"]),
    choice("-i", 7, &["-i", "--interactive"]),
    choice("-H", 8, &["-H"]),
    choice("-l", 7, &["-l", "--link"]),
    choice("-L", 9, &["-L", "--dereference"]),
    choice("-n", 8, &["-n", "--no-clobber"]),
    choice("-P", 8, &["-P", "--no-dereference"]),
    choice("-p", 14, &["-p", "-p", "--preserve"]),
    choice(
        "--preserve=",
        14,
        &[
            "--preserve=mode",
            "--preserve=ownership",
            "--preserve=timestamps",
            "--preserve=links",
            "--preserve=xattr",
            "--preserve=all",
            "--preserve=mode,xattr",
            "--preserve=timestamps,links",
            "--preserve=mode,timestamps",
            "--preserve=nothing",
        ],
    ),
    choice(
        "--no-preserve=",
        8,
        &[
            "--no-preserve=mode",
            "--no-preserve=ownership",
            "--no-preserve=timestamps",
            "--no-preserve=links",
            "--no-preserve=xattr",
            "--no-preserve=all",
            "--no-preserve=mode,links",
        ],
    ),
    choice("--attributes-only", 7, &["--attributes-only", "--attr"]),
    choice("--copy-contents", 7, &["--copy-contents"]),
    choice("--parents", 10, &["--parents", "--parents", "--par"]),
    choice("-R", 55, &["-R", "-r", "--recursive", "-r"]),
    choice(
        "--reflink",
        9,
        &[
            "--reflink=auto",
            "--reflink=never",
            "--reflink=always",
            "--reflink",
            "--reflink=no",
        ],
    ),
    choice(
        "--remove-destination",
        9,
        &["--remove-destination", "--remove"],
    ),
    choice(
        "--sparse",
        13,
        &[
            "--sparse=auto",
            "--sparse=always",
            "--sparse=never",
            "--sparse=always",
        ],
    ),
    choice(
        "--strip-trailing-slashes",
        7,
        &["--strip-trailing-slashes", "--strip"],
    ),
    choice("-s", 5, &["-s", "--symbolic-link"]),
    choice("-u", 10, &["-u", "--update"]),
    choice("-v", 25, &["-v", "-v", "--verbose"]),
];

/// `-x` is drawn separately: a world is on one file system.
pub(crate) const BORDER: Choice = choice("-x", 8, &["-x", "--one-file-system"]);

/// The drawn options: their names, and the arguments in some order.
#[derive(Debug, Default)]
pub(crate) struct Drawn {
    pub(crate) names: Vec<&'static str>,
    pub(crate) arguments: Vec<Vec<u8>>,
}

impl Drawn {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    pub(crate) fn is_recursive(&self) -> bool {
        self.has("-R") || self.has("-a")
    }
}

pub(crate) fn draw(rng: &mut SeededRandom) -> Drawn {
    let mut drawn = Drawn::default();
    for choice in CHOICES.iter().chain([&BORDER]) {
        if !rng.chance(choice.percent) || is_pointless(rng, &drawn, choice.name) {
            continue;
        }
        drawn.names.push(choice.name);
        let at = rng.below(drawn.arguments.len() + 1);
        let spelling = rng.pick(choice.spellings);
        drawn.arguments.insert(at, spelling.into());
    }
    if rng.chance(30) {
        cluster(&mut drawn.arguments);
    }
    for at in (0..drawn.arguments.len()).rev() {
        if drawn.arguments[at] == b"-S" {
            drawn.arguments.insert(at + 1, b".suffix".to_vec());
        }
    }
    drawn
}

/// Returns whether to skip an option that is a usage error with the drawn ones; a few are kept.
fn is_pointless(rng: &mut SeededRandom, drawn: &Drawn, name: &str) -> bool {
    let clash = match name {
        "-s" => drawn.has("-l"),
        "-n" => drawn.has("-b") || drawn.has("--backup"),
        _ => false,
    };
    clash && rng.chance(80)
}

/// Joins short options: `-r -p -v` becomes `-rpv`.
fn cluster(arguments: &mut Vec<Vec<u8>>) {
    let mut clustered: Vec<Vec<u8>> = Vec::new();
    for argument in arguments.drain(..) {
        match clustered.last_mut() {
            Some(last) if argument.len() == 2 && are_letters(&argument) && are_letters(last) => {
                last.push(argument[1]);
            }
            _ => clustered.push(argument),
        }
    }
    *arguments = clustered;
}

/// Returns whether an argument consists of short options without a value.
fn are_letters(argument: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic() && *byte != b'S';
    matches!(argument, [b'-', letters @ ..] if !letters.is_empty() && letters.iter().all(is_letter))
}

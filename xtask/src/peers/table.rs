//! Who is measured beside Underpass: the only place that names them.

use std::fmt;

/// What is installed or compiled as one.
pub(super) struct Kit {
    pub(super) name: &'static str,
    /// Looked for in the search path, that of `target/peers` included.
    pub(super) program: &'static str,
    pub(super) source: Source,
    /// The arguments with which it tells its version.
    pub(super) version: &'static [&'static str],
    /// For programs of `peers/`: commands that compile them into `target/peers`.
    pub(super) build: &'static [&'static [&'static str]],
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Source {
    Workspace,
    /// A package of Debian, installed where the program is missing.
    Debian(&'static str),
    /// A package of crates.io, installed into `target/peers`.
    CratesIo(&'static str),
}

/// One of those measured: a kit in one of its variants.
pub(super) struct Peer {
    /// Unique within the experiment.
    pub(super) name: &'static str,
    pub(super) kit: &'static Kit,
    pub(super) experiment: Experiment,
    pub(super) part: Part,
    /// Run in the root of the workspace; the placeholders are those of `underpass bench`.
    pub(super) command: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub(super) enum Experiment {
    /// Files over HTTP
    Serve,
    /// Small bodies over HTTP, by size
    Small,
    /// Hot requests beside cold files
    Cold,
    /// A thousand slow readers
    Many,
    /// Files to files
    Copy,
    /// Files into a socket
    Socket,
    /// Trees and special files, by programs
    Tree,
}

/// What it is to the bench.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Part {
    /// It listens.
    Server,
    /// It goes on and does jobs as told on its standard input.
    Porter,
    /// It is started anew for each copy.
    Program,
}

impl Part {
    pub(super) fn option(self) -> &'static str {
        match self {
            Part::Server => "--server",
            Part::Porter => "--peer",
            Part::Program => "--program",
        }
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Experiment::Serve => "serve",
            Experiment::Small => "small",
            Experiment::Cold => "cold",
            Experiment::Many => "many",
            Experiment::Copy => "copy",
            Experiment::Socket => "socket",
            Experiment::Tree => "tree",
        })
    }
}

/// A package of Debian whose program has the same name.
const fn debian(name: &'static str, version: &'static [&'static str]) -> Kit {
    Kit {
        name,
        program: name,
        source: Source::Debian(name),
        version,
        build: &[],
    }
}

const fn crates_io(name: &'static str) -> Kit {
    Kit {
        source: Source::CratesIo(name),
        ..debian(name, &["--version"])
    }
}

const UNDERPASS: Kit = Kit {
    source: Source::Workspace,
    ..debian("underpass", &["--version"])
};

const C: Kit = Kit {
    name: "C",
    program: "cc",
    source: Source::Debian("gcc"),
    version: &["--version"],
    build: &[
        &["mkdir", "-p", "target/peers/c"],
        &cc("target/peers/c/send", "peers/c/send.c"),
        &cc("target/peers/c/copy", "peers/c/copy.c"),
    ],
};

/// Compiles a porter in C.
const fn cc(program: &'static str, source: &'static str) -> [&'static str; 9] {
    let porter = "peers/c/porter.c";
    [
        "cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, porter, source,
    ]
}

const JAVA: Kit = Kit {
    name: "Java",
    program: "javac",
    source: Source::Debian("default-jdk-headless"),
    version: &["--version"],
    build: &[&[
        "javac",
        "-d",
        "target/peers/java",
        "peers/java/Porter.java",
        "peers/java/Send.java",
        "peers/java/Copy.java",
    ]],
};
const GO: Kit = Kit {
    name: "Go",
    program: "go",
    source: Source::Debian("golang-go"),
    version: &["version"],
    build: &[
        &["mkdir", "-p", "target/peers/go"],
        &[
            "env",
            "-C",
            "peers/go",
            "go",
            "build",
            "-buildvcs=false",
            "-o",
            "../../target/peers/go/",
            "./...",
        ],
    ],
};
const PYTHON: Kit = Kit {
    name: "Python",
    ..debian("python3", &["--version"])
};

const NGINX: Kit = Kit {
    source: Source::Debian("nginx-light"),
    ..debian("nginx", &["-v"])
};
const LIGHTTPD: Kit = debian("lighttpd", &["-v"]);
const H2O: Kit = debian("h2o", &["--version"]);
const CADDY: Kit = debian("caddy", &["version"]);
const STATIC_WEB_SERVER: Kit = crates_io("static-web-server");
const DUFS: Kit = crates_io("dufs");
const MINISERVE: Kit = crates_io("miniserve");

const COREUTILS: Kit = Kit {
    name: "coreutils",
    program: "cp",
    ..debian("coreutils", &["--version"])
};
const RSYNC: Kit = debian("rsync", &["--version"]);
const XCP: Kit = crates_io("xcp");
const CPX: Kit = crates_io("cpx");

/// All of them.
pub(super) const KITS: &[&Kit] = &[
    &UNDERPASS,
    &C,
    &JAVA,
    &GO,
    &PYTHON,
    &NGINX,
    &LIGHTTPD,
    &H2O,
    &CADDY,
    &STATIC_WEB_SERVER,
    &DUFS,
    &MINISERVE,
    &COREUTILS,
    &RSYNC,
    &XCP,
    &CPX,
];

const fn server(name: &'static str, kit: &'static Kit, command: &'static str) -> Peer {
    Peer {
        name,
        kit,
        experiment: Experiment::Serve,
        part: Part::Server,
        command,
    }
}

const fn sender(name: &'static str, kit: &'static Kit, command: &'static str) -> Peer {
    Peer {
        experiment: Experiment::Socket,
        part: Part::Porter,
        ..server(name, kit, command)
    }
}

/// A server that takes part in more than `serve`.
const fn also(experiment: Experiment, peer: Peer) -> Peer {
    Peer { experiment, ..peer }
}

const fn nginx() -> Peer {
    let command = "nginx -p {own} -c {file:peers/nginx.conf} -e stderr";
    server("nginx", &NGINX, command)
}

const fn nginx_threads() -> Peer {
    let command = "nginx -p {own} -c {file:peers/nginx-threads.conf} -e stderr";
    server("nginx, aio threads", &NGINX, command)
}

const fn lighttpd() -> Peer {
    let command = "lighttpd -D -f {file:peers/lighttpd.conf}";
    server("lighttpd", &LIGHTTPD, command)
}

const fn copier(name: &'static str, kit: &'static Kit, part: Part, command: &'static str) -> Peer {
    Peer {
        experiment: Experiment::Copy,
        part,
        ..server(name, kit, command)
    }
}

/// A program that copies whatever it is given: `{reflink}` says whether it is to share blocks.
const fn tree(name: &'static str, kit: &'static Kit, command: &'static str) -> Peer {
    Peer {
        experiment: Experiment::Tree,
        ..copier(name, kit, Part::Program, command)
    }
}

/// What `cp -r` does, and no more: xcp would keep times.
const fn xcp_tree() -> Peer {
    let command = "xcp --no-progress --no-timestamps --recursive {reflink} {from} {to}";
    tree("xcp", &XCP, command)
}

const fn xcp_tree_alone() -> Peer {
    let command = "xcp --no-progress --no-timestamps --recursive --workers 1 {reflink} {from} {to}";
    tree("xcp, 1 worker", &XCP, command)
}

/// All of them, the ones to beat first. A row is a line, so that variants stand below each other.
#[rustfmt::skip]
pub(super) const PEERS: &[Peer] = &[
    nginx(),
    server("nginx plain", &NGINX, "nginx -p {own} -c {file:peers/nginx-plain.conf} -e stderr"),
    server("nginx copying", &NGINX, "nginx -p {own} -c {file:peers/nginx-copying.conf} -e stderr"),
    lighttpd(),
    server("h2o", &H2O, "h2o -c {file:peers/h2o.conf}"),
    server("caddy", &CADDY, "caddy run --config {file:peers/Caddyfile} --adapter caddyfile"),
    server(
        "static-web-server",
        &STATIC_WEB_SERVER,
        "static-web-server --root {root} --host {host} --port {port} --threads-multiplier 1 \
         --compression false --log-level error",
    ),
    server("dufs", &DUFS, "dufs {root} --bind {host} --port {port} --log-format ''"),
    server("miniserve", &MINISERVE, "miniserve {root} --interfaces {host} --port {port}"),
    server(
        "go ServeContent",
        &GO,
        "target/peers/go/httpd serve-content -root {root} -listen {address}",
    ),
    server(
        "go io.Copy",
        &GO,
        "target/peers/go/httpd plain-copy -root {root} -listen {address}",
    ),
    server("go hijacked", &GO, "target/peers/go/httpd hijack -root {root} -listen {address}"),
    also(Experiment::Small, nginx()),
    also(Experiment::Small, lighttpd()),
    also(Experiment::Cold, nginx()),
    also(Experiment::Cold, nginx_threads()),
    also(Experiment::Cold, lighttpd()),
    also(Experiment::Many, nginx()),
    also(Experiment::Many, lighttpd()),
    copier("underpass cp", &UNDERPASS, Part::Program, "underpass cp {from} {to}"),
    copier("GNU cp", &COREUTILS, Part::Program, "cp {from} {to}"),
    copier("GNU cp, no reflink", &COREUTILS, Part::Program, "cp --reflink=never {from} {to}"),
    copier("rsync", &RSYNC, Part::Program, "rsync --whole-file --inplace {from} {to}"),
    copier("xcp", &XCP, Part::Program, "xcp --no-progress {from} {to}"),
    copier("cpx", &CPX, Part::Program, "cpx --no-config {from} {to}"),
    copier("C read/write", &C, Part::Porter, "target/peers/c/copy read-write"),
    copier("C sendfile", &C, Part::Porter, "target/peers/c/copy sendfile"),
    copier("C copy_file_range", &C, Part::Porter, "target/peers/c/copy copy_file_range"),
    copier("Java Files.copy", &JAVA, Part::Porter, "java -cp target/peers/java Copy files-copy"),
    copier("Java transferTo", &JAVA, Part::Porter, "java -cp target/peers/java Copy transfer-to"),
    copier("Go io.Copy", &GO, Part::Porter, "target/peers/go/copy io-copy"),
    copier("Go wrapped", &GO, Part::Porter, "target/peers/go/copy wrapped"),
    copier("Python shutil", &PYTHON, Part::Porter, "python3 peers/python/copy_files.py shutil"),
    tree("GNU cp", &COREUTILS, "cp -r {reflink} {from} {to}"),
    xcp_tree(),
    xcp_tree_alone(),
    tree("cpx", &CPX, "cpx copy --no-config --recursive {reflink} {from} {to}"),
    tree("cpx -j 1", &CPX, "cpx copy --no-config --recursive -j 1 {reflink} {from} {to}"),
    sender("C read/write", &C, "target/peers/c/send read-write"),
    sender("C sendfile", &C, "target/peers/c/send sendfile"),
    sender("C mmap+write", &C, "target/peers/c/send mmap-write"),
    sender("Java streams", &JAVA, "java -cp target/peers/java Send streams"),
    sender("Java transferTo", &JAVA, "java -cp target/peers/java Send transfer-to"),
    sender("Go io.Copy", &GO, "target/peers/go/send copy"),
    sender("Go wrapped", &GO, "target/peers/go/send wrapped"),
    sender("Python sendfile", &PYTHON, "python3 peers/python/send_files.py sendfile"),
    sender("Python read/send", &PYTHON, "python3 peers/python/send_files.py read-send"),
];

//! What a program asked of the kernel, as strace writes it down.

use std::collections::HashMap;
use std::path::Path;

/// Every call by which payload could travel.
pub(crate) const PAYLOAD_CALLS: &str = "trace=read,readv,pread64,preadv,preadv2,write,writev,\
     pwrite64,pwritev,pwritev2,sendto,sendmsg,sendmmsg,recvfrom,recvmsg,recvmmsg,sendfile,splice,\
     vmsplice,tee,copy_file_range,ioctl,mmap,lseek";

/// strace's arguments, up to the program: descriptors come with what they are.
pub(crate) fn strace(log: &str) -> [&str; 8] {
    let options = ["strace", "-f", "-yy", "--seccomp-bpf", "-o", log, "-e"];
    let [strace, follow, decode, bpf, output, log, trace] = options;
    [
        strace,
        follow,
        decode,
        bpf,
        output,
        log,
        trace,
        PAYLOAD_CALLS,
    ]
}

/// One call that ended.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) arguments: String,
    /// The count; none for errors.
    pub(crate) moved: Option<u64>,
}

impl Call {
    /// `16<TCP:[127.0.0.1:80->127.0.0.1:4711]>` or `17</srv/big>`, from 0 on.
    pub(crate) fn argument(&self, place: usize) -> &str {
        self.arguments.split(", ").nth(place).unwrap_or_default()
    }

    fn parse(line: &str) -> Option<Self> {
        let (call, result) = line.rsplit_once(" = ")?;
        let (name, arguments) = call.trim_end().strip_suffix(')')?.split_once('(')?;
        Some(Self {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            moved: result.split(' ').next()?.parse().ok(),
        })
    }
}

/// All calls of a log, those that another thread's interrupted put together again.
pub(crate) fn calls(log: &Path) -> Vec<Call> {
    let log = std::fs::read_to_string(log).expect("a log");
    let mut begun: HashMap<&str, &str> = HashMap::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        let Some((thread, line)) = line.split_once(' ') else {
            continue;
        };
        let line = line.trim_start();
        if let Some(start) = line.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, start);
        } else if let Some((_, rest)) = line.split_once(" resumed>") {
            let start = begun.remove(thread).unwrap_or_default();
            calls.extend(Call::parse(&format!("{start}{rest}")));
        } else {
            calls.extend(Call::parse(line));
        }
    }
    calls
}

/// Bytes that went by this call where `matching` says so.
pub(crate) fn bytes(calls: &[Call], name: &str, matching: impl Fn(&Call) -> bool) -> u64 {
    calls
        .iter()
        .filter(|call| call.name == name && matching(call))
        .filter_map(|call| call.moved)
        .sum()
}

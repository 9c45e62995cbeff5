//! Documents like those of real runs, for tests: every experiment, figures with a spread.

use crate::document::{
    Axis, Better, Case, Contender, Document, Experiment, Figures, Measured, PayloadPath,
    RunOutcome, SCHEMA, SystemCalls, Tool, Unit,
};
use crate::machine::Machine;
use crate::stats::{RatioEstimate, Spread};

/// Random numbers that are the same in each run of a test: splitmix64.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Of mean 0 and deviation 1 (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.share()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.share()).cos()
    }

    /// Figures around `median` whose logarithms deviate by `spread`.
    pub(crate) fn rounds(&mut self, median: f64, spread: f64, rounds: usize) -> Vec<f64> {
        (0..rounds)
            .map(|_| median * (spread * self.normal()).exp())
            .collect()
    }
}

const MB: f64 = 1e6;
const GIB: f64 = (1_u64 << 30) as f64;
const MOVERS: [&str; 10] = [
    "sendfile",
    "splice",
    "splice, pipe 64 KiB",
    "read+write 64 KiB",
    "read+write 1 MiB",
    "mmap+write",
    "Python sendfile",
    "Java transferTo",
    "Go io.Copy",
    "Rust std::io::copy",
];
const SERVERS: [&str; 7] = [
    "underpass",
    "nginx",
    "lighttpd",
    "Apache httpd",
    "Caddy",
    "darkhttpd",
    "Python http.server",
];
const COPIERS: [&str; 6] = [
    "underpass cp",
    "cp",
    "cp --reflink=never",
    "dd bs=1M",
    "rsync -W",
    "Python shutil",
];

/// All experiments, 7 rounds.
pub(crate) fn document() -> Document {
    run(1, 0.03, 7)
}

/// All experiments; `seed` chooses the noise, `spread` how much of it there is.
pub(crate) fn run(seed: u64, spread: f64, rounds: usize) -> Document {
    let mut make = Maker {
        chance: Chance(seed),
        spread,
        rounds,
    };
    let mut document = empty();
    document.experiments = vec![
        make.socket("receiver discards", 0.05),
        make.socket("receiver copies", 0.15),
        make.copy("on ext4", 1.0),
        make.copy("on tmpfs", 0.4),
        make.http(),
        make.small(),
        make.cold(),
        make.many(),
        make.tree(),
    ];
    document
}

/// A run in which nothing was measured.
pub(crate) fn empty() -> Document {
    Document {
        schema: SCHEMA,
        tool: Tool {
            name: "underpass".into(),
            version: "0.1.0".into(),
        },
        date: "2026-01-31".into(),
        command: "bench --rounds 7 all".into(),
        seconds: 1512.0,
        outcome: RunOutcome::Complete,
        machine: Machine {
            processors: 2,
            processor_model: "AMD EPYC 7B13".into(),
            virtual_machine: true,
            kernel: "6.1.0-18-amd64".into(),
            memory_bytes: 8 << 30,
            congestion_control: "cubic".into(),
            file_system: "ext4".into(),
        },
        warnings: vec![
            "the processors change their frequency (governor powersave): what runs later may run \
             faster or slower; `cpupower frequency-set -g performance` stops that"
                .into(),
        ],
        experiments: Vec::new(),
    }
}

struct Maker {
    chance: Chance,
    spread: f64,
    rounds: usize,
}

impl Maker {
    /// A metric whose medians are given, by contender.
    fn metric(
        &mut self,
        (metric, label): (&str, &str),
        (unit, better): (Unit, Option<Better>),
        medians: &[f64],
    ) -> Measured {
        let rounds: Vec<Vec<f64>> = medians
            .iter()
            .map(|&median| self.chance.rounds(median, self.spread, self.rounds))
            .collect();
        measured(
            (metric, label),
            (unit, better),
            rounds.into_iter().map(Some).collect(),
        )
    }

    fn socket(&mut self, variant: &str, copying: f64) -> Experiment {
        let sizes = [7.0, 15.0, 30.0, 70.0, 150.0, 300.0, 700.0, 1000.0];
        let cases = sizes.map(|megabytes| {
            let label = match megabytes {
                1000.0 => "1 GB".to_owned(),
                below => format!("{below:.0} MB"),
            };
            let each = |place: usize| 0.06 + copying + 0.033 * place as f64 + 0.4 / megabytes;
            let cpu: Vec<f64> = (0..MOVERS.len()).map(each).collect();
            let rate: Vec<f64> = cpu.iter().map(|cpu| GIB / (cpu * 1.1 + 0.02)).collect();
            let calls: Vec<f64> = (0..MOVERS.len())
                .map(|p| megabytes * (p + 1) as f64)
                .collect();
            let mut case = case(&label, megabytes * MB, "one connection over loopback");
            case.metrics = vec![
                self.metric(
                    ("cpu_per_gib", "processor time per GiB"),
                    (Unit::SecondsPerGib, Some(Better::Lower)),
                    &cpu,
                ),
                self.metric(
                    ("throughput", "throughput"),
                    (Unit::BytesPerSecond, Some(Better::Higher)),
                    &rate,
                ),
                self.metric(
                    ("context_switches", "context switches"),
                    (Unit::Count, None),
                    &calls,
                ),
                self.metric(("calls", "system calls"), (Unit::Count, None), &calls),
            ];
            case.travelled = vec![
                travelled(0, "sendfile", megabytes),
                travelled(1, "splice", 1.0),
            ];
            case
        });
        Experiment {
            measured: "A file is sent from the page cache over a loopback connection; the sender \
                       is measured alone."
                .into(),
            reading: "Processor time per GiB says what sending costs whoever sends; it does not \
                      depend on how fast the receiver is."
                .into(),
            axis: Axis {
                label: "file size".into(),
                unit: Unit::Bytes,
            },
            contenders: MOVERS.iter().map(|name| contender(name)).collect(),
            cases: cases.into(),
            ..experiment("socket", variant, "From a file to a socket", self.rounds)
        }
    }

    fn copy(&mut self, variant: &str, slowness: f64) -> Experiment {
        let sizes = [
            "10 KiB", "100 KiB", "1 MiB", "10 MiB", "100 MiB", "512 MiB", "1 GiB",
        ];
        let bytes = [
            10.0,
            100.0,
            1024.0,
            10_240.0,
            102_400.0,
            524_288.0,
            1_048_576.0,
        ];
        let mut cases: Vec<Case> = Vec::new();
        for (label, kib) in sizes.iter().zip(bytes) {
            let each = |p: usize| 1.0 / (2e-5 + slowness * kib * 4e-7 * (1.0 + 0.25 * p as f64));
            let rates: Vec<f64> = (0..COPIERS.len()).map(each).collect();
            let cpu: Vec<f64> = rates.iter().map(|rate| 0.8 / rate).collect();
            let mut case = case(label, kib * 1024.0, "page cache to page cache");
            case.metrics = vec![
                self.metric(
                    ("operations", "copies per second"),
                    (Unit::PerSecond, Some(Better::Higher)),
                    &rates,
                ),
                self.metric(
                    ("cpu_per_operation", "processor time per copy"),
                    (Unit::Seconds, Some(Better::Lower)),
                    &cpu,
                ),
            ];
            cases.push(case);
        }
        if let Some(last) = cases.last_mut() {
            let user: Vec<f64> = (0..COPIERS.len())
                .map(|p| 0.001 + 0.06 * p as f64)
                .collect();
            let system: Vec<f64> = (0..COPIERS.len()).map(|p| 0.30 + 0.05 * p as f64).collect();
            let wall: Vec<f64> = user
                .iter()
                .zip(&system)
                .map(|(u, s)| (u + s) * 1.1)
                .collect();
            let seconds = (Unit::Seconds, Some(Better::Lower));
            last.metrics
                .push(self.metric(("wall", "elapsed time"), seconds, &wall));
            last.metrics
                .push(self.metric(("user", "user time"), seconds, &user));
            last.metrics
                .push(self.metric(("system", "system time"), seconds, &system));
        }
        Experiment {
            measured: "A file that is in the page cache is copied to a new file.".into(),
            reading: "Small files show what a copy costs at all, large ones what a byte costs."
                .into(),
            axis: Axis {
                label: "file size".into(),
                unit: Unit::Bytes,
            },
            contenders: COPIERS.iter().map(|name| contender(name)).collect(),
            cases,
            ..experiment("copy", variant, "From a file to a file", self.rounds)
        }
    }

    fn http(&mut self) -> Experiment {
        let places = 0..SERVERS.len();
        let of = |f: fn(f64) -> f64| places.clone().map(|p| f(p as f64)).collect::<Vec<_>>();
        let (lower, higher) = (Some(Better::Lower), Some(Better::Higher));
        let mut case = case(
            "1 MiB",
            GIB / 1024.0,
            "30 connections kept alive, 1 MiB each",
        );
        case.metrics = vec![
            self.metric(
                ("requests", "requests per second"),
                (Unit::PerSecond, higher),
                &of(|p| 6200.0 / (1.0 + 0.3 * p)),
            ),
            self.metric(
                ("throughput", "transfer rate"),
                (Unit::BytesPerSecond, higher),
                &of(|p| 6200.0 * 1_048_576.0 / (1.0 + 0.3 * p)),
            ),
            self.metric(
                ("cpu_share", "processor share"),
                (Unit::Share, lower),
                &of(|p| (0.42 + 0.09 * p).min(1.0)),
            ),
            self.metric(
                ("p50", "latency, median"),
                (Unit::Seconds, lower),
                &of(|p| 0.0048 * (1.0 + 0.3 * p)),
            ),
            self.metric(
                ("p99", "latency, 99 %"),
                (Unit::Seconds, lower),
                &of(|p| 0.009 * (1.0 + p)),
            ),
            self.metric(
                ("peak_resident", "resident memory, peak"),
                (Unit::Bytes, lower),
                &of(|p| 6.2e6 * (1.0 + p * p)),
            ),
        ];
        for place in places {
            self.watched(&mut case, place);
        }
        case.notes
            .push("2 of 7 rounds were disturbed by other programs and count all the same".into());
        Experiment {
            measured: "A client on another processor fetches one file again and again.".into(),
            reading: "More requests with a smaller share of the processor is better.".into(),
            contenders: SERVERS.iter().map(|name| contender(name)).collect(),
            cases: vec![case],
            ..experiment("http", "", "An HTTP file server", self.rounds)
        }
    }

    /// Calls of one server.
    fn watched(&mut self, case: &mut Case, place: usize) {
        case.calls.push(SystemCalls {
            contender: place,
            operations: 1000,
            by_name: vec![("sendfile".into(), 2100), ("recvfrom".into(), 1000)],
        });
    }

    fn small(&mut self) -> Experiment {
        let mut cases = Vec::new();
        for power in 0..12_u32 {
            let bytes = f64::from(64_u32 << power);
            let label = match bytes {
                1024.0.. => format!("{} KiB", bytes / 1024.0),
                _ => format!("{bytes} B"),
            };
            let mut case = case(&label, bytes, "30 connections kept alive");
            let rates = [
                52_000.0 / (1.0 + bytes / 65_536.0),
                47_000.0 / (1.0 + bytes / 90_000.0),
            ];
            case.metrics.push(self.metric(
                ("requests_per_cpu", "requests per second of processor time"),
                (Unit::PerSecond, Some(Better::Higher)),
                &rates,
            ));
            cases.push(case);
        }
        Experiment {
            measured: "Bodies that grow, sent by one call or by two.".into(),
            reading: "Where the lines cross, sendfile begins to pay.".into(),
            axis: Axis {
                label: "body size".into(),
                unit: Unit::Bytes,
            },
            contenders: ["from memory", "sendfile"].map(contender).into(),
            cases,
            ..experiment("small", "", "Small bodies", self.rounds)
        }
    }

    fn cold(&mut self) -> Experiment {
        let mut case = case(
            "100 MB",
            100.0 * MB,
            "one connection, the page cache dropped before",
        );
        let lower = Some(Better::Lower);
        let medians = [0.8, 0.82, 1.4];
        case.metrics
            .push(self.metric(("wall", "elapsed time"), (Unit::Seconds, lower), &medians));
        let medians = [1.0, 31.0, 2.5];
        case.metrics.push(self.metric(
            ("worst", "worst latency of another request"),
            (Unit::Seconds, lower),
            &medians.map(|median| median / 1000.0),
        ));
        Experiment {
            measured: "A file that is not in the page cache is fetched, and a small one meanwhile."
                .into(),
            reading: "A server that waits for the disk lets everybody wait.".into(),
            contenders: ["underpass", "nginx", "darkhttpd"].map(contender).into(),
            cases: vec![case],
            notes: vec!["the disk was limited to 120 MiB/s".into()],
            ..experiment("cold", "", "Cold files", self.rounds)
        }
    }

    fn many(&mut self) -> Experiment {
        let cases = [10.0, 100.0, 1000.0, 5000.0].map(|connections: f64| {
            let mut case = case(
                &format!("{connections} connections"),
                connections,
                "1 KiB bodies",
            );
            let medians = [1.0, 1.1, 1.9].map(|slow| 31_000.0 / slow / (1.0 + connections / 4e4));
            let mut requests = self.metric(
                ("requests", "requests per second"),
                (Unit::PerSecond, Some(Better::Higher)),
                &medians,
            );
            if connections > 1000.0 {
                // One that can't be measured there.
                requests.figures[2] = None;
                requests.comparisons[2] = None;
            }
            case.metrics.push(requests);
            case
        });
        Experiment {
            measured: "Many connections ask for small bodies at once.".into(),
            reading: "A line that stays level costs nothing per connection.".into(),
            axis: Axis {
                label: "connections".into(),
                unit: Unit::Count,
            },
            contenders: ["underpass", "nginx", "Apache httpd"].map(contender).into(),
            cases: cases.into(),
            ..experiment("many", "", "Many connections", self.rounds)
        }
    }

    fn tree(&mut self) -> Experiment {
        let lower = Some(Better::Lower);
        let label = "100000 files of 4 KiB";
        let mut case = case(label, 0.0, "blocks shared or not as each program does");
        for (name, label, unit, medians) in [
            ("wall", "time of a copy", Unit::Seconds, [3.1, 1.8, 3.2]),
            ("cpu", "its processor time", Unit::Seconds, [3.0, 3.1, 2.9]),
            ("peak_resident", "peak memory", Unit::Bytes, [5e6, 6e6, 3e6]),
        ] {
            let measured = self.metric((name, label), (unit, lower), &medians);
            case.metrics.push(measured);
        }
        Experiment {
            measured: "A program is started to copy a tree.".into(),
            reading: "Most of it is the file system, which creates files.".into(),
            contenders: ["underpass cp -j 1", "underpass cp -j 2", "GNU cp"]
                .map(contender)
                .into(),
            cases: vec![case],
            ..experiment("tree", "on ext4, -j 1", "A tree copied", self.rounds)
        }
    }
}

/// A metric with its spreads and comparisons, made as a run makes them.
pub(crate) fn measured(
    (metric, label): (&str, &str),
    (unit, better): (Unit, Option<Better>),
    rounds: Vec<Option<Vec<f64>>>,
) -> Measured {
    let compare = |(index, theirs): (usize, &Option<Vec<f64>>)| {
        let ours = rounds[0].as_ref().filter(|_| index > 0)?;
        better.and(RatioEstimate::of(ours, theirs.as_ref()?))
    };
    Measured {
        metric: metric.into(),
        label: label.into(),
        unit,
        better,
        comparisons: rounds.iter().enumerate().map(compare).collect(),
        figures: rounds
            .iter()
            .map(|rounds| {
                let rounds = rounds.clone()?;
                Some(Figures {
                    spread: Spread::of(&rounds)?,
                    rounds,
                })
            })
            .collect(),
    }
}

pub(crate) fn case(label: &str, x: f64, load: &str) -> Case {
    Case {
        label: label.into(),
        x,
        load: load.into(),
        ..Case::default()
    }
}

pub(crate) fn contender(name: &str) -> Contender {
    Contender {
        name: name.into(),
        version: format!("{name} 1.2.3"),
        command: vec![name.into(), "--root".into(), "/srv".into()],
        environment: vec![("TZ".into(), "UTC".into())],
        configuration: (name == "nginx").then(|| "worker_processes 1;\nsendfile on;\n".into()),
    }
}

pub(crate) fn experiment(name: &str, variant: &str, title: &str, rounds: usize) -> Experiment {
    Experiment {
        name: name.into(),
        variant: variant.into(),
        title: title.into(),
        rounds,
        ..Experiment::default()
    }
}

fn travelled(contender: usize, mechanism: &str, megabytes: f64) -> PayloadPath {
    let bytes = (megabytes * MB) as u64;
    PayloadPath {
        contender,
        mechanism: mechanism.into(),
        bytes,
        calls: 1,
        refusals: 0,
    }
}

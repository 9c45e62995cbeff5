//! The cases: which files, which load, which figures.

use std::time::Duration;

use clap::ValueEnum;

use super::data::Batch;
use super::metric::Metric;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CaseName {
    /// 100 MiB files from the page cache: what a GiB costs the server
    Large,
    /// 1 KiB files over kept-alive connections
    Small,
    /// A thousand slow readers of one large file: the server's peak memory
    Memory,
    /// Latency of hot 1 KiB requests while cold files stream on other connections
    Cold,
    /// Body sizes from 1 to 256 KiB: where one write beats head and sendfile
    Crossover,
}

/// How much work a round is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    Full,
    /// To see that all of it works; too short for figures worth keeping.
    Quick,
}

pub(crate) struct Case {
    pub(crate) name: CaseName,
    /// Tells apart the parts of a case that has several; empty for the others.
    pub(crate) part: String,
    pub(crate) load: Load,
    pub(crate) metrics: &'static [Metric],
    /// What a metric has to stay below to be called good.
    pub(crate) bar: Option<(Metric, f64)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Load {
    /// Every connection asks again as soon as its answer is complete.
    Closed {
        batch: Batch,
        connections: usize,
        requests: u64,
    },
    /// Every connection reads a little of one large file now and then, and none finishes.
    Slow {
        batch: Batch,
        connections: usize,
        hold: Duration,
    },
    /// Hot requests at a steady pace while each cold file streams once.
    Cold {
        hot: Batch,
        interval: Duration,
        cold: Batch,
        streams: usize,
    },
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Hot requests of the cold case: enough per second for a 99th percentile, few enough that an
/// unhindered server has no queue.
const HOT_INTERVAL: Duration = Duration::from_micros(500);

/// The promise about memory: a thousand connections, a file of any size.
const PEAK_RESIDENT_MIB: f64 = 64.0;

const CROSSOVER_KIB: [u64; 12] = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256];

/// The case or its parts; `connections` replaces the number of connections of closed loads.
pub(crate) fn cases(name: CaseName, scale: Scale, connections: Option<usize>) -> Vec<Case> {
    match name {
        CaseName::Large => vec![large(scale, connections.unwrap_or(4))],
        CaseName::Small => vec![small(scale, connections.unwrap_or(64))],
        CaseName::Memory => vec![memory(scale)],
        CaseName::Cold => vec![cold(scale)],
        CaseName::Crossover => CROSSOVER_KIB
            .map(|body_kib| crossover(scale, connections.unwrap_or(32), body_kib))
            .into(),
    }
}

fn large_batch(scale: Scale) -> Batch {
    Batch {
        name: "large",
        count: scale.pick(8, 2),
        bytes: 100 * MIB,
    }
}

fn small_batch() -> Batch {
    Batch {
        name: "small",
        count: 1000,
        bytes: KIB,
    }
}

fn large(scale: Scale, connections: usize) -> Case {
    let requests = scale.pick(128, 16);
    Case {
        name: CaseName::Large,
        part: String::new(),
        load: Load::Closed {
            batch: large_batch(scale),
            connections,
            requests,
        },
        metrics: &[
            Metric::ServerCpuPerGib,
            Metric::AllCpuPerGib,
            Metric::GibPerSecond,
        ],
        bar: None,
    }
}

fn small(scale: Scale, connections: usize) -> Case {
    let requests = scale.pick(150_000, 15_000);
    Case {
        name: CaseName::Small,
        part: String::new(),
        load: Load::Closed {
            batch: small_batch(),
            connections,
            requests,
        },
        metrics: &[
            Metric::RequestsPerCore,
            Metric::RequestsPerSecond,
            Metric::LatencyP50,
            Metric::LatencyP99,
        ],
        bar: None,
    }
}

fn crossover(scale: Scale, connections: usize, body_kib: u64) -> Case {
    let batch = Batch {
        name: "crossover",
        count: 64,
        bytes: body_kib * KIB,
    };
    let requests = scale.pick(30_000, 3_000);
    Case {
        name: CaseName::Crossover,
        part: format!("{body_kib} KiB"),
        load: Load::Closed {
            batch,
            connections,
            requests,
        },
        metrics: &[Metric::RequestsPerCore],
        bar: None,
    }
}

fn memory(scale: Scale) -> Case {
    let batch = Batch {
        name: "huge",
        count: 1,
        bytes: scale.pick(1024, 256) * MIB,
    };
    let hold = Duration::from_secs(scale.pick(4, 1));
    Case {
        name: CaseName::Memory,
        part: String::new(),
        load: Load::Slow {
            batch,
            connections: 1000,
            hold,
        },
        metrics: &[Metric::PeakResident, Metric::TcpBuffers],
        bar: Some((Metric::PeakResident, PEAK_RESIDENT_MIB)),
    }
}

fn cold(scale: Scale) -> Case {
    Case {
        name: CaseName::Cold,
        part: String::new(),
        load: Load::Cold {
            hot: small_batch(),
            interval: HOT_INTERVAL,
            cold: large_batch(scale),
            streams: 2,
        },
        metrics: &[
            Metric::LatencyP50,
            Metric::LatencyP99,
            Metric::LatencyMax,
            Metric::GibPerSecond,
            Metric::StorageRead,
        ],
        bar: None,
    }
}

impl Case {
    pub(crate) fn title(&self) -> String {
        let name = self.name.to_possible_value();
        name.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The load in plain words, the part left out.
    pub(crate) fn describe(&self) -> String {
        match self.load {
            Load::Closed {
                batch,
                connections,
                requests,
            } => {
                let size = match self.part.is_empty() {
                    true => format!("{} of {}", batch.count, size(batch.bytes)),
                    false => format!("{} of each size", batch.count),
                };
                format!(
                    "{connections} connections, each asking again at once; files: {size}, in the \
                     page cache; {requests} requests a round"
                )
            }
            Load::Slow {
                batch,
                connections,
                hold,
            } => format!(
                "{connections} slow readers of one file of {} at once, held for {hold:?}; the \
                 server is started anew for each round",
                size(batch.bytes)
            ),
            Load::Cold {
                hot,
                interval,
                cold,
                streams,
            } => format!(
                "a hot file of {} every {interval:?} while {} cold files of {}, evicted from the \
                 page cache before, stream over {streams} other connections",
                size(hot.bytes),
                cold.count,
                size(cold.bytes)
            ),
        }
    }

    /// Whether a byte from storage would spoil the figures.
    pub(crate) fn wants_page_cache(&self) -> bool {
        matches!(self.load, Load::Closed { .. })
    }

    /// Peak memory only ever rises: its case needs a server that has done nothing yet.
    pub(crate) fn needs_fresh_server(&self) -> bool {
        matches!(self.load, Load::Slow { .. })
    }
}

impl Scale {
    fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            Scale::Full => full,
            Scale::Quick => quick,
        }
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        MIB.. => format!("{} MiB", bytes / MIB),
        _ => format!("{} KiB", bytes / KIB),
    }
}

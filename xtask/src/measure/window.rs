//! What a server cost while something ran, and what else the machine was doing.
//!
//! The server's own processor time is the figure. The rest of a window tells whether to believe
//! it: the client's time (was the client the limit?), the kernel's network threads, and what
//! neither of them used, which is other people's load.

use std::time::{Duration, Instant};

use super::error::Result;
use super::proc::{self, CpuReading, CpuSource, MachineTicks};
use super::server::Server;

/// Other load or stolen time, as a share of one processor, from which a figure is not worth
/// keeping.
const FOREIGN_SHARE_MAX: f64 = 0.10;

/// Less than this is no finding: the clocks behind it tick every 10 ms.
const FOREIGN_MIN: Duration = Duration::from_millis(60);

/// Shares above and below which the client and not the server was the limit.
const CLIENT_BUSY_MIN: f64 = 0.95;
const SERVER_BUSY_MAX: f64 = 0.80;

#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) wall: Duration,
    pub(crate) server_cpu: Duration,
    pub(crate) server_cpu_source: CpuSource,
    pub(crate) client_cpu: Duration,
    /// The part of it in which the client only looked for something to do.
    pub(crate) client_idle: Duration,
    /// The kernel's network threads.
    pub(crate) network_cpu: Duration,
    /// Processor time of everything else on this machine.
    pub(crate) foreign_cpu: Duration,
    /// Time that the hypervisor gave to other machines.
    pub(crate) steal: Duration,
    /// The time over which the last two were taken: `wall` and settling.
    pub(crate) elapsed: Duration,
}

/// Readings of all clocks at one moment.
struct Moment {
    at: Instant,
    server: CpuReading,
    client: CpuReading,
    network: CpuReading,
    machine: MachineTicks,
}

/// Runs `work` between two readings, each taken when the server has settled.
pub(crate) fn observe<T>(server: &Server, work: impl FnOnce() -> Result<T>) -> Result<(T, Window)> {
    let before = Moment::now(server)?;
    let start = Instant::now();
    let done = work()?;
    let wall = start.elapsed();
    let after = Moment::now(server)?;
    Ok((done, after.since(&before, wall)))
}

impl Moment {
    fn now(server: &Server) -> Result<Moment> {
        let server = server.settled_cpu()?;
        Ok(Moment {
            at: Instant::now(),
            server,
            client: CpuReading::of_process(std::process::id()),
            network: proc::network_threads_cpu()?,
            machine: proc::machine_ticks()?,
        })
    }

    fn since(&self, before: &Moment, wall: Duration) -> Window {
        let (server_cpu, server_cpu_source) = self.server.since(&before.server);
        let (client_cpu, _) = self.client.since(&before.client);
        let (network_cpu, _) = self.network.since(&before.network);
        let busy = proc::ticks(self.machine.busy.saturating_sub(before.machine.busy));
        let foreign_cpu = busy.saturating_sub(server_cpu + client_cpu + network_cpu);
        let steal = proc::ticks(self.machine.steal.saturating_sub(before.machine.steal));
        Window {
            wall,
            server_cpu,
            server_cpu_source,
            client_cpu,
            client_idle: Duration::ZERO,
            network_cpu,
            foreign_cpu,
            steal,
            elapsed: self.at - before.at,
        }
    }
}

impl Window {
    pub(crate) fn is_disturbed(&self) -> bool {
        let disturbs = |taken: Duration| {
            taken >= FOREIGN_MIN && self.share_of_elapsed(taken) > FOREIGN_SHARE_MAX
        };
        disturbs(self.foreign_cpu) || disturbs(self.steal)
    }

    /// A time as a share of one processor while this window was open.
    pub(crate) fn share_of_elapsed(&self, taken: Duration) -> f64 {
        taken.as_secs_f64() / self.elapsed.as_secs_f64()
    }

    /// Whether the figures tell about the client rather than about the server.
    pub(crate) fn is_client_bound(&self) -> bool {
        self.client_share() >= CLIENT_BUSY_MIN && self.server_share() < SERVER_BUSY_MAX
    }

    pub(crate) fn server_share(&self) -> f64 {
        self.server_cpu.as_secs_f64() / self.wall.as_secs_f64()
    }

    pub(crate) fn client_share(&self) -> f64 {
        self.client_busy().as_secs_f64() / self.wall.as_secs_f64()
    }

    /// The client's processor time without its spinning.
    pub(crate) fn client_busy(&self) -> Duration {
        self.client_cpu.saturating_sub(self.client_idle)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A second of wall time with the given shares of a processor.
    pub(crate) fn window(server: f64, client: f64, foreign: f64, steal: f64) -> Window {
        Window {
            wall: Duration::from_secs(1),
            server_cpu: Duration::from_secs_f64(server),
            server_cpu_source: CpuSource::Schedstat,
            client_cpu: Duration::from_secs_f64(client),
            client_idle: Duration::ZERO,
            network_cpu: Duration::ZERO,
            foreign_cpu: Duration::from_secs_f64(foreign),
            steal: Duration::from_secs_f64(steal),
            elapsed: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_busy_client_before_an_idle_server_is_called_the_limit() {
        assert!(window(0.6, 0.99, 0.0, 0.0).is_client_bound());
        assert!(!window(0.9, 0.99, 0.0, 0.0).is_client_bound());
        assert!(!window(0.6, 0.8, 0.0, 0.0).is_client_bound());
    }

    #[test]
    fn a_spinning_client_is_not_a_busy_one() {
        let mut spinning = window(0.6, 0.99, 0.0, 0.0);
        spinning.client_idle = Duration::from_millis(400);
        assert!(!spinning.is_client_bound());
    }

    #[test]
    fn other_load_and_stolen_time_disturb() {
        assert!(window(1.0, 1.0, 0.2, 0.0).is_disturbed());
        assert!(window(1.0, 1.0, 0.0, 0.2).is_disturbed());
        assert!(!window(1.0, 1.0, 0.05, 0.05).is_disturbed());
    }
}

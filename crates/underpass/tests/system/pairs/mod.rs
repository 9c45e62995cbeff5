//! Every pair of ends that needs no privileges, on the real kernel: files, devices, terminals,
//! pipes, TCP and Unix sockets, blocking and nonblocking, every mechanism forced and free.

#[cfg(feature = "tokio")]
mod drivers;
mod ends;
#[cfg(feature = "tokio")]
mod event_loop;
mod files;
mod matrix;
#[cfg(feature = "tokio")]
mod outbox;
mod peers;
mod relays;
#[cfg(feature = "tokio")]
mod resumable;

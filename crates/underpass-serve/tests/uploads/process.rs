//! A server that can be killed: this test binary, started again.

use std::env;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;
use std::thread;

use underpass_serve::{ServerOptions, SiteOptions, UploadOptions, serve};
use underpass_testkit::ServerProcess;

const FOLDER: &str = "UNDERPASS_UPLOADS_FOLDER";

/// Starts a process that serves a folder and takes files in everywhere. Dropping it kills it.
pub(crate) fn serve_apart(folder: &Path) -> ServerProcess {
    let mut command = Command::new(env::current_exe().unwrap());
    let name = concat!(module_path!(), "::until_it_is_killed");
    let (_, name) = name.split_once("::").unwrap();
    command.args(["--exact", name, "--nocapture"]);
    ServerProcess::spawn(command.env(FOLDER, folder))
}

#[test]
fn until_it_is_killed() {
    let Some(folder) = env::var_os(FOLDER) else {
        return;
    };
    let options = ServerOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        workers: NonZeroUsize::new(1),
        sites: vec![SiteOptions {
            uploads: vec![UploadOptions::default()],
            ..SiteOptions::of(&folder)
        }],
        ..ServerOptions::of(&folder)
    };
    let server = serve(&options).unwrap();
    println!("serving http://{}/", server.running().address().unwrap());
    println!("press Ctrl-C to stop");
    loop {
        thread::park();
    }
}

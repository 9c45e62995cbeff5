//! A server that can be killed: this test binary, started again.

use std::env;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;

use underpass_serve::{ServerOptions, SiteOptions, UploadOptions, serve};
use underpass_testkit::{ServerProcess, rerun};

const FOLDER: &str = "UNDERPASS_UPLOADS_FOLDER";

/// Starts a process that serves a folder and takes files in everywhere. Dropping it kills it.
pub(crate) fn serve_apart(folder: &Path) -> ServerProcess {
    ServerProcess::spawn(rerun(module_path!(), "until_it_is_killed").env(FOLDER, folder))
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

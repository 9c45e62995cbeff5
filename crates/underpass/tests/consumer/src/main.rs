//! Uses the library in the ways that its documentation names. The argument is a folder to work in.

#![forbid(unsafe_code)]

mod copy;
mod driver;
#[cfg(feature = "tokio")]
mod event_loop;

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: consumer FOLDER")?);
    let content: Vec<u8> = (0..5_000_000_u32).map(|at| (at % 251) as u8).collect();
    let source = folder.join("source");
    std::fs::write(&source, &content)?;

    copy::with_progress(&source, &folder.join("copy"))?;
    driver::reversed(&source)?;
    #[cfg(feature = "tokio")]
    event_loop::send_and_receive(&source, &folder.join("received"))
        .map_err(|error| error.to_string())?;

    for name in ["copy", "received"] {
        match std::fs::read(folder.join(name)) {
            Ok(got) => println!(
                "{name}: {}",
                if got == content { "equal" } else { "different" }
            ),
            Err(_) => println!("{name}: none"),
        }
    }
    Ok(())
}

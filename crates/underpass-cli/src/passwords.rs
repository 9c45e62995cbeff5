//! Passwords from the terminal, standard input and files.

use std::io::{self, IsTerminal, Read};
use std::path::Path;

/// Reads a password, typed twice without echo, or the first line of standard input.
pub(crate) fn typed_password(user: &str) -> Result<Vec<u8>, String> {
    if !io::stdin().is_terminal() {
        let mut line = Vec::new();
        let read = io::stdin().take(PASSWORD_BYTES_MAX).read_to_end(&mut line);
        read.map_err(|error| format!("cannot read the password: {error}"))?;
        return Ok(first_line(line));
    }
    let ask = |what: &str| {
        let asked = rpassword::prompt_password(what);
        asked.map_err(|error| format!("cannot read the password from the terminal: {error}"))
    };
    let password = ask(&format!("password of {user}: "))?;
    match ask("the same once more: ")? == password {
        true => Ok(password.into_bytes()),
        false => Err("the passwords differ; nothing was done".to_owned()),
    }
}

/// Reads the first line of a file.
pub(crate) fn password_file(path: &Path) -> Result<Vec<u8>, String> {
    let content = std::fs::read(path);
    let content = content.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(first_line(content))
}

fn first_line(mut content: Vec<u8>) -> Vec<u8> {
    // The byte order mark that some Windows editors write.
    if content.starts_with("\u{feff}".as_bytes()) {
        content.drain(.."\u{feff}".len());
    }
    let end = content.iter().position(|byte| b"\r\n".contains(byte));
    content.truncate(end.unwrap_or(content.len()));
    content
}

const PASSWORD_BYTES_MAX: u64 = 4096;

//! The ends of lines.

/// A line that ends without CR.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct BareLineFeed;

/// Returns the index of the CR LF that ends the line at `start`, searching from `from`. A CR
/// without LF is left to the parser of the line.
pub(crate) fn line_end(
    head: &[u8],
    start: usize,
    from: usize,
) -> Result<Option<usize>, BareLineFeed> {
    let Some(feed) = head[from..].iter().position(|&byte| byte == b'\n') else {
        return Ok(None);
    };
    match &head[start..from + feed] {
        [line @ .., b'\r'] => Ok(Some(start + line.len())),
        _ => Err(BareLineFeed),
    }
}

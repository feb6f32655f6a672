//! What a machine lacks is skipped with a line that says so; where `CI=true`, nothing may be lacking.

use anyhow::{Result, bail};

/// Says what is skipped and why.
///
/// # Errors
/// `CI=true`.
#[expect(clippy::print_stderr, reason = "a test's own output")]
pub fn skip(what: &str, why: &str) -> Result<()> {
    if std::env::var("CI").as_deref() == Ok("true") {
        bail!("with CI=true nothing is skipped: {what}: {why}");
    }
    eprintln!("skipped: {what}: {why}");
    Ok(())
}

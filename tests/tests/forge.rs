//! The worlds' own forge, before anything is built on it: real git pushes to it and fetches from it.

use anyhow::{Result, ensure};
use scenarios::forge::Forge;
use scenarios::program::{Said, clean};

#[test]
fn git_pushes_to_the_forge_over_http_and_clones_from_it() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let forge = Forge::start(&folder.path().join("forge"))?;
    forge.create("fleet.git")?;
    let git = |arguments: &[&str]| {
        let mut git = clean("git", folder.path());
        git.current_dir(folder.path());
        git.args(["-c", "user.name=Dana", "-c", "user.email=dana@example.org"])
            .args(arguments);
        Said::of(git)?.ok()
    };
    git(&["init", "--quiet", "--initial-branch=main", "work"])?;
    // More than git sends in one piece, so that it comes in chunks.
    let noise: String = (0..200_000_u32)
        .map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761)))
        .collect();
    std::fs::write(folder.path().join("work/file"), &noise)?;
    git(&["-C", "work", "add", "--all"])?;
    git(&["-C", "work", "commit", "--quiet", "--message", "first"])?;
    git(&[
        "-C",
        "work",
        "push",
        "--quiet",
        &forge.url("fleet.git"),
        "HEAD:refs/heads/main",
    ])?;
    git(&["clone", "--quiet", &forge.url("fleet.git"), "copy"])?;
    ensure!(std::fs::read_to_string(folder.path().join("copy/file"))? == noise);
    let missing = git(&["ls-remote", &forge.url("other.git")]);
    ensure!(missing.is_err_and(|e| e.to_string().contains("not found")));
    Ok(())
}

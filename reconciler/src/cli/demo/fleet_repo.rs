//! The demo's fleet repository: `examples/quickstart` in a clone, and the two changes that are merged.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, bail};
use toml_edit::{DocumentMut, value};

use super::stage::{Stage, clean_git};

/// The files of `examples/quickstart`, built in.
const FILES: [(&str, &str); 10] = [
    (
        "fleet.toml",
        include_str!("../../../../examples/quickstart/fleet.toml"),
    ),
    (
        "nodes/ace.toml",
        include_str!("../../../../examples/quickstart/nodes/ace.toml"),
    ),
    (
        "nodes/bea.toml",
        include_str!("../../../../examples/quickstart/nodes/bea.toml"),
    ),
    (
        "nodes/cid.toml",
        include_str!("../../../../examples/quickstart/nodes/cid.toml"),
    ),
    (
        "policy/base.toml",
        include_str!("../../../../examples/quickstart/policy/base.toml"),
    ),
    (
        "policy/roles/edge.toml",
        include_str!("../../../../examples/quickstart/policy/roles/edge.toml"),
    ),
    (
        "plans/default.toml",
        include_str!("../../../../examples/quickstart/plans/default.toml"),
    ),
    (
        "modules/web/module.toml",
        include_str!("../../../../examples/quickstart/modules/web/module.toml"),
    ),
    (
        "modules/web/files/motd.txt",
        include_str!("../../../../examples/quickstart/modules/web/files/motd.txt"),
    ),
    (
        "modules/web/files/web.conf.j2",
        include_str!("../../../../examples/quickstart/modules/web/files/web.conf.j2"),
    ),
];

/// A clone of the fleet repo.
pub(super) struct FleetRepo {
    work: PathBuf,
}

impl FleetRepo {
    /// Makes the clone with the first commit in it, and pushes.
    pub(super) async fn found(stage: &Stage) -> anyhow::Result<Self> {
        let work = stage.work();
        std::fs::create_dir_all(&work)?;
        let repo = Self { work };
        for (path, text) in FILES {
            repo.write(path, text)?;
        }
        let author = &stage.foundation().author;
        let mut fleet: DocumentMut = repo.read("fleet.toml")?.parse()?;
        let authors = fleet.get_mut("authors").and_then(|a| a.as_array_of_tables_mut());
        let first = authors
            .and_then(|a| a.get_mut(0))
            .context("the example names an author")?;
        first.insert("id", value(author.id.to_string()));
        first.insert("key", value(author.key.to_string()));
        repo.write("fleet.toml", &fleet.to_string())?;
        repo.git(&["init", "--quiet", "--initial-branch=main"]).await?;
        // Whoever goes on by hand in this clone needs a name, and the story beside each commit.
        repo.git(&["config", "user.name", "Demo"]).await?;
        repo.git(&["config", "user.email", "demo@localhost"]).await?;
        repo.git(&["remote", "add", "origin", &stage.forge_url()]).await?;
        repo.git(&[
            "config",
            "--add",
            "remote.origin.fetch",
            "+refs/notes/*:refs/notes/*",
        ])
        .await?;
        repo.git(&["add", "."]).await?;
        repo.git(&["commit", "--quiet", "--message", "the fleet"]).await?;
        repo.git(&["push", "--quiet", "--set-upstream", "origin", "main"])
            .await?;
        Ok(repo)
    }

    fn read(&self, path: &str) -> anyhow::Result<String> {
        std::fs::read_to_string(self.work.join(path)).with_context(|| format!("cannot read {path}"))
    }

    fn write(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let path = self.work.join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The text of a file with one part of it replaced; the part must be there.
    fn edit(&self, path: &str, from: &str, to: &str) -> anyhow::Result<()> {
        let text = self.read(path)?;
        if !text.contains(from) {
            bail!("{path} has no `{from}`");
        }
        self.write(path, &text.replace(from, to))
    }

    pub(super) async fn git(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let said = clean_git(&self.work)
            .args(arguments)
            .output()
            .await
            .context("git cannot be started")?;
        if !said.status.success() {
            bail!(
                "git {}: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&said.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&said.stdout).into_owned())
    }

    /// The commit that the clone stands on.
    pub(super) async fn head(&self) -> anyhow::Result<String> {
        Ok(self.git(&["rev-parse", "HEAD"]).await?.trim().to_owned())
    }

    /// Takes in what was merged at the forge.
    pub(super) async fn pull(&self) -> anyhow::Result<()> {
        self.git(&["pull", "--quiet", "--ff-only", "origin", "main"])
            .await
            .map(drop)
    }

    /// A file, a templated file and a policy value, merged.
    pub(super) async fn merge_good_change(&self, stage: &Stage) -> anyhow::Result<String> {
        self.write(
            "modules/web/files/motd.txt",
            "This file was changed by a merge.\n",
        )?;
        self.edit(
            "modules/web/files/web.conf.j2",
            "greeting = {{ settings.greeting }}",
            "greeting = {{ settings.greeting }}, from {{ node.name }}",
        )?;
        self.edit(
            "policy/base.toml",
            "artifact_kib_per_sec = 2000",
            "artifact_kib_per_sec = 3000",
        )?;
        self.merge(
            stage,
            "web: a new motd, a longer greeting; policy: more bandwidth",
        )
        .await
    }

    /// A change that leaves the probe of the module without what it looks for, merged.
    pub(super) async fn merge_bad_change(&self, stage: &Stage) -> anyhow::Result<String> {
        self.edit(
            "modules/web/files/web.conf.j2",
            "port = {{ settings.port }}",
            "port = none",
        )?;
        self.merge(stage, "web: a port that nobody can listen on").await
    }

    /// Merges by a branch of its own, as a pull request would, and says so to the reconciler as a forge would.
    async fn merge(&self, stage: &Stage, message: &str) -> anyhow::Result<String> {
        let before = self.head().await?;
        self.git(&["switch", "--quiet", "--create", "change"]).await?;
        self.git(&["commit", "--quiet", "--all", "--message", message])
            .await?;
        self.git(&["switch", "--quiet", "main"]).await?;
        let merge = format!("Merge: {message}");
        self.git(&["merge", "--quiet", "--no-ff", "--message", &merge, "change"])
            .await?;
        self.git(&["branch", "--quiet", "--delete", "change"]).await?;
        self.git(&["push", "--quiet", "origin", "main"]).await?;
        let after = self.head().await?;
        stage.webhook(&before, &after).await?;
        Ok(after)
    }

    /// Fetches notes until the commit's story has come to its end.
    pub(super) async fn fetch_notes(&self, commit: &str) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            self.git(&["fetch", "--quiet", "origin", "+refs/notes/*:refs/notes/*"])
                .await?;
            let note = self
                .git(&["notes", "--ref=mesh-plan", "show", commit])
                .await
                .unwrap_or_default();
            if note.contains("-> delivered") {
                return Ok(());
            }
            if begun.elapsed() > super::PATIENCE {
                bail!("the note of {commit} does not come: {note}");
            }
            tokio::time::sleep(super::EVERY).await;
        }
    }

    /// `git log --notes=mesh-plan -1`.
    pub(super) async fn log_with_notes(&self) -> anyhow::Result<String> {
        self.git(&["log", "--notes=mesh-plan", "-1"]).await
    }
}

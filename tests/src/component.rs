//! A component beside a fleet: another repository whose commits are delivered (DL-1).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::program::{Said, clean};
use crate::world::World;

/// The component's repository at the forge, and a clone of it to work in.
#[derive(Debug)]
pub struct Component {
    work: PathBuf,
}

impl Component {
    /// An empty one, called `site.git`.
    ///
    /// # Errors
    /// git says no.
    pub fn new(world: &World) -> Result<Self> {
        world.forge.create("site.git")?;
        let work = world.folder().join("site");
        fs::create_dir_all(&work)?;
        let component = Self { work };
        component.git(&["init", "--quiet", "--initial-branch=main"])?;
        component.git(&["remote", "add", "origin", &world.forge.url("site.git")])?;
        Ok(component)
    }

    /// The folder of the clone.
    #[must_use]
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// Runs git in the clone.
    ///
    /// # Errors
    /// It says no.
    pub fn git(&self, arguments: &[&str]) -> Result<String> {
        let mut git = clean("git", &self.work);
        git.arg("-C").arg(&self.work);
        git.args(["-c", "user.name=Sam", "-c", "user.email=sam@example.org"]);
        Said::of({
            git.args(arguments);
            git
        })?
        .ok()
    }

    /// Writes a file of the clone.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.work.join(path), text)?)
    }

    /// Commits all that is there and pushes it; the commit.
    ///
    /// # Errors
    /// git says no.
    pub fn push(&self, subject: &str) -> Result<String> {
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "-m", subject])?;
        self.git(&["push", "--quiet", "origin", "HEAD:refs/heads/main"])?;
        Ok(self.git(&["rev-parse", "HEAD"])?.trim().to_owned())
    }

    /// The reconciler's configuration allows it, as `acme/site`; it takes effect at the next start.
    ///
    /// # Errors
    /// The configuration cannot be written.
    pub fn allow(world: &World) -> Result<()> {
        let url = world.forge.url("site.git");
        world.configure(|config| {
            let mut component = toml::Table::new();
            component.insert("repo".to_owned(), "acme/site".into());
            component.insert("url".to_owned(), url.into());
            config.insert(
                "components".to_owned(),
                vec![toml::Value::Table(component)].into(),
            );
            Ok(())
        })
    }
}

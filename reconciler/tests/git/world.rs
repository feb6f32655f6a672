//! A world for one test: a bare repository, `git http-backend` before it, and a clone to work in.

use std::path::{Path, PathBuf};
use std::process::Command;

use meshplan_reconciler::edge::git_server::{self, Options};
use meshplan_reconciler::edge::git_transport::Credentials;
use meshplan_reconciler::edge::mirror::{Mirror, Remote};
use meshplan_reconciler::edge::notes::SignedText;
use meshplan_reconciler::pure::note::{self, Block};
use meshplan_schemas::envelope::{Signer as _, SoftSigner};
use meshplan_schemas::ident::{CommitId, KeyId};
use meshplan_schemas::lifecycle::delivery::{Code, State};

pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) base: String,
    runtime: tokio::runtime::Runtime,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let root = dir.path().join("srv");
        std::fs::create_dir(&root).unwrap();
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(git_server::serve(root, listener, options));
        let world = Self { dir, base, runtime };
        world.git(
            world.dir.path(),
            &["init", "--quiet", "--bare", "-b", "main", "srv/fleet.git"],
        );
        world.git(world.dir.path(), &["clone", "--quiet", "srv/fleet.git", "work"]);
        world
    }

    /// Serves something else on a port of its own.
    pub(crate) fn also(&self, router: axum::Router) -> String {
        let listener = self
            .runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        self.runtime
            .spawn(async move { axum::serve(listener, router).await });
        base
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/fleet.git", self.base)
    }

    pub(crate) fn bare(&self) -> PathBuf {
        self.dir.path().join("srv/fleet.git")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn remote(&self) -> Remote {
        Remote {
            url: self.url(),
            branch: "main".to_owned(),
            credentials: None,
        }
    }

    pub(crate) fn remote_as(&self, user: &str, password: &str) -> Remote {
        Remote {
            credentials: Some(Credentials::new(user, password)),
            ..self.remote()
        }
    }

    pub(crate) fn mirror(&self) -> Mirror {
        Mirror::open(&self.mirror_path(), self.remote()).unwrap()
    }

    pub(crate) fn mirror_path(&self) -> PathBuf {
        self.dir.path().join("state/mirror")
    }

    /// A commit in the clone.
    pub(crate) fn commit(&self, file: &str, content: &str) -> CommitId {
        let path = self.work().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self.git(&self.work(), &["add", "-A"]);
        self.git(
            &self.work(),
            &["commit", "--quiet", "-m", &format!("{file}: changed\n\nbecause")],
        );
        self.head()
    }

    pub(crate) fn head(&self) -> CommitId {
        self.git(&self.work(), &["rev-parse", "HEAD"]).parse().unwrap()
    }

    pub(crate) fn push(&self, spec: &str) {
        self.git(&self.work(), &["push", "--quiet", "origin", spec]);
    }

    /// Commits and pushes to main.
    pub(crate) fn merge(&self, file: &str, content: &str) -> CommitId {
        let id = self.commit(file, content);
        self.push("HEAD:refs/heads/main");
        id
    }

    /// Runs git; it must succeed.
    pub(crate) fn git(&self, folder: &Path, args: &[&str]) -> String {
        let output = self.try_git(folder, args);
        assert!(
            output.status.success(),
            "git {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    pub(crate) fn try_git(&self, folder: &Path, args: &[&str]) -> std::process::Output {
        Command::new("git")
            .args(args)
            .current_dir(folder)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("HOME", self.dir.path())
            .env("LC_ALL", "C")
            .envs([
                ("GIT_AUTHOR_NAME", "Dana"),
                ("GIT_AUTHOR_EMAIL", "dana@acme.test"),
            ])
            .envs([
                ("GIT_COMMITTER_NAME", "Dana"),
                ("GIT_COMMITTER_EMAIL", "dana@acme.test"),
            ])
            .output()
            .unwrap()
    }

    /// A tree object of the clone.
    pub(crate) fn mktree(&self, listing: &str) -> String {
        let file = self.dir.path().join("listing");
        std::fs::write(&file, listing).unwrap();
        let script = format!("git mktree <{}", file.display());
        let out = Command::new("sh")
            .args(["-c", &script])
            .current_dir(self.work())
            .output()
            .unwrap();
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    }

    /// A commit of a few dozen small trees that stands for 2^58 folders, each with what the listing says in it.
    pub(crate) fn bomb(&self, leaf: &str) -> CommitId {
        let mut id = self.mktree(leaf);
        for _ in 0..58 {
            id = self.mktree(&format!("040000 tree {id}\ta\n040000 tree {id}\tb\n"));
        }
        let commit = self.git(&self.work(), &["commit-tree", "-m", "bomb", &id]);
        commit.parse().unwrap()
    }

    /// A hook of the bare repository.
    pub(crate) fn hook(&self, name: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.bare().join("hooks").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

pub(crate) fn at() -> jiff::Timestamp {
    "2026-10-06T23:05:28Z".parse().unwrap()
}

pub(crate) fn signer() -> SoftSigner {
    SoftSigner::new(Some(KeyId("reconciler-2026".to_owned())), &[7; 32]).unwrap()
}

/// A journal as a reconciler would write it.
#[derive(Default)]
pub(crate) struct Journal {
    last: Option<Block>,
}

impl Journal {
    pub(crate) fn block(&mut self, commit: &CommitId) -> SignedText {
        let block = Block {
            number: self.last.as_ref().map_or(1, |b| b.number + 1),
            prev: self.last.as_ref().map(Block::digest),
            term: 1,
            commit: commit.clone(),
            at: at(),
            from: None,
            to: State::Proposed,
            code: Code::Announced,
            actor: "forge".to_owned(),
            reason: "the commit is known".to_owned(),
            trailers: vec![("Delivery".to_owned(), format!("fleet@{}", commit.short()))],
            elided: None,
        };
        let text = block.text();
        let text = note::seal(
            &text,
            &signer().key_id(),
            &signer().sign(&note::signed_bytes(&text)).unwrap(),
        );
        self.last = Some(block);
        SignedText {
            commit: commit.clone(),
            text,
        }
    }
}

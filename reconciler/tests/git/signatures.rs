//! Signatures of commits as the real git and ssh-keygen make them.

use std::collections::BTreeSet;
use std::process::Command;

use meshplan_reconciler::pure::signatures::{Brought, Proof, judge};
use meshplan_schemas::document::fleet::{CommitSigners, SignedCommits};
use meshplan_schemas::document::signers;
use meshplan_schemas::finding::Source;
use meshplan_schemas::ident::CommitId;

use super::world::World;

/// A key of Dana's in the world's folder, that git signs with from now on; who may sign, as the tree would say.
fn signing(world: &World, kind: &str) -> CommitSigners {
    let file = world.work().with_file_name("key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", kind, "-N", "", "-C", "", "-f"])
        .arg(&file)
        .status()
        .unwrap();
    assert!(made.success());
    let config = |key: &str, value: &str| world.git(&world.work(), &["config", key, value]);
    config("gpg.format", "ssh");
    config("user.signingkey", file.to_str().unwrap());
    let public = std::fs::read_to_string(file.with_extension("pub")).unwrap();
    let line = format!("dana@acme.test namespaces=\"git\" {public}");
    let (mut findings, source) = (
        Vec::new(),
        Source::new("signers", line.into_bytes().into()).unwrap(),
    );
    let signers = signers::read(&source, &mut findings);
    assert!(findings.is_empty());
    CommitSigners {
        asks: SignedCommits::Every,
        signers,
        line: 1,
    }
}

fn sign(world: &World, on: &str) {
    world.git(&world.work(), &["config", "commit.gpgsign", on]);
}

fn brought(world: &World, base: &CommitId) -> Brought {
    world.push("HEAD:refs/heads/main");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    mirror.brought(Some(base), &world.head()).unwrap()
}

#[test]
fn a_commit_that_git_signed_is_by_whom_it_is() {
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let world = World::new();
        let base = world.merge("fleet.toml", "schema = 1\n");
        let trusted = signing(&world, kind);
        sign(&world, "true");
        world.commit("a", "1");
        world.commit("b", "2");
        let brought = brought(&world, &base);
        assert_eq!(brought.commits.len(), 2, "{kind}");
        let dana = BTreeSet::from(["dana@acme.test".to_owned()]);
        assert_eq!(judge(&trusted, &brought), Ok(dana), "{kind}");
    }
}

#[test]
fn an_unsigned_merge_is_clean_when_it_has_just_what_its_parents_give() {
    let world = World::new();
    let base = world.merge("fleet.toml", "schema = 1\n");
    let trusted = signing(&world, "ed25519");
    let git = |args: &[&str]| world.git(&world.work(), args);
    let merged = |extra: Option<&str>| {
        git(&["checkout", "--quiet", "-B", "side", base.as_str()]);
        sign(&world, "true");
        world.commit("side", "1");
        git(&["checkout", "--quiet", "-B", "line", base.as_str()]);
        world.commit("line", "2");
        sign(&world, "false");
        git(&["merge", "--quiet", "--no-ff", "--no-commit", "side"]);
        if let Some(extra) = extra {
            std::fs::write(world.work().join(extra), "slipped in").unwrap();
            git(&["add", "-A"]);
        }
        git(&["commit", "--quiet", "-m", "Merge side"]);
        git(&["push", "--quiet", "--force", "origin", "HEAD:refs/heads/main"]);
        brought(&world, &base)
    };
    let clean = merged(None);
    assert_eq!(clean.commits.len(), 3);
    let last = clean.commits.last().unwrap();
    assert_eq!((&last.proof, last.clean_merge), (&Proof::Unsigned, true));
    assert!(judge(&trusted, &clean).is_ok());
    let slipped = merged(Some("policy"));
    assert!(!slipped.commits.last().unwrap().clean_merge);
    assert!(judge(&trusted, &slipped).unwrap_err().ends_with("is not signed"));
}

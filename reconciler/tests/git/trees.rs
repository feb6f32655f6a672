//! Trees as people commit them, by accident or on purpose: links, odd names, pointers and submodules. Each is read
//! from git objects by the road of the reconciler, as a change of a good tree and whole, and by that of `check`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;

use meshplan_reconciler::cli::check;
use meshplan_reconciler::edge::mirror::Mirror;
use meshplan_reconciler::edge::tree_reader::{Entries, TreeReader};
use meshplan_reconciler::pure::compose::{Composed, Expected, TreeError};
use meshplan_reconciler::pure::decide::Tree;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::resource::Kind;

use super::world::World;

const FLEET: &str = "schema = 1\nfleet = \"lab\"\nbranch = \"main\"\n\n[[authors]]\nid = \"example\"\n\
                     key = \"ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\"\n\n\
                     [secrets]\nrecipient = \"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p\"\n";
const RECORD: &str = "id = \"0192f0c1-0000-7000-8000-000000000001\"\nmodules = [\"one\", \"two\"]\n";
const POINTER: &str = "version https://git-lfs.github.com/spec/v1\n\
                       oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

fn module(name: &str) -> String {
    format!(
        "[[file]]\nid = \"conf\"\npath = \"/etc/{name}\"\nsource = \"files/conf\"\n\n\
         [[archive]]\nid = \"tools\"\npath = \"/opt/{name}\"\nsource = \"files/tools.tar.gz\"\n\n\
         [[bundle]]\nid = \"site\"\npath = \"/srv/{name}\"\nsource = \"site\"\n"
    )
}

/// What the reconciler makes of a commit, or why nothing.
type Read = Result<Arc<Composed>, String>;

/// A fleet of one node and two modules, read commit by commit as the reconciler reads it.
struct Fleet {
    world: World,
    mirror: Mirror,
    reader: TreeReader,
}

impl Fleet {
    /// The fleet at its first commit, which composes.
    fn new() -> Self {
        let world = World::new();
        let mirror = world.mirror();
        let reader = TreeReader::new(Expected::default());
        let mut fleet = Self {
            world,
            mirror,
            reader,
        };
        fleet.put(b"fleet.toml", FLEET.as_bytes());
        fleet.put(b"nodes/ace.toml", RECORD.as_bytes());
        for name in ["one", "two"] {
            let folder = format!("modules/{name}");
            fleet.put(
                format!("{folder}/module.toml").as_bytes(),
                module(name).as_bytes(),
            );
            for file in ["files/conf", "files/tools.tar.gz", "site/index.html"] {
                fleet.put(format!("{folder}/{file}").as_bytes(), b"first");
            }
        }
        assert!(fleet.composed().is_ok());
        fleet
    }

    fn path(&self, path: &[u8]) -> PathBuf {
        self.world.work().join(OsStr::from_bytes(path))
    }

    /// Writes a file, in place of whatever stands there.
    fn put(&self, path: &[u8], bytes: &[u8]) {
        self.clear(path);
        fs::write(self.path(path), bytes).unwrap();
    }

    fn link(&self, path: &[u8], target: &str) {
        self.clear(path);
        symlink(target, self.path(path)).unwrap();
    }

    /// Takes away what stands at a path, and makes the folder that it stands in.
    fn clear(&self, path: &[u8]) {
        let path = self.path(path);
        match fs::symlink_metadata(&path) {
            Ok(there) if there.is_dir() => fs::remove_dir_all(&path).unwrap(),
            Ok(_) => fs::remove_file(&path).unwrap(),
            Err(_) => fs::create_dir_all(path.parent().unwrap()).unwrap(),
        }
    }

    /// Puts everything back to a commit.
    fn back_to(&self, commit: &CommitId) {
        let work = self.world.work();
        self.world.git(
            &work,
            &["rm", "-r", "--quiet", "--cached", "--ignore-unmatch", "."],
        );
        for entry in fs::read_dir(&work).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap() {
                _ if entry.file_name() == ".git" => {}
                there if there.is_dir() => fs::remove_dir_all(entry.path()).unwrap(),
                _ => fs::remove_file(entry.path()).unwrap(),
            }
        }
        self.world
            .git(&work, &["checkout", "--quiet", commit.as_str(), "--", "."]);
    }

    /// Commits what is staged or lies there, and brings it into the mirror.
    fn commit(&mut self) -> CommitId {
        let work = self.world.work();
        self.world.git(&work, &["add", "-A"]);
        self.commit_index()
    }

    fn commit_index(&mut self) -> CommitId {
        let work = self.world.work();
        self.world
            .git(&work, &["commit", "--quiet", "--allow-empty", "-m", "a change"]);
        self.world.push("HEAD:refs/heads/main");
        self.mirror.fetch().unwrap();
        self.world.head()
    }

    /// What the reconciler makes of the next commit.
    fn composed(&mut self) -> Read {
        let commit = self.commit();
        let (tree, _) = self.read(&commit);
        tree
    }

    /// The same, with the paths that were read where a change was found by itself.
    fn read(&mut self, commit: &CommitId) -> (Read, Option<Vec<Vec<u8>>>) {
        let entries = self.reader.read(&mut self.mirror, commit).unwrap();
        let changed = match &entries {
            Entries::Changed(entries) => Some(entries.iter().map(|e| e.path.clone()).collect()),
            Entries::Whole(_) => None,
        };
        let composed = match self.reader.compose(commit, entries) {
            Tree::Composed(tree) => Ok(tree),
            Tree::Invalid(why) | Tree::Gone(why) => Err(why),
        };
        // Whatever was read before, a reader that has seen nothing says the same.
        let mut fresh = TreeReader::new(Expected::default());
        let entries = fresh.read(&mut self.mirror, commit).unwrap();
        match (&composed, fresh.compose(commit, entries)) {
            (Ok(one), Tree::Composed(other)) => assert_eq!(one.sources, other.sources),
            (Err(one), Tree::Invalid(other) | Tree::Gone(other)) => assert_eq!(*one, other),
            (one, other) => panic!("{one:?}, and read afresh {other:?}"),
        }
        (composed, changed)
    }

    /// The errors that `check` has for a commit, and for the folder: file and message.
    fn checked(&self, commit: Option<&CommitId>) -> Vec<(String, String)> {
        let (tree, of_paths) = check::read(&self.world.work(), commit.map(CommitId::as_str)).unwrap();
        match check::compose_with(&tree, of_paths) {
            Ok(_) => Vec::new(),
            Err(TreeError::Findings(findings)) => findings.into_iter().map(|f| (f.file, f.message)).collect(),
            Err(TreeError::NoFleet(why)) => vec![(String::new(), why)],
        }
    }

    /// What lies there is refused with these words for these paths, by every road.
    fn refused(&mut self, message: &str, paths: &[&str]) {
        let commit = self.commit();
        self.refused_at(&commit, message, paths);
        let of_folder = self.checked(None);
        assert_eq!(
            of_folder,
            self.checked(Some(&commit)),
            "the folder and its commit differ"
        );
    }

    fn refused_at(&mut self, commit: &CommitId, message: &str, paths: &[&str]) {
        let said = self.read(commit).0.expect_err("a bad tree was composed");
        let checked = self.checked(Some(commit));
        for path in paths {
            let expected = ((*path).to_owned(), message.to_owned());
            assert!(checked.contains(&expected), "{expected:?} is not in {checked:?}");
            assert!(
                said.contains(&format!("{path}: {message}")),
                "{path} is not in {said}"
            );
        }
        let others: Vec<_> = checked
            .iter()
            .filter(|(file, _)| !paths.contains(&file.as_str()))
            .collect();
        assert!(
            others.iter().all(|(file, _)| file.ends_with("/module.toml")),
            "{others:?}"
        );
    }
}

fn sources(composed: &Composed) -> BTreeMap<String, Digest> {
    let sources = composed.sources.iter();
    sources
        .map(|(name, digest)| (name.to_string(), *digest))
        .collect()
}

/// The bytes that the only node gets for a file.
fn file(composed: &Composed, module: &str) -> Vec<u8> {
    let node = composed.nodes.values().next().unwrap();
    let resources = &node.modules[module].1.resources;
    let found = resources.iter().find(|r| r.name.id.as_str() == "conf").unwrap();
    match found.read().unwrap() {
        Kind::File(file) => file.content.bytes().unwrap(),
        other => panic!("{other:?} is no file"),
    }
}

const LINK: &str = "this is a symbolic link where a file is expected";

// holds: FR-3, B13
#[test]
fn a_link_is_refused_wherever_it_points_and_nothing_behind_it_is_read() {
    let mut fleet = Fleet::new();
    fleet.put(b"modules/two/secrets/db.age", b"age-encryption.org/v1\nx");
    let good = fleet.commit();
    assert!(fleet.read(&good).0.is_ok());
    let targets = [
        ("a system file", "/etc/shadow"),
        ("another module's secret", "../../two/secrets/db.age"),
        (
            "out of the repository and back in",
            "../../../../fleet/modules/two/files/conf",
        ),
        ("a second link", "../site/second"),
        ("itself", "conf"),
        ("an endless device", "/dev/zero"),
        ("nothing", "nowhere"),
        ("a file of its own module", "../site/index.html"),
    ];
    for (what, target) in targets {
        // A source, a template, a file of a bundle, and a document.
        for path in [
            "modules/one/files/conf",
            "modules/one/files/part.j2",
            "modules/one/site/deep/link",
            "policy/base.toml",
        ] {
            fleet.back_to(&good);
            if what == "a second link" {
                fleet.link(b"modules/one/site/second", "index.html");
            }
            fleet.link(path.as_bytes(), target);
            let second = (what == "a second link").then_some("modules/one/site/second");
            let paths: Vec<&str> = [path].into_iter().chain(second).collect();
            fleet.refused(LINK, &paths);
        }
    }
    // A folder on the way is the link: a module's, the bundle's, that of all modules, of all records.
    for path in [
        "modules/one",
        "modules/one/site",
        "modules/one/files",
        "modules",
        "nodes",
        "policy",
    ] {
        fleet.back_to(&good);
        fleet.clear(path.as_bytes());
        fleet.link(path.as_bytes(), "modules/two/files");
        let commit = fleet.commit();
        let said = fleet
            .read(&commit)
            .0
            .expect_err("a link for a folder was followed");
        assert!(
            said.contains(&format!("{path}: {LINK}")),
            "{path} is not in {said}"
        );
        assert_eq!(fleet.checked(None), fleet.checked(Some(&commit)));
    }
    fleet.back_to(&good);
    assert!(fleet.composed().is_ok(), "the tree is good again");
}

// holds: FR-3, B14
#[test]
fn a_change_of_a_file_with_an_odd_name_is_seen_and_is_the_change_of_its_module() {
    let names: [&[u8]; 6] = [
        "caf\u{e9}".as_bytes(),
        "cafe\u{301}".as_bytes(),
        b"two\nlines",
        b"space ",
        b"\"quoted\"\t\\",
        b"-rf",
    ];
    let mut fleet = Fleet::new();
    let path = |module: &str, name: &[u8]| [format!("modules/{module}/site/").as_bytes(), name].concat();
    for module in ["one", "two"] {
        for name in names {
            fleet.put(&path(module, name), b"first");
        }
    }
    let first = fleet.commit();
    let mut before = sources(&fleet.read(&first).0.unwrap());
    for module in ["one", "two"] {
        for name in names {
            let path = path(module, name);
            fleet.put(&path, b"second");
            let commit = fleet.commit();
            let (composed, changed) = fleet.read(&commit);
            assert_eq!(changed, Some(vec![path.clone()]), "{}", path.escape_ascii());
            let after = sources(&composed.unwrap());
            let changed: Vec<&String> = after
                .keys()
                .filter(|name| after[*name] != before[*name])
                .collect();
            assert_eq!(changed, [module], "{}", path.escape_ascii());
            before = after;
            assert_eq!(fleet.checked(Some(&commit)), []);
        }
    }
    // One that goes is a change too: composed and decomposed are two files.
    fleet.clear(&path("one", names[1]));
    let after = sources(&fleet.composed().unwrap());
    assert_ne!(after["one"], before["one"]);
    assert_eq!(after["two"], before["two"]);
}

// holds: FR-3, B14
#[test]
fn names_that_are_no_text_or_one_on_another_system_are_refused_with_their_bytes() {
    let mut fleet = Fleet::new();
    let good = fleet.world.head();
    let no_text = "the name of this file is not UTF-8";
    fleet.put(b"modules/one/site/a\xff", b"x");
    fleet.put(b"modules/one/site/a\xfe", b"y");
    fleet.refused(no_text, &["modules/one/site/a\\xff", "modules/one/site/a\\xfe"]);
    // Only the one changes: the other is no less wrong.
    fleet.put(b"modules/one/site/a\xfe", b"z");
    fleet.refused(no_text, &["modules/one/site/a\\xff", "modules/one/site/a\\xfe"]);
    fleet.back_to(&good);
    fleet.put(b"modules/one/site/b\xff/index.html", b"x");
    fleet.refused(no_text, &["modules/one/site/b\\xff/index.html"]);
    fleet.back_to(&good);
    fleet.put(b"nodes/b\xff.toml", RECORD.as_bytes());
    fleet.refused(no_text, &["nodes/b\\xff.toml"]);
    fleet.back_to(&good);
    fleet.put(b"modules/one/site/readme", b"x");
    fleet.put(b"modules/one/site/README", b"y");
    fleet.refused(
        "this path differs from `modules/one/site/README` only by case",
        &["modules/one/site/readme"],
    );
    fleet.back_to(&good);
    assert!(fleet.composed().is_ok(), "the tree is good again");
}

// holds: FR-3, B15
#[test]
fn a_pointer_for_a_file_is_refused_as_file_as_archive_and_in_a_bundle() {
    let mut fleet = Fleet::new();
    let good = fleet.world.head();
    for path in [
        "modules/one/files/conf",
        "modules/one/files/tools.tar.gz",
        "modules/one/site/index.html",
        "nodes/ace.toml",
    ] {
        fleet.put(path.as_bytes(), POINTER.as_bytes());
        let commit = fleet.commit();
        let (_, changed) = fleet.read(&commit);
        assert_eq!(changed, Some(vec![path.into()]));
        fleet.refused("this is a git-lfs pointer, not the file", &[path]);
        fleet.back_to(&good);
        assert!(fleet.composed().is_ok());
    }
    // A text about pointers is none.
    fleet.put(
        b"modules/one/site/index.html",
        format!("How it looks:\n{POINTER}").as_bytes(),
    );
    assert!(fleet.composed().is_ok());
}

// holds: FR-3, B15
#[test]
fn a_submodule_in_a_folder_of_the_fleet_is_refused() {
    let mut fleet = Fleet::new();
    let good = fleet.world.head();
    let work = fleet.world.work();
    for path in [
        "modules/one/site/vendor",
        "modules/one/files/conf",
        "modules/three",
        "modules/one",
        "nodes/more",
        "policy/base.toml",
    ] {
        fleet.back_to(&good);
        fleet.world.git(
            &work,
            &["rm", "-r", "--quiet", "--cached", "--ignore-unmatch", path],
        );
        let entry = format!("160000,{},{path}", "1".repeat(40));
        fleet
            .world
            .git(&work, &["update-index", "--add", "--cacheinfo", &entry]);
        let commit = fleet.commit_index();
        fleet.refused_at(&commit, "this is a submodule where files are expected", &[path]);
    }
    // A folder with a repository of its own is what `git add` makes a submodule of.
    fleet.back_to(&good);
    fleet.put(b"modules/one/site/vendor/.git", b"gitdir: elsewhere\n");
    let expected = (
        "modules/one/site/vendor".to_owned(),
        "this is a submodule where files are expected".to_owned(),
    );
    assert_eq!(fleet.checked(None), [expected]);
}

// holds: FR-3, B21
#[test]
fn a_node_gets_the_bytes_that_were_committed_whatever_the_attributes_say() {
    let mut fleet = Fleet::new();
    let windows = b"#!/bin/sh\r\necho one\r\n";
    let unix = b"#!/bin/sh\necho one\n";
    fleet.put(b"modules/one/files/conf", windows);
    fleet.put(b"modules/two/files/conf", unix);
    let plain = fleet.composed().unwrap();
    // The rules come after the bytes, so that no filter has touched them.
    fleet.put(
        b".gitattributes",
        b"* text eol=crlf\nmodules/two/** text eol=lf ident working-tree-encoding=UTF-16\n",
    );
    let work = fleet.world.work();
    fleet.world.git(&work, &["add", ".gitattributes"]);
    let commit = fleet.commit_index();
    let composed = fleet.read(&commit).0.unwrap();
    assert_eq!(file(&composed, "one"), windows);
    assert_eq!(file(&composed, "two"), unix);
    assert_eq!(
        sources(&composed),
        sources(&plain),
        "a rule changed what is ordered"
    );
    // Line ends are content: another commit, another digest.
    fleet.put(b".gitattributes", b"");
    fleet.put(b"modules/one/files/conf", unix);
    let commit = fleet.commit();
    let changed = sources(&fleet.read(&commit).0.unwrap());
    assert_ne!(changed["one"], sources(&plain)["one"]);
}

// holds: FR-1, FR-3
#[test]
fn how_large_a_file_may_be_is_the_same_by_every_road() {
    let mut fleet = Fleet::new();
    // What is not the fleet's is nobody's business.
    fleet.put(b"docs/plan.png", &vec![7; 2 << 20]);
    fleet.composed().unwrap();
    assert_eq!(fleet.checked(None), []);
    fleet.put(b"modules/one/site/film", &vec![7; 65 << 20]);
    let larger = "with this file the module is larger than 67108864 bytes";
    fleet.refused(larger, &["modules/one/site/film"]);
    fleet.put(
        b"fleet.toml",
        format!("{FLEET}\n[limits]\nbundle_mib = 66\n").as_bytes(),
    );
    fleet.composed().unwrap();
    assert_eq!(fleet.checked(None), []);
}

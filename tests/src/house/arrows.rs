//! The arrows between rooms: who may know whom. Reads `use` lines and paths in the midst of code.

use super::SourceFile;
use super::paths::{UsedPath, module_of, used_paths};

/// A path that its room may not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// File and line.
    pub place: String,
    /// What it uses.
    pub used: String,
    /// Why it may not.
    pub why: &'static str,
}

/// A room and what it may not know.
#[derive(Debug)]
struct Room {
    /// The room is every file whose path starts so.
    under: &'static [&'static str],
    /// Paths refused, by their first segments; a single segment is refused at the front only.
    refused: &'static [&'static str],
    /// Names refused anywhere in a path.
    names: &'static [&'static str],
    /// Why.
    why: &'static str,
}

const OUTSIDE: [&str; 13] = [
    "tokio",
    "sqlx",
    "git2",
    "axum",
    "reqwest",
    "tokio_tungstenite",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::os::unix::net",
    "std::time::Instant",
    "std::time::SystemTime",
];
const CLOCK_AND_CHANCE: [&str; 5] = ["async", "await", "new_v4", "now_v7", "thread_rng"];

const ROOMS: &[Room] = &[
    Room {
        under: &["schemas/src/"],
        refused: &OUTSIDE,
        names: &CLOCK_AND_CHANCE,
        why: "schemas is pure: no I/O, clock or async",
    },
    Room {
        under: &["schemas/src/"],
        refused: &["meshplan_host", "meshplan_reconciler"],
        names: &[],
        why: "schemas knows neither side",
    },
    Room {
        under: &[
            "reconciler/src/pure/",
            "reconciler/src/pure.rs",
            "host/src/pure/",
            "host/src/pure.rs",
        ],
        refused: &OUTSIDE,
        names: &CLOCK_AND_CHANCE,
        why: "pure decides: no I/O, clock, randomness or async",
    },
    Room {
        under: &[
            "reconciler/src/pure/",
            "reconciler/src/pure.rs",
            "host/src/pure/",
            "host/src/pure.rs",
        ],
        refused: &[
            "crate::edge",
            "crate::cli",
            "crate::pass",
            "crate::*",
            "getrandom",
            "rand",
        ],
        names: &[],
        why: "pure does not know who carries out what it decides",
    },
    Room {
        under: &[
            "reconciler/src/edge/",
            "reconciler/src/edge.rs",
            "host/src/edge/",
            "host/src/edge.rs",
        ],
        refused: &["crate::cli"],
        names: &[],
        why: "the edge does not know the command line",
    },
    Room {
        under: &["reconciler/"],
        refused: &["meshplan_host"],
        names: &[],
        why: "the reconciler does not know the host; both know schemas",
    },
    Room {
        under: &["host/"],
        refused: &["meshplan_reconciler"],
        names: &[],
        why: "the host does not know the reconciler; both know schemas",
    },
];

/// The stages of the road that are modules of `reconciler/src/pure`, in their order: a later one knows the earlier
/// ones, never the reverse.
const ROAD: [&str; 8] = [
    "source_tree",
    "parse",
    "validate",
    "template",
    "compose",
    "diff",
    "decide",
    "preview",
];

/// What `file` uses against the arrows.
#[must_use]
pub fn violations(file: &SourceFile) -> Vec<Violation> {
    let module = file
        .path
        .split_once("src/")
        .map_or_else(Vec::new, |(_, within)| module_of(within));
    // `tests.rs` beside the code is the code's tests.
    if module.iter().any(|m| m == "tests" || m.ends_with("_tests")) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for used in used_paths(&file.text, &module) {
        let reasons = ROOMS
            .iter()
            .filter(|room| room.under.iter().any(|u| file.path.starts_with(u)))
            .filter(|room| breaks(&used, room))
            .map(|room| room.why)
            .chain(against_the_road(file, &module, &used));
        for why in reasons {
            found.push(Violation {
                place: format!("{}:{}", file.path, used.line),
                used: used.segments.join("::"),
                why,
            });
        }
    }
    found
}

fn breaks(used: &UsedPath, room: &Room) -> bool {
    let starts_with = |refused: &&str| {
        let refused: Vec<&str> = refused.split("::").collect();
        used.segments.len() >= refused.len() && used.segments.iter().zip(&refused).all(|(a, b)| a == b)
    };
    room.refused.iter().any(starts_with) || used.segments.iter().any(|s| room.names.contains(&s.as_str()))
}

fn against_the_road(file: &SourceFile, module: &[String], used: &UsedPath) -> Option<&'static str> {
    let place = |name: &String| ROAD.iter().position(|stage| stage == name);
    if !file.path.starts_with("reconciler/src/pure/") {
        return None;
    }
    let own = place(module.get(1)?)?;
    let [root, pure, stage, ..] = used.segments.as_slice() else {
        return None;
    };
    let later = root == "crate" && pure == "pure" && place(stage).is_some_and(|theirs| theirs > own);
    later.then_some("an earlier stage of the road does not know a later one")
}

/// What a manifest may depend on: folder, and the crates that it may not name, or the only ones that it may.
#[derive(Debug, Clone, Copy)]
pub enum Manifest {
    /// Any but these.
    Not(&'static [&'static str]),
    /// These alone.
    Only(&'static [&'static str]),
}

/// The rules for manifests, by file.
pub const MANIFESTS: &[(&str, Manifest)] = &[
    (
        "schemas/Cargo.toml",
        Manifest::Not(&[
            "meshplan-host",
            "meshplan-reconciler",
            "tokio",
            "sqlx",
            "git2",
            "axum",
            "reqwest",
            "tokio-tungstenite",
        ]),
    ),
    ("reconciler/Cargo.toml", Manifest::Not(&["meshplan-host"])),
    (
        "host/Cargo.toml",
        Manifest::Not(&["meshplan-reconciler", "sqlx", "git2", "axum"]),
    ),
    // So that a look at one page says what the launcher can do.
    ("host/launcher/Cargo.toml", Manifest::Only(&["rustix"])),
];

/// The crates that `[dependencies]` of a manifest names and the rule refuses.
///
/// # Errors
/// The text is no TOML.
pub fn refused_dependencies(text: &str, rule: Manifest) -> Result<Vec<String>, toml::de::Error> {
    let manifest: toml::Table = toml::from_str(text)?;
    let mut tables: Vec<&toml::Table> = Vec::new();
    for section in ["dependencies", "build-dependencies"] {
        tables.extend(manifest.get(section).and_then(toml::Value::as_table));
    }
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    for target in targets.into_iter().flat_map(toml::Table::values) {
        tables.extend(target.get("dependencies").and_then(toml::Value::as_table));
    }
    let refused = |name: &str| match rule {
        Manifest::Not(names) => names.contains(&name),
        Manifest::Only(names) => !names.contains(&name),
    };
    Ok(tables
        .iter()
        .flat_map(|t| t.keys())
        .filter(|n| refused(n))
        .cloned()
        .collect())
}

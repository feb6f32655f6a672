//! Rehearsals with their expected words (OP-11): each file of `scripts/` is played and compared with what stands below its
//! line; `MESHPLAN_BLESS=1` writes that anew.
#![expect(clippy::unwrap_used, reason = "a test says why by failing")]

use std::path::{Path, PathBuf};

use futures_util::StreamExt as _;
use meshplan_reconciler::simulation::{self, EXPECTED};

fn scripts(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .collect();
    found.sort();
    found
}

/// The script without what is expected, and that.
fn split(text: &str) -> (&str, &str) {
    let line = format!("{EXPECTED}\n");
    text.split_once(line.as_str()).unwrap_or((text, ""))
}

async fn played(script: &str, path: &Path) -> String {
    let mut out = Vec::new();
    let ended = simulation::run(script, path.parent().unwrap(), &mut out).await;
    let mut said = String::from_utf8(out).unwrap();
    if let Err(error) = ended {
        said.push_str(&format!("error: {error}\n"));
    }
    said
}

/// What a script says otherwise than is expected, none where it does not; taken as expected where that is asked.
async fn differs(path: PathBuf) -> Option<String> {
    let text = std::fs::read_to_string(&path).unwrap();
    let (script, expected) = split(&text);
    let said = played(script, &path).await;
    if std::env::var_os("MESHPLAN_BLESS").is_some() {
        std::fs::write(&path, format!("{}\n\n{EXPECTED}\n{said}", script.trim_end())).unwrap();
        return None;
    }
    if said == expected {
        return None;
    }
    let differ = said.lines().zip(expected.lines()).position(|(a, b)| a != b);
    let at = differ.unwrap_or(said.lines().count().min(expected.lines().count()));
    let line = |text: &str| text.lines().nth(at).unwrap_or("(nothing)").to_owned();
    Some(format!(
        "{}: line {} says\n  {}\nand is to say\n  {}",
        path.file_name().unwrap().display(),
        at + 1,
        line(&said),
        line(expected)
    ))
}

async fn all_say_what_they_said(scripts: Vec<PathBuf>) {
    let played = scripts.into_iter().map(|path| tokio::spawn(differs(path)));
    let wrong: Vec<String> = futures_util::stream::iter(played)
        .buffered(2)
        .filter_map(|differs| async { differs.unwrap() })
        .collect()
        .await;
    assert!(
        wrong.is_empty(),
        "{}\nMESHPLAN_BLESS=1 takes the new words; read them first",
        wrong.join("\n")
    );
}

/// Every fourth script, from this one on: so that no test takes long.
async fn every_fourth_says_what_it_said(from: usize) {
    let all = scripts("scripts");
    assert!(all.len() > 50, "only {} scripts", all.len());
    all_say_what_they_said(all.into_iter().skip(from).step_by(4).collect()).await;
}

// holds: OP-11
#[tokio::test(flavor = "multi_thread")]
async fn every_script_says_what_it_said_when_somebody_last_read_it() {
    every_fourth_says_what_it_said(0).await;
}

// holds: OP-11
#[tokio::test(flavor = "multi_thread")]
async fn the_second_fourth_of_the_scripts_says_what_it_said() {
    every_fourth_says_what_it_said(1).await;
}

// holds: OP-11
#[tokio::test(flavor = "multi_thread")]
async fn the_third_fourth_of_the_scripts_says_what_it_said() {
    every_fourth_says_what_it_said(2).await;
}

// holds: OP-11
#[tokio::test(flavor = "multi_thread")]
async fn the_last_fourth_of_the_scripts_says_what_it_said() {
    every_fourth_says_what_it_said(3).await;
}

// holds: OP-11
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_machines_are_rehearsed_as_a_few_are() {
    let all = scripts("scripts/large");
    assert_eq!(all.len(), 1);
    all_say_what_they_said(all).await;
}

// holds: OP-11
#[tokio::test(flavor = "multi_thread")]
async fn the_same_script_gives_the_same_words() {
    let path = scripts("scripts").remove(0);
    let text = std::fs::read_to_string(&path).unwrap();
    let (script, _) = split(&text);
    assert_eq!(played(script, &path).await, played(script, &path).await);
}

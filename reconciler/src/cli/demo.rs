//! `meshplan demo`: a whole fleet at work on this machine (OP-1).
//!
//! A forge (real git over HTTP before a bare repository), the reconciler and three hosts, each a process in a folder
//! of its own; two merges: one that walks, one that is taken back. What is shown is asked of the running programs.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args as ClapArgs;
use meshplan_schemas::lifecycle::delivery::State;
use serde_json::{Value, json};

use super::exit::Exit;
use crate::pure::page::{DeliveryView, StatusView};

mod fleet_repo;
mod stage;

use fleet_repo::FleetRepo;
use stage::Stage;

/// The three nodes of the demo's fleet.
const NODES: [&str; 3] = ["ace", "bea", "cid"];
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the programs are asked.
const EVERY: Duration = Duration::from_millis(100);

/// Shows a whole fleet at work on this machine.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// End after the two changes.
    #[arg(long)]
    pub once: bool,
    /// The folder to work in; must be empty or not there. It is removed at the end.
    #[arg(long)]
    pub dir: Option<PathBuf>,
}

/// Tells what happens: to a person in lines, to a program in JSON lines.
struct Teller<'a> {
    out: &'a mut dyn Write,
    json: bool,
    begun: Instant,
}

impl Teller<'_> {
    fn line(&mut self, text: &str) -> std::io::Result<()> {
        if self.json {
            Ok(())
        } else {
            writeln!(self.out, "{text}")
        }
    }
    fn event(&mut self, event: &str, mut facts: Value) -> std::io::Result<()> {
        if !self.json {
            return Ok(());
        }
        if let Some(facts) = facts.as_object_mut() {
            facts.insert("event".into(), event.into());
            facts.insert(
                "at_ms".into(),
                u64::try_from(self.begun.elapsed().as_millis())
                    .unwrap_or(u64::MAX)
                    .into(),
            );
        }
        writeln!(self.out, "{facts}")
    }
    /// A step of a walk, with the time since the merge.
    fn step(&mut self, since: Instant, text: &str) -> std::io::Result<()> {
        self.line(&format!("   {:>5.1} s  {text}", since.elapsed().as_secs_f32()))
    }
}

/// Runs the demo. [`Exit::No`] when a story did not end as it must.
///
/// # Errors
/// Something could not be started or asked; the text says what, and shows the end of its log.
pub async fn run(args: &Args, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut teller = Teller {
        out,
        json,
        begun: Instant::now(),
    };
    let mut stage = Stage::set(args.dir.as_deref()).await?;
    let told = tokio::select! {
        told = tell(&mut stage, &mut teller, args.once) => told,
        () = interrupted() => {
            teller.line("\ninterrupted: cleaning up")?;
            Ok(Exit::Done)
        }
    };
    let told = told.map_err(|error| error.context(stage.logs()));
    stage.clear().await;
    told
}

async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
}

async fn tell(stage: &mut Stage, teller: &mut Teller<'_>, once: bool) -> anyhow::Result<Exit> {
    teller.line(&format!(
        "A forge, a reconciler and three hosts, each a process of its own, in {}\n",
        stage.folder().display()
    ))?;
    let repo = FleetRepo::found(stage).await?;
    stage.start_reconciler().await?;
    let page = stage.page();
    teller.line(&format!(
        "   forge       {} (git over HTTP before a bare repository)",
        stage.forge_url()
    ))?;
    teller.line(&format!("   reconciler  {page} (its status page)"))?;
    teller.event(
        "started",
        json!({ "dir": stage.folder(), "page": page, "forge": stage.forge_url() }),
    )?;
    until_over(stage, &repo.head().await?, |_| Ok(())).await?;
    enrol(stage).await?;
    repo.pull().await?;
    teller.line(
        "   hosts       ace, bea, cid: enrolled, each admitted by a merge, and on the first commit's content",
    )?;
    teller.event("enrolled", json!({ "nodes": NODES }))?;

    let good = first_story(stage, &repo, teller).await?;
    let taken_back = second_story(stage, &repo, teller).await?;
    if !(good && taken_back) {
        return Ok(Exit::No);
    }
    farewell(stage, teller, once)?;
    if !once {
        std::future::pending::<()>().await;
    }
    Ok(Exit::Done)
}

/// A change that walks: a file, a templated file, a policy value.
async fn first_story(stage: &Stage, repo: &FleetRepo, teller: &mut Teller<'_>) -> anyhow::Result<bool> {
    teller.line("\n1. A change of a file, a templated file and a policy value is merged")?;
    let commit = repo.merge_good_change(stage).await?;
    let view = walk(stage, teller, &commit).await?;
    repo.fetch_notes(&commit).await?;
    let log = repo.log_with_notes().await?;
    teller.line("\n   $ git log --notes=mesh-plan -1")?;
    for line in log.lines() {
        teller.line(format!("   {line}").trim_end())?;
    }
    let on_all = NODES.iter().all(|n| {
        stage
            .read_on(n, "srv/web/motd.txt")
            .is_some_and(|t| t.contains("changed"))
    });
    teller.event(
        "change",
        json!({ "commit": commit, "state": view.state, "on_every_node": on_all, "log": log }),
    )?;
    Ok(view.state == State::Delivered && on_all)
}

/// A change that breaks a probe on the canary: taken back, and the rest never saw it.
async fn second_story(stage: &Stage, repo: &FleetRepo, teller: &mut Teller<'_>) -> anyhow::Result<bool> {
    teller.line("\n2. A change that breaks a probe on the canary is merged")?;
    let before = sequences(stage).await?;
    let contents = |nodes: &[&str]| -> Vec<Option<String>> {
        nodes
            .iter()
            .map(|n| stage.read_on(n, "etc/web/web.conf"))
            .collect()
    };
    let conf = contents(&NODES);
    let commit = repo.merge_bad_change(stage).await?;
    let view = walk(stage, teller, &commit).await?;
    let after = sequences(stage).await?;
    let untouched = before.iter().zip(&after).skip(1).all(|(b, a)| b == a);
    let restored = conf == contents(&NODES);
    if let Some(cause) = &view.abort_cause {
        teller.line(&format!("   cause: {cause}"))?;
    }
    if untouched && restored {
        teller.line(&format!(
            "   ace has its former content again; bea and cid never saw it: still at sequence {} and {}",
            after[1], after[2]
        ))?;
    }
    teller.event(
        "broken-change",
        json!({ "commit": commit, "state": view.state, "cause": view.abort_cause, "rest_untouched": untouched, "restored": restored }),
    )?;
    Ok(view.state == State::RolledBack && untouched && restored)
}

fn farewell(stage: &Stage, teller: &mut Teller<'_>, once: bool) -> anyhow::Result<()> {
    teller.event("done", json!({ "page": stage.page() }))?;
    if once {
        return Ok(());
    }
    teller.line(&format!("\nThe status page: {}", stage.page()))?;
    teller.line("To try next, in another terminal:")?;
    teller.line(&format!("   cd {}", stage.work().display()))?;
    teller.line(
        "   echo 'good morning' > modules/web/files/motd.txt && git commit -am 'a greeting' && git push",
    )?;
    teller.line(&format!(
        "   meshplan --config {} deliveries list",
        stage.config().display()
    ))?;
    teller.line(&format!(
        "   meshplan-host --root {} status",
        stage.root_of("ace").display()
    ))?;
    teller.line("Ctrl-C ends it and removes the folder.")?;
    Ok(())
}

/// Follows a delivery to its end, telling each thing once.
async fn walk(stage: &Stage, teller: &mut Teller<'_>, commit: &str) -> anyhow::Result<DeliveryView> {
    let since = Instant::now();
    let mut told = String::new();
    until_over(stage, commit, |view| {
        let now = in_a_line(view);
        if now != told {
            teller.step(since, &now)?;
            told = now;
        }
        Ok(())
    })
    .await
}

fn in_a_line(view: &DeliveryView) -> String {
    let stages: Vec<String> = view
        .stages
        .iter()
        .map(|s| format!("{} {}", s.name, s.summary))
        .collect();
    let stages = if stages.is_empty() {
        String::new()
    } else {
        format!(": {}", stages.join("; "))
    };
    format!("{} ({}){stages}", view.state, view.code)
}

async fn until_over(
    stage: &Stage,
    commit: &str,
    mut seen: impl FnMut(&DeliveryView) -> anyhow::Result<()>,
) -> anyhow::Result<DeliveryView> {
    let begun = Instant::now();
    loop {
        // The reconciler has not heard of the commit yet: not an error, only early.
        if let Ok(view) = stage
            .client()
            .get::<DeliveryView>(&format!("/api/deliveries/{commit}"))
            .await
        {
            seen(&view)?;
            if view.state.is_final() || view.state == State::Held {
                return Ok(view);
            }
        }
        if begun.elapsed() > PATIENCE {
            bail!("the delivery of {commit} does not come to an end");
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Enrols the three machines as an operator would, all at once, and waits until each has its content.
async fn enrol(stage: &mut Stage) -> anyhow::Result<()> {
    let mut enrolling = Vec::new();
    for node in NODES {
        let invite = json!({ "name": node, "count": 1, "roles": [], "modules": [], "expires_secs": 3600, "admit": false });
        let made: Value = stage.client().post("/api/invites", &invite).await?;
        let token: meshplan_schemas::session::token::Token =
            serde_json::from_value(made[0][0].clone()).context("an invitation has a token")?;
        enrolling.push((node, stage.enrol_host(node, &token.to_string())?));
    }
    for (node, mut child) in enrolling {
        let begun = Instant::now();
        // The branch is there once the machine has asked.
        while stage
            .client()
            .post::<Value>(&format!("/api/admissions/{node}"), &json!({}))
            .await
            .is_err()
        {
            if begun.elapsed() > PATIENCE {
                bail!("{node} does not ask for admission");
            }
            tokio::time::sleep(EVERY).await;
        }
        let ended = tokio::time::timeout(PATIENCE, child.wait())
            .await
            .context("the enrolment does not end")??;
        if !ended.success() {
            bail!("the enrolment of {node} ended with {ended}");
        }
        stage.run_host(node)?;
    }
    let begun = Instant::now();
    loop {
        let status: StatusView = stage.client().get("/api/status").await?;
        let settled = |n: &crate::pure::page::NodeView| {
            n.presence == "connected" && n.confirmed_sequence > 0 && n.running_epoch > 0
        };
        if status.page.nodes.iter().filter(|n| settled(n)).count() == NODES.len() {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            bail!(
                "the hosts do not settle: {}",
                serde_json::to_string(&status.page.nodes)?
            );
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// The newest confirmed sequence of each node, in the order of [`NODES`].
async fn sequences(stage: &Stage) -> anyhow::Result<Vec<u64>> {
    let status: StatusView = stage.client().get("/api/status").await?;
    let of = |name: &&str| {
        (status.page.nodes)
            .iter()
            .find(|n| n.name == **name)
            .map_or(0, |n| n.confirmed_sequence)
    };
    Ok(NODES.iter().map(of).collect())
}

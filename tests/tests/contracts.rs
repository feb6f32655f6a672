//! What the reconciler asks of forges, and what the doubles answer and send, held to what third parties say of the real ones:
//! Forgejo's published description of its API, other people's clients, GitHub's schemas of webhooks, an emulator of GitHub. And
//! what our own pages say that a forge has to be given.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use meshplan_reconciler::config;
use meshplan_reconciler::edge::clock::Clock;
use meshplan_reconciler::edge::forge::Forge;
use meshplan_reconciler::pure::forge::{CommitStatus, NewPull, Said, StatusState, User};
use scenarios::double::{BOT, Brand, Double, Says, Way};
use scenarios::world::World;
use tokio::runtime::Runtime;

#[path = "contracts/clients.rs"]
mod clients;
#[path = "contracts/emulator.rs"]
mod emulator;
#[path = "contracts/hooks.rs"]
mod hooks;
#[path = "contracts/openapi.rs"]
mod openapi;
#[path = "contracts/pages.rs"]
mod pages;

/// The marker of a comment of ours.
const MARKER: &str = "<!-- a test -->";

/// A forge where something has happened: a pull request that is open, one that was merged, and all that stands beside them.
struct Scene {
    world: World,
    double: Double,
    open: u64,
    head: String,
    merged: u64,
    commit: String,
}

impl Scene {
    fn at(brand: Brand) -> Result<Self> {
        let (world, double) = World::at_forge(brand, "third")?;
        double.team("ops", &["dana", BOT]);
        let open = |branch: &str| -> Result<(u64, String)> {
            world.git(&["checkout", "--quiet", "-B", branch, "main"])?;
            world.write(&format!("{branch}.md"), branch)?;
            let head = world.commit(branch)?;
            world.git(&["push", "--quiet", "origin", &format!("HEAD:refs/heads/{branch}")])?;
            let number = double.open_pull("dana", branch, branch)?;
            double.comment("dana", number, "look at this")?;
            double.review("ravi", number, Says::Approve)?;
            double.set_status(&head, "ci/theirs", "success");
            double.run_check(&head, "ci/own", "success");
            Ok((number, head))
        };
        let (merged, _) = open("merged")?;
        let (number, head) = open("open")?;
        let commit = double.merge("ravi", merged, Way::Squash)?;
        Ok(Self {
            world,
            double,
            open: number,
            head,
            merged,
            commit,
        })
    }

    fn token(&self) -> Result<String> {
        let token = std::fs::read_to_string(self.world.state().join("forge-token"))?;
        Ok(token.trim().to_owned())
    }
}

/// The reconciler's client of a forge.
fn client(
    kind: config::ForgeKind,
    url: String,
    api_url: Option<String>,
    token_file: PathBuf,
) -> Result<Forge> {
    let config = config::Forge {
        kind,
        api_url,
        url,
        repo: "acme/fleet".to_owned(),
        webhook_secret_file: token_file.clone(),
        credentials_file: None,
        token_file: Some(token_file),
        poll_secs: 60,
    };
    Forge::open(&config, Clock::default())?.context("a client")
}

fn dana() -> User {
    User {
        id: 41,
        login: "dana".to_owned(),
    }
}

/// Everything that the reconciler asks of a forge, once.
async fn every_verb(forge: &Forge, scene: &Scene) -> Result<()> {
    let commit = scene.commit.parse().map_err(anyhow::Error::msg)?;
    let head = scene.head.parse().map_err(anyhow::Error::msg)?;
    ensure!(forge.me().await?.login == BOT);
    ensure!(forge.open_pulls().await?.len() == 1);
    ensure!(
        forge
            .pull_request(scene.open)
            .await?
            .is_some_and(|pull| pull.open)
    );
    ensure!(forge.pull_request(999).await?.is_none());
    let found = forge.find_by_commit(&commit).await?;
    ensure!(found.is_some_and(|pull| pull.number == scene.merged));
    ensure!(forge.comments(scene.open, None).await?.len() == 1);
    let now = Clock::default().now();
    ensure!(forge.comments(scene.open, Some(now)).await?.len() <= 1);
    for (state, description) in [
        (StatusState::Pending, "on its way"),
        (StatusState::Success, "well"),
    ] {
        let status = CommitStatus {
            repo: None,
            commit: commit.clone(),
            context: "meshplan/delivery".to_owned(),
            state,
            description: description.to_owned(),
        };
        forge.set_status(&status).await?;
    }
    let mut said = Said {
        number: scene.open,
        marker: MARKER.to_owned(),
        body: format!("{MARKER}\nfirst"),
    };
    let id = forge.upsert_comment(&said, None).await?;
    said.body.push_str(", and more");
    tokio::time::sleep(Duration::from_secs(forge.manners().edit_gap_secs.into())).await;
    ensure!(forge.upsert_comment(&said, Some(id)).await? == id);
    ensure!(forge.upsert_comment(&said, None).await? == id, "found again");
    scene
        .world
        .git(&["push", "--quiet", "origin", "open:refs/heads/meshplan/revert/x"])?;
    let new = NewPull {
        title: "Revert".to_owned(),
        body: "Why".to_owned(),
        from: "meshplan/revert/x".to_owned(),
        into: "main".to_owned(),
    };
    forge.open_pull_request(&new).await?;
    forge.open_pull_request(&new).await?;
    ensure!(forge.reviews(scene.open).await?.len() == 1);
    let named = ["ci/theirs".to_owned(), "ci/own".to_owned()];
    ensure!(forge.checks(None, &head, &named).await?.len() == 2);
    ensure!(forge.may_write(&dana()).await?);
    ensure!(forge.members("ops").await?.contains(&41));
    ensure!(forge.members("nobody").await.is_err());
    Ok(())
}

/// Runs something that waits.
fn wait<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    Runtime::new()?.block_on(work)
}

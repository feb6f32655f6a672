//! What a script wants to see, in the words of the status page and of `why`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use meshplan_schemas::ident::NodeId;

use super::script::Show;
use super::world::{Trouble, World};
use crate::edge::health::RECOVERING;
use crate::edge::rollouts::Asking;
use crate::pure::decide::why::{Why, why as why_delivery, why_node};
use crate::pure::delivery::{Delivery, Transition};
use crate::pure::page;
use crate::pure::rollout::{Rollout, status};

/// More machines than this are counted, not listed.
const LISTED: usize = 30;

/// An instant as stories have it: the day of the week and the time.
pub(super) fn at(at: Timestamp) -> String {
    at.strftime("%a %H:%M:%S").to_string()
}

pub(super) fn transition(number: usize, delivery: &Delivery, transition: &Transition) -> String {
    format!(
        "{}  {number} {}: {} ({}) by {}: {}",
        at(transition.at),
        delivery.subject,
        transition.to,
        transition.code,
        transition.actor,
        transition.reason
    )
}

async fn delivery(world: &World, number: usize) -> Result<Delivery, Trouble> {
    let commit = world.forge.numbered(number);
    let found = match commit {
        Some(commit) => world.store()?.delivery(&commit.id).await?,
        None => None,
    };
    found.ok_or_else(|| Trouble::Step(format!("there is no delivery {number}")))
}

pub(super) async fn show(world: &World, what: &Show) -> Result<Vec<String>, Trouble> {
    match what {
        Show::Deliveries => {
            let mut deliveries = world.store()?.deliveries(50).await?;
            deliveries.reverse();
            Ok(deliveries
                .iter()
                .map(|d| {
                    let number = world.forge.number_of(&d.commit).unwrap_or(0);
                    format!(
                        "{number} {}: {} ({}) since {}: {}",
                        d.subject,
                        d.state,
                        d.code,
                        at(d.since),
                        d.reason
                    )
                })
                .collect())
        }
        Show::Delivery(number) => {
            let found = delivery(world, *number).await?;
            let transitions = world.store()?.transitions_of(&found.commit).await?;
            let heard = world.store()?.nodes().await?;
            let view = page::delivery(&found, &transitions, &heard);
            let mut said = vec![format!("{} ({}): {}", view.state, view.code, view.reason)];
            said.extend(view.abort_cause.map(|cause| format!("cause: {cause}")));
            for stage in view.stages {
                said.push(format!("  {}: {}", stage.name, stage.summary));
                if stage.machines.len() <= LISTED {
                    said.extend(stage.machines.iter().map(|m| format!("    {}", m.line())));
                }
            }
            said.extend(view.left_behind.iter().map(|m| format!("  {}", m.line())));
            said.extend(view.remarks.iter().map(|line| format!("  remark: {line}")));
            if !view.outstanding.is_empty() {
                said.push(format!("  outstanding: {}", view.outstanding.join(", ")));
            }
            Ok(said)
        }
        Show::Machines => {
            if world.hosts.len() <= LISTED {
                return Ok(world.hosts.values().map(super::host::Host::line).collect());
            }
            let mut counted: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
            for host in world.hosts.values() {
                let line = host.line();
                let state = line.split_once(": ").map_or(line.as_str(), |(_, rest)| rest);
                // A sequence is each machine's own.
                let state = state
                    .split_whitespace()
                    .filter(|word| !word.bytes().all(|b| b.is_ascii_digit()));
                *counted.entry(state.collect::<Vec<_>>().join(" ")).or_default() += 1;
            }
            Ok(counted
                .into_iter()
                .map(|(state, count)| format!("{count} machines: {state}"))
                .collect())
        }
        Show::Rollout => Ok(newest(world)
            .await?
            .map_or_else(nothing, |r| status::lines(&r, LISTED, at))),
        Show::Timeline => Ok(newest(world)
            .await?
            .map_or_else(nothing, |r| status::timeline(&r.timeline, at))),
        Show::Rollouts => {
            let archives = world.store()?.archives(0, 50).await?;
            Ok(archives.iter().map(|a| status::summary(a, at)).collect())
        }
        Show::Events => {
            let events = world.store()?.events(0, 1000).await?;
            Ok(events.iter().map(|e| status::event(e, at)).collect())
        }
        Show::Note(number) => {
            let found = delivery(world, *number).await?;
            let blocks = world.store()?.blocks_of(&found.commit).await?;
            let lines = blocks
                .iter()
                .flat_map(|block| block.text.lines().map(|line| format!("  {line}")));
            Ok(lines.collect())
        }
    }
}

async fn newest(world: &World) -> Result<Option<Rollout>, Trouble> {
    let asking = Asking {
        store: world.store()?,
        health: &world.health,
        now: world.now(),
    };
    Ok(asking.newest().await?)
}

fn nothing() -> Vec<String> {
    vec!["there was no rollout yet".to_owned()]
}

pub(super) async fn why(world: &World, which: &str) -> Result<Vec<String>, Trouble> {
    let open = world.store()?.snapshot().await?.deliveries;
    if let Ok(number) = which.parse() {
        let found = delivery(world, number).await?;
        let why = why_delivery(&found, &open, world.now());
        if found.state.is_final() {
            return Ok(answer(&why));
        }
        return Ok(answer(&meanwhile(world, why)));
    }
    let Some(roster) = world.health.roster() else {
        return Err(Trouble::Step("there is no fleet yet".to_owned()));
    };
    let heard = world.store()?.nodes().await?;
    let hosts = world.hosts.values().filter(|host| host.reachable());
    let connected: BTreeSet<NodeId> = hosts.map(|host| host.id).collect();
    let node = (roster.nodes.values()).find(|node| node.name.as_str() == which);
    let node = node.ok_or_else(|| Trouble::Step(format!("there is no machine {which}")))?;
    let node = page::node(node, heard.get(&node.id), connected.contains(&node.id));
    let why = why_node(&node, &open, world.now());
    Ok(answer(&meanwhile(world, why)))
}

/// The same while a lost database waits for its machines.
fn meanwhile(world: &World, why: Why) -> Why {
    match world.health.trouble(RECOVERING) {
        Some(words) => why.recovering(words),
        None => why,
    }
}

fn answer(why: &Why) -> Vec<String> {
    let mut said = vec![
        format!("  waits for: {}", why.waits_for),
        format!("  rule: {}", why.rule),
        format!("  next: {}", why.next),
    ];
    said.extend(why.deadline.map(|deadline| format!("  until: {}", at(deadline))));
    said.extend(
        why.command
            .as_ref()
            .map(|command| format!("  command: {command}")),
    );
    said
}

//! What a script says of rollouts, refused or passed on as the API does it (RO-6).

use super::script::Order;
use super::word::Word;
use super::world::{Trouble, World};
use crate::pure::delivery::Delivery;
use crate::pure::rollout::words::{self, Overrides};
use crate::pure::snapshot::Verb;
use meshplan_schemas::ident::CommitId;

/// A person's word about rollouts, refused or passed on as the API does it.
pub(super) async fn order(world: &mut World, order: &Order) -> Result<Vec<String>, Trouble> {
    let store = world.store()?.clone();
    let in_hand = store.deliveries(20).await?.into_iter().find(words::is_in_hand);
    let in_hand = in_hand.as_ref();
    let (asked, why) = match order {
        Order::Start(number, overrides) => {
            let commit = world.forge.numbered(*number);
            let delivery = match commit {
                Some(commit) => store.delivery(&commit.id).await?,
                None => None,
            };
            let delivery = delivery.ok_or_else(|| Trouble::Step(format!("there is no delivery {number}")))?;
            let asked = match words::start_refused(&delivery, in_hand) {
                Some(why) => Err(why),
                None => Ok((Verb::Go, delivery.commit, Some((**overrides).clone()))),
            };
            (asked, String::new())
        }
        Order::Release { force } => (of(words::release(in_hand, *force), in_hand), String::new()),
        Order::Abort(why) => (of(words::abort(in_hand), in_hand), why.clone()),
    };
    match asked {
        Ok((verb, commit, start)) => {
            let word = Word::of(verb, Some(commit)).because(&why);
            world.ask(Word { start, ..word }).await
        }
        Err(why) => Ok(vec![format!("answer: refused: {why}")]),
    }
}

/// A word and the delivery that it is about.
fn of(
    verb: Result<Verb, String>,
    in_hand: Option<&Delivery>,
) -> Result<(Verb, CommitId, Option<Overrides>), String> {
    let commit = in_hand.map(|d| d.commit.clone());
    verb.and_then(|verb| Ok((verb, commit.ok_or("no rollout is in hand")?, None)))
}

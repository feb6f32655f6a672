//! A commit that itself brings a secret which the reconciler cannot open is no order (FR-8).
//!
//! One that stood in the tree before, and opens no more, is not this commit's doing: its modules are left out, and the
//! others go on.

use meshplan_schemas::lifecycle::delivery::{Code, State};

use crate::pure::compose::Composed;
use crate::pure::decide::draft::Draft;
use crate::pure::delivery::Delivery;

/// Why the commit is refused; none where it is not.
pub(super) fn refusal(draft: &Draft<'_>, delivery: &Delivery, tree: &Composed) -> Option<String> {
    let before = delivery.previous.as_ref();
    // What a commit that was refused for it had brought is no excuse for the next one.
    let refused = before
        .and_then(|commit| draft.deliveries.get(commit))
        .is_some_and(|before| before.state == State::Failed && before.code == Code::Invalid);
    let before = before.filter(|_| !refused).and_then(|commit| draft.tree(commit));
    let stood = |path: &str, file| {
        let before = before.as_ref().and_then(|before| before.secrets.closed.get(path));
        before.is_some_and(|(before, _)| before == file)
    };
    let brought: Vec<String> = (tree.secrets.closed.iter())
        .filter(|(path, (file, _))| !stood(path, file))
        .map(|(path, (_, why))| format!("{path}: the reconciler cannot open this secret: {why}"))
        .collect();
    (!brought.is_empty()).then(|| brought.join("; "))
}

//! The order of services: what one depends on comes before it. A module is applied in the order of its document.

use super::{Compose, Key, Node, Value, table, text};

/// The services in an order in which each comes after what it depends on, else as they stand.
pub(super) fn in_order<'n>(compose: &mut Compose<'_>, services: &'n [(Key, Node)]) -> Vec<&'n (Key, Node)> {
    let mut needs: Vec<Vec<usize>> = Vec::new();
    for (name, node) in services {
        let entries = table(node).unwrap_or_default();
        let depends = entries.iter().find(|(key, _)| key.text == "depends_on");
        let named = depends.map_or_else(Vec::new, |(key, node)| depends_on(compose, name, key, node));
        let mut found = Vec::new();
        for key in named {
            match services.iter().position(|(other, _)| other.text == key.text) {
                Some(at) => found.push(at),
                None => {
                    let what = format!("`depends_on` of the service `{}`", name.text);
                    let why = format!("there is no service `{}`", key.text);
                    compose.leave(&key.span, &what, &why);
                }
            }
        }
        needs.push(found);
    }
    let mut order: Vec<usize> = Vec::new();
    let mut done = vec![false; services.len()];
    while order.len() < services.len() {
        let ready = |at: &usize| !done[*at] && needs[*at].iter().all(|need| done[*need]);
        let next = (0..services.len()).find(ready);
        let first_left = done.iter().position(|done| !done);
        let Some(next) = next.or(first_left) else { break };
        if !needs[next].iter().all(|need| done[*need]) {
            let (key, _) = &services[next];
            let what = format!("`depends_on` of the service `{}`", key.text);
            compose.leave(&key.span, &what, "it depends on itself by way of others");
        }
        done[next] = true;
        order.push(next);
    }
    order.into_iter().filter_map(|at| services.get(at)).collect()
}

/// What a service depends on.
fn depends_on(compose: &mut Compose<'_>, name: &Key, key: &Key, node: &Node) -> Vec<Key> {
    let what = format!("`depends_on` of the service `{}`", name.text);
    match &node.value {
        Value::List(list) => {
            let mut names = Vec::new();
            for item in list {
                match text(item) {
                    Ok(text) => names.push(Key {
                        text,
                        span: item.span.clone(),
                    }),
                    Err(why) => compose.leave(&item.span, &what, &why),
                }
            }
            names
        }
        Value::Table(entries) => {
            for (other, node) in entries {
                for (inner, node) in table(node).unwrap_or_default() {
                    let value = text(node).unwrap_or_default();
                    match (inner.text.as_str(), value.as_str()) {
                        ("condition", "service_started") => {}
                        ("condition", "service_completed_successfully") => {
                            compose.completed.push(other.text.clone());
                        }
                        ("required", "true") | ("restart", "false") => {}
                        (_, value) => {
                            let why = format!(
                                "`{}: {value}`: a container is started after what comes before it, and is not kept \
                                 waiting",
                                inner.text
                            );
                            compose.leave(&inner.span, &what, &why);
                        }
                    }
                }
            }
            entries.iter().map(|(key, _)| key.clone()).collect()
        }
        Value::Text { .. } => {
            compose.leave(&key.span, &what, "expected a list or a table");
            Vec::new()
        }
    }
}

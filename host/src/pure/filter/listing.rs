//! What `nft -j` lists (libnftables-json(5)), as chains of rules of which only that is told which says what becomes of
//! traffic and of whose.
//!
//! It stands alone because the listing has every expression that any program may write, of any version of nft: what is not
//! known here is passed over where it narrows a rule, and counts as unclear where it may be what becomes of traffic.

use meshplan_schemas::digest::Digest;
use serde_json::Value;

use super::{FAMILY, TABLE};

/// A chain, of nftables or of the legacy tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chain {
    /// `inet`, `ip`, `ip6`; before those of the legacy tables `legacy`.
    pub family: String,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// What no rule decides is refused.
    pub refuses_the_rest: bool,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
}

/// What becomes of traffic by a rule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// It refuses some.
    pub refuses: bool,
    /// It accepts some.
    pub accepts: bool,
    /// It may do either; the listing does not tell.
    pub is_unclear: bool,
    /// It is for named sources only.
    pub names_sources: bool,
    /// The chains that it leads to.
    pub leads_to: Vec<String>,
}

/// What of a listing is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// In order.
    pub chains: Vec<Chain>,
    /// Families of which rules stand in words of iptables that nft does not tell in full.
    pub in_other_words: Vec<String>,
}

/// Words of iptables that refuse.
pub(super) const REFUSING: [&str; 5] = ["DROP", "REJECT", "TARPIT", "DELUDE", "STEAL"];

fn objects(text: &str) -> Result<Vec<Value>, String> {
    let value: Value = serde_json::from_str(text).map_err(|e| format!("nft lists what is no JSON: {e}"))?;
    match value.get("nftables") {
        Some(Value::Array(objects)) => Ok(objects.clone()),
        _ => Err("nft lists what is no ruleset".to_owned()),
    }
}

fn text_of(value: &Value, key: &str) -> String {
    value
        .get(key)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// Reads the chains of `nft -j list ruleset`.
///
/// # Errors
/// In words: it is none.
pub fn listing(text: &str) -> Result<Listing, String> {
    let mut out = Listing::default();
    for object in objects(text)? {
        if let Some(chain) = object.get("chain") {
            out.chains.push(Chain {
                family: text_of(chain, "family"),
                table: text_of(chain, "table"),
                name: text_of(chain, "name"),
                refuses_the_rest: text_of(chain, "policy") == "drop",
                rules: Vec::new(),
            });
        }
        let Some(rule) = object.get("rule") else { continue };
        let (family, table, name) = (
            text_of(rule, "family"),
            text_of(rule, "table"),
            text_of(rule, "chain"),
        );
        let expressions = rule
            .get("expr")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        if expressions.iter().any(|e| e.get("xt").is_some()) && !out.in_other_words.contains(&family) {
            out.in_other_words.push(family.clone());
        }
        let is_it = |chain: &&mut Chain| chain.family == family && chain.table == table && chain.name == name;
        if let Some(chain) = out.chains.iter_mut().find(is_it) {
            chain.rules.push(read(expressions));
        }
    }
    Ok(out)
}

fn read(expressions: &[Value]) -> Rule {
    let mut rule = Rule::default();
    for expression in expressions {
        let Some((word, what)) = expression.as_object().and_then(|object| object.iter().next()) else {
            // A version of nft that writes a word alone: `"accept"`.
            verdict(expression.as_str().unwrap_or_default(), &Value::Null, &mut rule);
            continue;
        };
        match word.as_str() {
            "match" => rule.names_sources |= is_of_sources(what),
            "vmap" => by_map(what, &mut rule),
            "xt" => match (text_of(what, "type").as_str(), text_of(what, "name").as_str()) {
                ("match" | "watcher", _) => {}
                ("target", name) if REFUSING.contains(&name) => rule.refuses = true,
                ("target", _) => {}
                // An older nft says no more than that there is one.
                _ => rule.is_unclear = true,
            },
            word => verdict(word, what, &mut rule),
        }
    }
    // Whatever that one is, it is not what becomes of the traffic.
    if rule.refuses || rule.accepts || !rule.leads_to.is_empty() {
        rule.is_unclear = false;
    }
    rule
}

fn verdict(word: &str, what: &Value, rule: &mut Rule) {
    match word {
        "drop" | "reject" => rule.refuses = true,
        "accept" => rule.accepts = true,
        "jump" | "goto" => rule.leads_to.push(text_of(what, "target")),
        _ => {}
    }
}

/// A map from what traffic is to what becomes of it.
fn by_map(map: &Value, rule: &mut Rule) {
    rule.names_sources |= map.get("key").is_some_and(is_a_source);
    let elements = map
        .get("data")
        .and_then(|data| data.get("set"))
        .and_then(Value::as_array);
    let Some(elements) = elements else {
        // A map with a name, whose elements are not listed.
        rule.is_unclear = true;
        return;
    };
    for element in elements {
        let verdicts = element.get(1).and_then(Value::as_object);
        for (word, what) in verdicts.into_iter().flatten() {
            verdict(word, what, rule);
        }
    }
}

/// Whether a match holds for named sources only.
fn is_of_sources(what: &Value) -> bool {
    let is_positive = ["==", "in"].contains(&text_of(what, "op").as_str());
    let of_all = what
        .get("right")
        .and_then(|right| right.get("prefix"))
        .and_then(|prefix| prefix.get("len"));
    is_positive && of_all.and_then(Value::as_u64) != Some(0) && what.get("left").is_some_and(is_a_source)
}

fn is_a_source(left: &Value) -> bool {
    if let Some(Value::Array(parts)) = left.get("concat") {
        return parts.iter().any(is_a_source);
    }
    let field = left.get("payload").map(|payload| text_of(payload, "field"));
    let ct = left.get("ct").map(|ct| (text_of(ct, "key"), text_of(ct, "dir")));
    field.is_some_and(|field| field == "saddr")
        || ct.is_some_and(|(key, dir)| key.ends_with("saddr") && dir != "reply")
}

/// Whether the host's own table is among those that `nft -j list tables` lists, and the version of nft.
///
/// # Errors
/// In words: it is no list.
pub fn has_own_table(text: &str) -> Result<bool, String> {
    let objects = objects(text)?;
    let tables = objects.iter().filter_map(|object| object.get("table"));
    Ok(tables
        .map(|table| (text_of(table, "family"), text_of(table, "name")))
        .any(|(family, name)| family == FAMILY && name == TABLE))
}

/// What a listing of a table says beside what changes by itself: numbers of objects, counted packets, the words that
/// nft begins with.
///
/// # Errors
/// In words: it is no listing.
pub fn shape(text: &str) -> Result<Digest, String> {
    let mut objects = objects(text)?;
    objects.retain(|object| object.get("metainfo").is_none());
    objects.iter_mut().for_each(without_numbers);
    Digest::of_value(&objects).map_err(|e| e.to_string())
}

fn without_numbers(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.remove("handle");
            if let Some(counter) = object.get_mut("counter") {
                *counter = Value::Null;
            }
            object.values_mut().for_each(without_numbers);
        }
        Value::Array(values) => values.iter_mut().for_each(without_numbers),
        _ => {}
    }
}

/// The version that nft says it is.
#[must_use]
pub fn version(text: &str) -> String {
    let objects = objects(text).unwrap_or_default();
    let head = objects.iter().find_map(|object| object.get("metainfo"));
    head.map(|head| text_of(head, "version")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ruleset(rules: &[Value]) -> String {
        let mut objects = vec![
            json!({ "metainfo": { "version": "1.0.6", "json_schema_version": 1 } }),
            json!({ "table": { "family": "inet", "name": "t", "handle": 1 } }),
            json!({ "chain": { "family": "inet", "table": "t", "name": "c", "handle": 1, "type": "filter",
                "hook": "input", "prio": 0, "policy": "drop" } }),
        ];
        let rule = |expr: &Value| {
            json!({ "rule": { "family": "inet", "table": "t", "chain": "c", "handle": 3,
            "expr": expr } })
        };
        objects.extend(rules.iter().map(rule));
        json!({ "nftables": objects }).to_string()
    }

    fn one(expr: &Value) -> Rule {
        let listing = listing(&ruleset(std::slice::from_ref(expr))).unwrap();
        listing.chains[0].rules[0].clone()
    }

    fn saddr(op: &str, right: &Value) -> Value {
        json!({ "match": { "op": op, "left": { "payload": { "protocol": "ip", "field": "saddr" } },
            "right": right } })
    }

    // holds: HK-11
    #[test]
    fn a_rule_is_read_for_what_becomes_of_whose_traffic() {
        let drop = json!({ "drop": null });
        let names = |expr: Value| one(&expr).names_sources;
        assert!(names(json!([saddr("==", &json!("192.0.2.1")), drop])));
        assert!(names(json!([saddr("==", &json!("@banned")), drop])));
        assert!(names(json!([
            saddr("==", &json!({ "set": ["192.0.2.1"] })),
            drop
        ])));
        let both = json!({ "match": { "op": "==", "left": { "concat": [
            { "payload": { "protocol": "ip6", "field": "saddr" } },
            { "payload": { "protocol": "tcp", "field": "dport" } }] }, "right": "@banned" } });
        assert!(names(json!([both, drop])));
        let ct = json!({ "match": { "op": "==", "left": { "ct": { "key": "ip saddr", "dir": "original" } },
            "right": "192.0.2.1" } });
        assert!(names(json!([ct, drop])));
        // All but these, and all there are.
        assert!(!names(json!([saddr("!=", &json!("192.0.2.1")), drop])));
        let all = json!({ "prefix": { "addr": "0.0.0.0", "len": 0 } });
        assert!(!names(json!([saddr("==", &all), drop])));
        let port = json!({ "match": { "op": "==", "left": { "payload": { "protocol": "tcp", "field": "dport" } },
            "right": 22 } });
        assert!(!names(json!([port, drop])));

        let reject =
            one(&json!([{ "counter": { "packets": 1, "bytes": 2 } }, { "reject": { "type": "tcp reset" } }]));
        assert!(reject.refuses && !reject.accepts && !reject.is_unclear);
        assert_eq!(one(&json!([{ "goto": { "target": "x" } }])).leads_to, ["x"]);
        assert!(one(&json!(["accept"])).accepts);
        assert_eq!(one(&json!([{ "return": null }])), Rule::default());
    }

    // holds: HK-11
    #[test]
    fn a_map_is_read_where_it_stands_and_unclear_where_only_its_name_does() {
        let key = json!({ "payload": { "protocol": "tcp", "field": "dport" } });
        let map = json!([{ "vmap": { "key": key, "data": { "set": [
            [22, { "accept": null }], [{ "range": [23, 25] }, { "jump": { "target": "x" } }], [80, { "drop": null }]
        ] } } }]);
        let rule = one(&map);
        assert!(rule.refuses && rule.accepts && !rule.is_unclear);
        assert_eq!(rule.leads_to, ["x"]);
        let named = one(&json!([{ "vmap": { "key": key, "data": "@by_port" } }]));
        assert!(named.is_unclear && !named.refuses);
    }

    // holds: HK-11
    #[test]
    fn rules_in_words_of_iptables_are_told_as_far_as_nft_tells_them_and_their_family_is_named() {
        let matched = json!({ "xt": { "type": "match", "name": "set" } });
        let reject = json!({ "xt": { "type": "target", "name": "REJECT" } });
        let log = json!({ "xt": { "type": "target", "name": "LOG" } });
        assert!(one(&json!([matched, reject])).refuses);
        assert!(!one(&json!([matched, log])).refuses);
        // nft before 1.0 has no more than this.
        assert!(one(&json!([{ "xt": null }])).is_unclear);
        let known = one(&json!([{ "xt": null }, { "drop": null }]));
        assert!(known.refuses && !known.is_unclear);
        let all = listing(&ruleset(&[json!([log])])).unwrap();
        assert_eq!(all.in_other_words, ["inet"]);
        assert!(all.chains[0].refuses_the_rest);
        assert!(listing(&ruleset(&[])).unwrap().in_other_words.is_empty());
    }

    // holds: HK-11
    #[test]
    fn what_is_no_listing_is_an_error_and_never_an_empty_one() {
        for bad in ["", "{}", "[]", "{\"nftables\": {}}", "Error: syntax"] {
            assert!(
                listing(bad).is_err() && shape(bad).is_err() && has_own_table(bad).is_err(),
                "{bad}"
            );
        }
    }

    // holds: HK-11
    #[test]
    fn the_shape_of_a_table_is_the_same_whatever_was_counted_and_another_with_any_other_rule() {
        let counted = |packets: u64, handle: u64, port: u64| {
            json!({ "nftables": [
                { "metainfo": { "version": format!("1.0.{packets}") } },
                { "rule": { "family": "inet", "table": "meshplan", "chain": "input", "handle": handle, "expr": [
                    { "match": { "op": "==", "left": { "payload": { "protocol": "tcp", "field": "dport" } },
                        "right": port } },
                    { "counter": { "packets": packets, "bytes": 9 } }, { "accept": null }] } }
            ] })
            .to_string()
        };
        assert_eq!(shape(&counted(1, 2, 22)), shape(&counted(7, 8, 22)));
        assert_ne!(shape(&counted(1, 2, 22)), shape(&counted(1, 2, 23)));
        assert_eq!(version(&counted(6, 1, 22)), "1.0.6");
        let tables = |family: &str, name: &str| {
            has_own_table(
                &json!({ "nftables": [{ "table": { "family": family, "name": name } }] }).to_string(),
            )
        };
        assert_eq!(tables("inet", "meshplan"), Ok(true));
        assert_eq!(tables("ip", "meshplan"), Ok(false));
        assert_eq!(tables("inet", "filter"), Ok(false));
    }
}

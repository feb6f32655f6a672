//! The reference pages are those of the types (FR-16).
#![expect(clippy::unwrap_used, reason = "a test says why by failing")]

use std::path::Path;

use meshplan_schemas::document::{pages, published};

// holds: FR-16
#[test]
fn the_reference_pages_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
    let names: Vec<&str> = pages::PLACES.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, published::NAMES);
    let made = (names.into_iter()).map(|name| (format!("{name}.md"), pages::page(name).unwrap()));
    for (file, text) in made.chain([("README.md".to_owned(), pages::index())]) {
        let path = folder.join(&file);
        if std::env::var_os("MESHPLAN_BLESS").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == text,
            "docs/reference/{file} is not what the types say: MESHPLAN_BLESS=1 writes it anew"
        );
    }
}

/// The first TOML sample of a design page after this heading.
fn sample(page: &str, heading: &str) -> toml::Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs/design")
        .join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let (_, after) = text.split_once(&format!("\n{heading}\n")).unwrap();
    let (_, after) = after.split_once("```toml\n").unwrap();
    let (sample, _) = after.split_once("```").unwrap();
    sample.parse().unwrap()
}

/// The keys of a sample's table whose values are not the defaults that the schema's table says; how many are.
fn others(sample: &toml::Table, schema: &serde_json::Value, keys: Option<&[&str]>) -> (Vec<String>, usize) {
    let (mut others, mut same) = (Vec::new(), 0);
    for (key, value) in sample
        .iter()
        .filter(|(key, _)| keys.is_none_or(|keys| keys.contains(&key.as_str())))
    {
        let default = &schema["properties"][key]["default"];
        if *default == serde_json::to_value(value).unwrap() {
            same += 1;
        } else {
            others.push(format!(
                "`{key}` is {value} in the sample, its default is {default}"
            ));
        }
    }
    (others, same)
}

// holds: FR-16
#[test]
fn the_values_of_the_samples_are_the_defaults() {
    let (fleet, of_fleet) = (
        sample("01-fleet-repo.md", "## fleet.toml"),
        published::value("fleet"),
    );
    for (table, count) in [("config_mgmt", 5), ("rotation", 4), ("trust", 4)] {
        let sample = fleet[table].as_table().unwrap();
        let found = others(sample, &of_fleet["properties"][table], None);
        assert_eq!(found, (Vec::new(), count), "[{table}]");
    }
    let (plan, of_plan) = (
        sample("03-delivery.md", "## Deploy plans"),
        published::value("plan"),
    );
    let found = others(&plan, &of_plan, Some(&["check", "approvals", "absent", "legs"]));
    assert_eq!(found, (Vec::new(), 4));
    let of_stage = &of_plan["properties"]["stage"]["items"];
    let mut seen = 0;
    for stage in plan["stage"].as_array().unwrap() {
        let stage = stage.as_table().unwrap();
        let found = others(stage, of_stage, Some(&["tolerate", "wait"]));
        assert_eq!(found.0, Vec::<String>::new());
        seen += found.1;
        if let Some(healthy) = stage.get("healthy") {
            let of_healthy = &of_stage["properties"]["healthy"];
            let found = others(
                healthy.as_table().unwrap(),
                of_healthy,
                Some(&["times", "every_secs"]),
            );
            assert_eq!(found, (Vec::new(), 2));
        }
    }
    assert_eq!(seen, 2, "tolerate and wait stand in the sample");
}

/// Keys of a schema, at any depth, whose default nobody can write.
fn untold(schema: &serde_json::Value, path: &str, found: &mut Vec<String>) {
    match schema {
        serde_json::Value::Object(keys) => {
            if keys.get("default").is_some_and(serde_json::Value::is_null) {
                found.push(path.to_owned());
            }
            for (key, inner) in keys {
                untold(inner, &format!("{path}/{key}"), found);
            }
        }
        serde_json::Value::Array(all) => all.iter().for_each(|inner| untold(inner, path, found)),
        _ => {}
    }
}

// holds: FR-16
#[test]
fn every_default_of_the_types_is_told() {
    let mut found = Vec::new();
    for name in published::NAMES {
        untold(&published::value(name), name, &mut found);
    }
    assert_eq!(found, Vec::<String>::new(), "their types need `Read::written`");
    let fleet = published::value("fleet");
    let signers = &fleet["properties"]["trust"]["properties"]["allowed_signers"]["default"];
    assert_eq!(signers, "allowed_signers");
}

//! Forgejo's published description of its API: what the reconciler asks is in it, and what the double answers has its shapes.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use meshplan_reconciler::config::ForgeKind;
use scenarios::double::{Brand, Exchange};
use scenarios::house::workspace;
use serde_json::{Map, Value, json};

use super::{Scene, client, every_verb, wait};

/// The description, which travels in the crate of a client that is made from it.
fn description() -> Result<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    // Of other platforms there need not be anything here.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let said = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .args(["--filter-platform", &platform])
        .current_dir(workspace())
        .output()?;
    let why = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "cargo metadata: {why}");
    let metadata: Value = serde_json::from_slice(&said.stdout)?;
    let packages = metadata["packages"].as_array().context("packages")?;
    let package = packages.iter().find(|package| package["name"] == "forgejo-api");
    let manifest = package.and_then(|package| package["manifest_path"].as_str());
    let manifest = PathBuf::from(manifest.context("forgejo-api is a dependency")?);
    let text = std::fs::read(manifest.with_file_name("swagger.v1.json"))?;
    Ok(serde_json::from_slice(&text)?)
}

/// A description in which no object has fields that it does not name.
fn strict(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.values_mut().for_each(strict);
            if object.get("properties").is_some_and(Value::is_object)
                && !object.contains_key("additionalProperties")
            {
                object.insert("additionalProperties".to_owned(), json!(false));
            }
        }
        Value::Array(all) => all.iter_mut().for_each(strict),
        _ => {}
    }
}

/// What is said without what is said to be nothing: the description does not tell which fields may be.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let fields = object.iter().filter(|(_, value)| !value.is_null());
            let fields = fields.map(|(name, value)| (name.clone(), without_nulls(value)));
            Value::Object(fields.collect::<Map<String, Value>>())
        }
        Value::Array(all) => Value::Array(all.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

struct Described {
    api: Value,
}

impl Described {
    fn new() -> Result<Self> {
        let mut api = description()?;
        // Forgejo's source adds the login under this name as well, for older clients, and its description does not.
        api["definitions"]["User"]["properties"]["username"] = json!({ "type": "string" });
        strict(&mut api["definitions"]);
        Ok(Self { api })
    }

    /// The operation that answers a request; of several that one which names most of its path.
    fn operation(&self, exchange: &Exchange) -> Result<&Value> {
        let asked: Vec<&str> = exchange.path.split('/').collect();
        let mut found: Option<(usize, &Value)> = None;
        for (template, operations) in self.api["paths"].as_object().context("paths")? {
            let segments: Vec<&str> = template.trim_start_matches('/').split('/').collect();
            let fits = |(of, segment): (&&str, &&str)| of.starts_with('{') || of == segment;
            if segments.len() != asked.len() || !segments.iter().zip(&asked).all(fits) {
                continue;
            }
            let literal = segments
                .iter()
                .filter(|segment| !segment.starts_with('{'))
                .count();
            if let Some(operation) = operations.get(exchange.method.to_lowercase())
                && found.is_none_or(|(most, _)| literal > most)
            {
                found = Some((literal, operation));
            }
        }
        let (_, operation) = found.context("there is no such operation")?;
        Ok(operation)
    }

    /// Whether something has the shape of a schema.
    fn has_shape(&self, schema: &Value, said: &Value) -> Result<()> {
        let schema = json!({ "definitions": self.api["definitions"], "allOf": [schema] });
        let validator = jsonschema::options().with_draft(jsonschema::Draft::Draft4);
        let validator = validator.should_validate_formats(true).build(&schema)?;
        let said = without_nulls(said);
        let wrong: Vec<String> = validator
            .iter_errors(&said)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        ensure!(wrong.is_empty(), "{}\n{said:#}", wrong.join("\n"));
        Ok(())
    }

    fn holds(&self, exchange: &Exchange) -> Result<()> {
        let operation = self.operation(exchange)?;
        let none = Vec::new();
        let parameters = operation["parameters"].as_array().unwrap_or(&none);
        let is_query = |name: &str| {
            let named = parameters.iter().filter(|of| of["in"] == "query");
            named.clone().any(|of| of["name"] == name)
        };
        for pair in exchange.query.split('&').filter(|pair| !pair.is_empty()) {
            let name = pair.split('=').next().unwrap_or_default();
            ensure!(is_query(name), "there is no query `{name}`");
        }
        let body = parameters.iter().find(|of| of["in"] == "body");
        match (body, exchange.sent.is_null()) {
            (_, true) => {}
            (Some(body), false) => self
                .has_shape(&body["schema"], &exchange.sent)
                .context("what is sent")?,
            (None, false) => bail!("a body is sent where none is taken"),
        }
        let answer = &operation["responses"][exchange.status.to_string()];
        ensure!(!answer.is_null(), "it is never answered with {}", exchange.status);
        let answer = match answer["$ref"].as_str() {
            Some(reference) => self
                .api
                .pointer(reference.trim_start_matches('#'))
                .context("a response")?,
            None => answer,
        };
        match answer.get("schema") {
            Some(schema) if exchange.status < 300 => {
                self.has_shape(schema, &exchange.answered).context("the answer")
            }
            _ => Ok(()),
        }
    }
}

// holds: FG-6
#[test]
fn what_forgejo_is_asked_and_answers_is_in_its_published_description() -> Result<()> {
    let described = Described::new()?;
    let scene = Scene::at(Brand::Forgejo)?;
    scene.double.keep_exchanges();
    let token_file = scene.world.state().join("forge-token");
    let forge = client(ForgeKind::Forgejo, scene.double.url(), None, token_file)?;
    wait(every_verb(&forge, &scene))?;
    let exchanges = scene.double.take_exchanges();
    ensure!(exchanges.len() >= 20, "only {} were kept", exchanges.len());
    let mut wrong = Vec::new();
    for exchange in &exchanges {
        if let Err(error) = described.holds(exchange) {
            wrong.push(format!(
                "{} {} {}: {error:#}",
                exchange.method, exchange.path, exchange.status
            ));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}

// holds: FG-6
#[test]
fn what_the_description_does_not_know_is_found() -> Result<()> {
    let described = Described::new()?;
    let good = Exchange {
        method: "POST".to_owned(),
        path: "repos/acme/fleet/issues/1/comments".to_owned(),
        query: String::new(),
        sent: json!({ "body": "hello" }),
        status: 201,
        answered: json!({ "id": 7, "body": "hello", "user": { "id": 41, "login": "dana" } }),
    };
    described.holds(&good)?;
    let of = |change: fn(&mut Exchange)| {
        let mut odd = good.clone();
        change(&mut odd);
        described.holds(&odd)
    };
    ensure!(of(|it| it.path.push_str("/more")).is_err(), "a path");
    ensure!(of(|it| it.query.push_str("colour=red")).is_err(), "a query");
    ensure!(
        of(|it| it.sent["colour"] = json!("red")).is_err(),
        "a field that is sent"
    );
    ensure!(
        of(|it| it.sent = json!({})).is_err(),
        "nothing where something is wanted"
    );
    ensure!(
        of(|it| it.answered["user"]["id"] = json!("41")).is_err(),
        "a type"
    );
    ensure!(
        of(|it| it.answered["colour"] = json!("red")).is_err(),
        "a field of the answer"
    );
    ensure!(of(|it| it.status = 299).is_err(), "a number");
    Ok(())
}

//! Rollouts as people and programs see them: the API held to its page, the commands, the journal of events.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, ensure};
use scenarios::world::World;
use serde_json::{Value, json};

/// A policy that differs from the first one by this number.
fn policy(secs: u32) -> String {
    format!("[scheduler]\nreconcile_secs = {secs}\n")
}

/// One request over the socket in the state folder: status and body.
fn socket(world: &World, method: &str, path: &str, body: &str) -> Result<(u16, Value)> {
    let mut stream = UnixStream::connect(world.state().join("meshplan.sock"))?;
    stream.set_read_timeout(Some(scenarios::world::PATIENCE))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split_whitespace().nth(1).and_then(|s| s.parse().ok());
    let (_, body) = answer.split_once("\r\n\r\n").context("an answer has a body")?;
    Ok((
        status.context("an answer has a status")?,
        serde_json::from_str(body).unwrap_or_default(),
    ))
}

/// The page that the reconciler serves.
struct Page(Value);

impl Page {
    fn of(world: &World) -> Result<Self> {
        let (status, page) = socket(world, "GET", "/api/openapi.json", "")?;
        ensure!(status == 200 && page["openapi"] == "3.1.0", "{page}");
        Ok(Self(page))
    }

    /// Holds an answer to the page.
    fn holds(&self, path: &str, method: &str, status: u16, answer: &Value) -> Result<()> {
        let operation = &self.0["paths"][path][method];
        let of_status = &operation["responses"][status.to_string()];
        let schema = &of_status["content"]["application/json"]["schema"];
        ensure!(
            schema.is_object(),
            "the page has no {method} {path} with {status}: {operation:#}"
        );
        let mut whole = schema.clone();
        whole["components"] = self.0["components"].clone();
        let validator = jsonschema::draft202012::new(&whole)?;
        let faults: Vec<String> = validator
            .iter_errors(answer)
            .map(|fault| format!("{}: {fault}", fault.instance_path()))
            .collect();
        ensure!(faults.is_empty(), "{method} {path}: {faults:#?}\n{answer:#}");
        Ok(())
    }

    /// Asks, and holds the answer to the page.
    fn get(&self, world: &World, path: &str, asked: &str, expected: u16) -> Result<Value> {
        let (status, answer) = socket(world, "GET", asked, "")?;
        ensure!(
            status == expected,
            "{asked}: {status}, not {expected}: {answer:#}"
        );
        self.holds(path, "get", status, &answer)?;
        Ok(answer)
    }

    fn post(&self, world: &World, path: &str, body: &str, expected: u16) -> Result<Value> {
        let (status, answer) = socket(world, "POST", &format!("{path}?interface=pages"), body)?;
        ensure!(
            status == expected,
            "{path} {body}: {status}, not {expected}: {answer:#}"
        );
        self.holds(path, "post", status, &answer)?;
        Ok(answer)
    }
}

const ROLLOUT: &str = "/api/config/rollout";
const ROLLOUTS: &str = "/api/config/rollouts";
const ONE: &str = "/api/config/rollouts/{rollout_id}";

/// Waits until the newest rollout is of this commit and in one of these phases.
fn until(world: &mut World, page: &Page, commit: &str, phases: &[&str]) -> Result<Value> {
    let mut last = Value::Null;
    world.poll(&format!("the rollout is {phases:?}"), |w| {
        last = page.get(w, ROLLOUT, "/api/config/rollout?interface=pages", 200)?;
        let rollout = &last["rollout"];
        Ok(rollout["commit"] == commit && phases.iter().any(|phase| rollout["phase"] == *phase))
    })?;
    Ok(last)
}

// holds: RO-5, RO-6, RO-7
#[test]
fn a_rollout_is_followed_to_its_archive_and_every_answer_is_what_the_page_says() -> Result<()> {
    let mut world = World::with_three_hosts("pages")?;
    let page = Page::of(&world)?;
    let commit = world.merge("policy/base.toml", &policy(7))?;
    let released = until(&mut world, &page, &commit, &["released", "complete"])?;
    let id = released["rollout"]["rollout_id"]
        .as_str()
        .context("it has an id")?
        .to_owned();
    ensure!(released["rollout"]["canary_epoch"].is_u64(), "{released:#}");
    let done = until(&mut world, &page, &commit, &["complete"])?;
    let gate = &done["rollout"]["release_gate"];
    ensure!(
        done["in_hand"] == false && gate["required_total"] == gate["required_confirmed"],
        "{done:#}"
    );
    let listed = "/api/config/rollouts?interface=pages";
    world.poll("it is put away", |w| {
        let list = page.get(w, ROLLOUTS, listed, 200)?;
        Ok(list["rollouts"][0]["rollout_id"] == id.as_str())
    })?;
    let list = page.get(&world, ROLLOUTS, listed, 200)?;
    let summary = &list["rollouts"][0];
    ensure!(summary["closed"] == true && summary["nodes"] == 3, "{summary:#}");
    let by_id = format!("/api/config/rollouts/{}?interface=pages", id.replace('@', "%40"));
    let archive = page.get(&world, ONE, &by_id, 200)?;
    let timeline = archive["rollout"]["timeline"]
        .as_array()
        .context("it has a timeline")?;
    let applied = timeline.iter().filter(|e| e["state"] == "applied").count();
    ensure!(applied >= 3 && summary["events"] == timeline.len(), "{archive:#}");

    // An archive is there after a restart, and nothing is put away twice.
    world.kill_reconciler()?;
    world.serve()?;
    ensure!(page.get(&world, ONE, &by_id, 200)? == archive);
    ensure!(page.get(&world, ROLLOUTS, listed, 200)?["total"] == list["total"]);

    // Who is in the fleet is known once the first pass after the start has read the tree.
    world.poll("every node has applied it", |w| {
        let stats = page.get(w, "/api/stats", "/api/stats", 200)?;
        let status = stats["mesh"]["config_status"]
            .as_object()
            .context("a status of each")?;
        let applied = status
            .values()
            .filter(|s| s["state"] == "applied" && s["received_via"] == "reconciler");
        Ok(applied.count() == 3)
    })?;

    let nodes = page.get(&world, "/api/nodes", "/api/nodes?by=name&limit=2", 200)?;
    ensure!(
        nodes["counts"]["nodes"] == 3 && nodes["nodes"][1]["name"] == "bea",
        "{nodes:#}"
    );
    let next = nodes["next"].as_str().context("one more follows")?;
    let last = page.get(
        &world,
        "/api/nodes",
        &format!("/api/nodes?by=name&after={next}"),
        200,
    )?;
    ensure!(
        last["nodes"][0]["name"] == "cid" && last["next"].is_null(),
        "{last:#}"
    );

    let events = page.get(&world, "/api/events", "/api/events?after=0", 200)?;
    let of_it: Vec<&str> = events["events"]
        .as_array()
        .context("events")?
        .iter()
        .filter(|e| e["rollout_id"] == id.as_str())
        .filter_map(|e| e["event"].as_str())
        .collect();
    let all = [
        "rollout.start",
        "rollout.release",
        "rollout.release_watch",
        "rollout.complete",
    ];
    ensure!(of_it == all, "{events:#}");
    let said = world.meshplan(&["events"])?.ok()?;
    ensure!(said.contains("rollout.complete"), "{said}");
    let followed = first_event(&world)?;
    ensure!(
        followed.contains("id: 1\n") && followed.contains("event: rollout.start\n"),
        "{followed}"
    );

    let status = world.meshplan(&["fleet", "rollout", "status"])?.ok()?;
    ensure!(
        status.contains("complete: ") && status.contains("applied          required    ace"),
        "{status}"
    );
    let shown = world.meshplan(&["fleet", "rollout", "show", &id])?.ok()?;
    ensure!(
        shown.contains("timeline:\n") && shown.contains("every node had settled"),
        "{shown}"
    );
    let listed = world.meshplan(&["fleet", "rollout", "list"])?.ok()?;
    ensure!(listed.contains(&id), "{listed}");
    let journal = world.host("ace", &["journal"])?.ok()?;
    for event in ["epoch.received", "epoch.staged", "epoch.applied"] {
        ensure!(journal.contains(event), "{journal}");
    }
    Ok(())
}

/// What the stream of events sends first.
fn first_event(world: &World) -> Result<String> {
    let mut stream = UnixStream::connect(world.state().join("meshplan.sock"))?;
    stream.set_read_timeout(Some(scenarios::world::PATIENCE))?;
    write!(
        stream,
        "GET /api/events/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )?;
    let mut read = Vec::new();
    let mut chunk = [0; 512];
    while !String::from_utf8_lossy(&read).contains("data: ") {
        let count = stream.read(&mut chunk)?;
        ensure!(count > 0, "the stream ended: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&chunk[..count]);
    }
    Ok(String::from_utf8_lossy(&read).into_owned())
}

// holds: RO-6
#[test]
fn a_second_start_is_refused_with_the_rollout_in_hand_and_an_abort_signs_the_former_policy_forward()
-> Result<()> {
    let mut world = World::with_three_hosts("pages")?;
    let page = Page::of(&world)?;
    world.kill_host("ace")?;
    let first = world.merge("policy/base.toml", &policy(7))?;
    let walking = until(&mut world, &page, &first, &["canary"])?;
    let second = world.merge("policy/base.toml", &policy(8))?;
    world.poll("the second is known", |w| {
        Ok(w.meshplan_json(&["deliveries", "show", &second]).is_ok())
    })?;
    let start = format!("{ROLLOUT}/start");
    let refused = page.post(&world, &start, &json!({ "commit": second }).to_string(), 409)?;
    ensure!(
        refused["rollout"]["rollout_id"] == walking["rollout"]["rollout_id"],
        "{refused:#}"
    );
    let said = world.meshplan(&["fleet", "rollout", "start", &second])?;
    ensure!(
        said.code == Some(1) && said.err.contains("one at a time"),
        "{said:?}"
    );
    let release = format!("{ROLLOUT}/release");
    let refused = page.post(&world, &release, "", 409)?;
    ensure!(
        refused["error"]
            .as_str()
            .is_some_and(|e| e.contains("goes on by itself")),
        "{refused:#}"
    );

    let abort = format!("{ROLLOUT}/abort");
    page.post(
        &world,
        &abort,
        &json!({ "why": "not today", "actor": "dana" }).to_string(),
        200,
    )?;
    let back = until(&mut world, &page, &first, &["aborting", "aborted"])?;
    ensure!(back["rollout"]["final_epoch"].is_u64(), "{back:#}");
    let shown = world.meshplan_json(&["deliveries", "show", &first])?;
    let story = shown["story"].to_string();
    ensure!(story.contains("(aborted) by dana: not today"), "{shown:#}");
    let events = world.meshplan(&["events"])?.ok()?;
    ensure!(
        events.contains("rollout.abort") && events.contains("by dana"),
        "{events}"
    );
    Ok(())
}

// holds: RO-6
#[test]
fn what_is_asked_wrongly_is_answered_with_what_why_and_what_next() -> Result<()> {
    let mut world = World::new("pages")?;
    world.serve()?;
    let page = Page::of(&world)?;
    let reads = [
        (ROLLOUT, "/api/config/rollout", 400, "add ?interface=pages"),
        (
            ROLLOUT,
            "/api/config/rollout?interface=other",
            404,
            "serves `pages`",
        ),
        (
            ROLLOUT,
            "/api/config/rollout?interface=pages&page=1",
            400,
            "unknown field `page`",
        ),
        (
            ROLLOUTS,
            "/api/config/rollouts?interface=pages&page=2",
            400,
            "there is no page 2",
        ),
        (
            ROLLOUTS,
            "/api/config/rollouts?interface=pages&page=0",
            400,
            "there is no page 0",
        ),
        (
            ROLLOUTS,
            "/api/config/rollouts?interface=pages&page=-1",
            400,
            "cannot be read",
        ),
        (
            ROLLOUTS,
            "/api/config/rollouts?interface=pages&per_page=101",
            400,
            "from 1 to 100",
        ),
        (
            ONE,
            "/api/config/rollouts/nobody?interface=pages",
            404,
            "there is no rollout `nobody`",
        ),
        (
            ONE,
            "/api/config/rollouts/99999999999999999999?interface=pages",
            404,
            "there is no rollout",
        ),
        ("/api/events", "/api/events?after=x", 400, "cannot be read"),
        ("/api/events", "/api/events?limit=0", 400, "from 1 to 1000"),
        ("/api/stats", "/api/stats?all=1", 400, "unknown field `all`"),
        ("/api/nodes", "/api/nodes?limit=1001", 400, "from 1 to 1000"),
        ("/api/nodes", "/api/nodes?after=ace", 400, "no place in the list"),
        (
            "/api/nodes",
            "/api/nodes?standing=well",
            400,
            "unknown variant `well`",
        ),
    ];
    for (path, asked, status, words) in reads {
        let answer = page.get(&world, path, asked, status)?;
        let said = answer["error"].as_str().unwrap_or_default();
        ensure!(said.contains(words), "{asked}: {said}");
    }
    let says = [
        ("start", "", 400, "a start names a commit"),
        ("start", "{", 400, "no JSON"),
        (
            "start",
            r#"{"commit":"abcdef","policy":"[x]"}"#,
            400,
            "a policy comes from a commit, never from a file",
        ),
        (
            "start",
            r#"{"commit":"abcdef","canaries":["ace"]}"#,
            400,
            "unknown field `canaries`",
        ),
        (
            "start",
            r#"{"commit":"abcdef","canary_nodes":["a/b"]}"#,
            400,
            "a name consists of",
        ),
        ("start", r#"{"commit":"abcdef"}"#, 404, "no delivery goes by"),
        ("start", r#"{"commit":"zz"}"#, 400, "is no commit"),
        ("release", "", 409, "no rollout is in hand"),
        ("release", r#"{"forced":true}"#, 400, "unknown field `forced`"),
        ("abort", "", 409, "no rollout is in hand"),
        ("abort", "[]", 400, "not as it must be"),
    ];
    for (word, body, status, words) in says {
        let answer = page.post(&world, &format!("{ROLLOUT}/{word}"), body, status)?;
        let said = answer["error"].as_str().unwrap_or_default();
        ensure!(said.contains(words), "{word} {body}: {said}");
    }
    // Who may read over TCP may say no word there.
    for word in ["start", "release", "abort"] {
        let path = format!("{ROLLOUT}/{word}?interface=pages");
        let (status, _) = world.http("POST", &path, &[], b"")?;
        ensure!(status == 404 || status == 405, "{word}: {status}");
    }
    let said = world.meshplan(&["fleet", "rollout", "watch"])?;
    ensure!(
        said.code == Some(1) && said.err.contains("no rollout is in hand"),
        "{said:?}"
    );
    Ok(())
}

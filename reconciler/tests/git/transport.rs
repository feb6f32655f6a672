//! The transport: credentials, redirects, and what is told apart when there is no git on the other side.

use std::sync::{Arc, Mutex};

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION};
use axum::response::IntoResponse as _;
use meshplan_reconciler::edge::git_server::{Access, Options};
use meshplan_reconciler::edge::mirror::{FetchError, Mirror, Remote};
use meshplan_reconciler::edge::notes::PushOutcome;

use super::world::{Journal, World, at};

fn fetch_from(world: &World, url: &str) -> FetchError {
    let remote = Remote {
        url: url.to_owned(),
        ..world.remote_as("ann", "s3cret")
    };
    Mirror::open(&world.mirror_path(), remote)
        .unwrap()
        .fetch()
        .unwrap_err()
}

// holds: FG-3
#[test]
fn nobody_there_is_unreachable_and_says_what_to_check() {
    let world = World::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://ann:s3cret@{}/fleet.git", closed.local_addr().unwrap());
    drop(closed);
    let error = fetch_from(&world, &url);
    assert!(matches!(error, FetchError::Unreachable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("cannot reach http://127.0.0.1:") && text.contains("check the address"),
        "{text}"
    );
    assert!(!text.contains("s3cret"), "{text}");
}

// holds: FG-3
#[test]
fn a_repository_that_is_not_there_and_a_web_page_are_told_from_each_other() {
    let world = World::new();
    let missing = fetch_from(&world, &format!("{}/other.git", world.base));
    assert!(
        matches!(missing, FetchError::NotARepository { .. }),
        "{missing:?}"
    );
    assert!(missing.to_string().contains("404"), "{missing}");
    let page = world.also(axum::Router::new().fallback(async || "<html>hello</html>"));
    let page = fetch_from(&world, &page);
    assert!(matches!(page, FetchError::NotARepository { .. }), "{page:?}");
    assert!(page.to_string().contains("content type text/plain"), "{page}");
    let busy = world.also(axum::Router::new().fallback(async || StatusCode::SERVICE_UNAVAILABLE));
    let busy = fetch_from(&world, &busy);
    assert!(matches!(busy, FetchError::Unreachable { .. }), "{busy:?}");
}

// holds: FG-3
#[test]
fn an_answer_that_only_looks_like_git_is_an_error_and_no_panic() {
    let world = World::new();
    for body in [
        "",
        "0000",
        "zzzz",
        "001e# service=git-upload-pack\n",
        "001e# service=git-upload-pack\n0000ffff",
        "0008NAK\n",
    ] {
        let kind = "application/x-git-upload-pack-advertisement";
        let url = world.also(axum::Router::new().fallback(async move || ([(CONTENT_TYPE, kind)], body)));
        fetch_from(&world, &url);
    }
}

// holds: FG-3
#[test]
fn wrong_credentials_are_refused_and_right_ones_work() {
    let user = Access::User {
        name: "ann".to_owned(),
        password: "s3cret".to_owned(),
    };
    let world = World::with(Options {
        fetch: user.clone(),
        push: user,
    });
    world.merge("a", "1");
    for remote in [world.remote(), world.remote_as("ann", "wrong")] {
        let error = Mirror::open(&world.mirror_path(), remote)
            .unwrap()
            .fetch()
            .unwrap_err();
        assert!(matches!(error, FetchError::Auth { .. }), "{error:?}");
        assert!(error.to_string().contains("credentials_file"), "{error}");
    }
    let mut mirror = Mirror::open(&world.mirror_path(), world.remote_as("ann", "s3cret")).unwrap();
    let head = mirror.fetch().unwrap().head.unwrap();
    let mut notes = mirror.notes().unwrap();
    notes.append(&[Journal::default().block(&head)], at()).unwrap();
    assert_eq!(notes.push(at()), PushOutcome::Pushed);
}

// holds: FG-3
#[test]
fn credentials_do_not_follow_a_redirect_to_another_host_and_the_fetch_does() {
    let world = World::new();
    let head = world.merge("a", "1");
    let seen: Arc<Mutex<Vec<(String, bool)>>> = Arc::default();
    let log = Arc::clone(&seen);
    let target = world.url();
    // Two servers on two ports: the first sends on to the second, which passes everything to the real one.
    let second = world.also(axum::Router::new().fallback(async move |request: Request| {
        let authorised = request.headers().contains_key(AUTHORIZATION);
        log.lock()
            .unwrap()
            .push((request.uri().path().to_owned(), authorised));
        let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
        let (parts, body) = request.into_parts();
        let path = parts
            .uri
            .path_and_query()
            .unwrap()
            .as_str()
            .replacen("/moved", "", 1);
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let mut forward = client.request(parts.method, format!("{target}{path}")).body(body);
        if let Some(kind) = parts.headers.get(CONTENT_TYPE) {
            forward = forward.header(CONTENT_TYPE, kind);
        }
        let answer = forward.send().await.unwrap();
        let kind = answer.headers()[CONTENT_TYPE].clone();
        (
            answer.status(),
            [(CONTENT_TYPE, kind)],
            answer.bytes().await.unwrap(),
        )
            .into_response()
    }));
    let first = world.also(axum::Router::new().fallback(async move |request: Request| {
        let query = request.uri().query().unwrap().to_owned();
        (
            StatusCode::MOVED_PERMANENTLY,
            [(LOCATION, format!("{second}/moved/info/refs?{query}"))],
        )
    }));
    let remote = Remote {
        url: format!("{first}/old.git"),
        ..world.remote_as("ann", "s3cret")
    };
    let mut mirror = Mirror::open(&world.mirror_path(), remote).unwrap();
    assert_eq!(mirror.fetch().unwrap().head, Some(head));
    let seen = seen.lock().unwrap();
    let paths: Vec<_> = seen.iter().map(|(path, _)| path.as_str()).collect();
    assert!(
        paths.contains(&"/moved/info/refs") && paths.contains(&"/moved/git-upload-pack"),
        "{paths:?}"
    );
    assert!(
        seen.iter().all(|(_, authorised)| !authorised),
        "credentials left for another host"
    );
}

// holds: FG-3
#[test]
fn a_redirect_loop_ends() {
    let world = World::new();
    let url = world.also(axum::Router::new().fallback(async |request: Request| {
        let query = request.uri().query().unwrap().to_owned();
        (
            StatusCode::FOUND,
            [(LOCATION, format!("/again/info/refs?{query}"))],
        )
    }));
    let error = fetch_from(&world, &url);
    assert!(error.to_string().contains("redirects more than"), "{error}");
}

#[test]
fn git_itself_clones_and_pushes_through_the_server() {
    let world = World::new();
    // Large enough that git gzips its wants and sends its pack in chunks.
    for i in 0..60 {
        world.commit(&format!("f{i}"), &format!("{i}\n").repeat(50));
    }
    let url = world.url();
    world.git(
        &world.work(),
        &[
            "-c",
            "http.postBuffer=1000",
            "push",
            "--quiet",
            &url,
            "HEAD:refs/heads/main",
        ],
    );
    world.git(world.dir.path(), &["clone", "--quiet", &url, "again"]);
    for i in 60..120 {
        world.commit(&format!("f{i}"), "x");
    }
    world.git(&world.work(), &["push", "--quiet", &url, "HEAD:refs/heads/main"]);
    let again = world.dir.path().join("again");
    world.git(&again, &["pull", "--quiet"]);
    assert_eq!(world.git(&again, &["rev-parse", "HEAD"]), world.head().as_str());
}

#[test]
fn a_server_that_lets_nobody_push_says_so() {
    let world = World::with(Options {
        push: Access::Nobody,
        ..Options::default()
    });
    let head = world.merge("a", "1");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let mut notes = mirror.notes().unwrap();
    notes.append(&[Journal::default().block(&head)], at()).unwrap();
    let outcome = notes.push(at());
    assert!(
        matches!(&outcome, PushOutcome::Refused { why } if why.contains("403")),
        "{outcome:?}"
    );
    assert!(
        world
            .try_git(&world.work(), &["push", &world.url(), "HEAD:refs/heads/x"])
            .status
            .code()
            != Some(0)
    );
}

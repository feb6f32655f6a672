use super::*;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Instant;

use hmac::{Hmac, KeyInit as _, Mac as _};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::edge::clock::Clock;

const SECRET: &str = "s3cr3t";
const A: &str = "a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0";
const B: &str = "b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0";

struct World {
    folder: TempDir,
    store: Store,
    waker: Waker,
    look_now: LookNow,
    at: SocketAddr,
}

fn forge_in(folder: &TempDir, secret: &str) -> Forge {
    let path = folder.path().join("secret");
    std::fs::write(&path, secret).unwrap();
    Forge {
        kind: ForgeKind::Forgejo,
        url: "http://forge.test/acme/fleet.git".into(),
        repo: "acme/fleet".into(),
        webhook_secret_file: path,
        credentials_file: None,
        token_file: None,
        api_url: None,
        poll_secs: 60,
    }
}

async fn store_in(folder: &TempDir) -> Store {
    Store::open(&folder.path().join("meshplan.db"), Clock::default())
        .await
        .unwrap()
}

async fn serve(body_within: Duration) -> World {
    let folder = TempDir::new().unwrap();
    let store = store_in(&folder).await;
    let waker = Waker::default();
    // an editor's newline at the end of the file is no part of the secret
    let forge = forge_in(&folder, &format!("{SECRET}\n"));
    let look_now = LookNow::default();
    let mut hooks = Hooks::new(&forge, "main", store.clone(), waker.clone())
        .unwrap()
        .looking_again(look_now.clone());
    hooks.body_within = body_within;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, hooks.router()).await });
    World {
        folder,
        store,
        waker,
        look_now,
        at,
    }
}

fn tag(body: &[u8]) -> String {
    let mac = Hmac::<sha2::Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    data_encoding::HEXLOWER.encode(&mac.chain_update(body).finalize().into_bytes())
}

fn push(reference: &str, message: &str) -> Vec<u8> {
    format!(
        r#"{{"ref":"{reference}","before":"{A}","after":"{B}","repository":{{"full_name":"acme/fleet"}},"commits":[{{"message":"{message}"}}]}}"#
    )
    .into_bytes()
}

/// Head and body of the answer to a request.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

async fn answer(mut stream: TcpStream) -> Option<Answer> {
    let mut bytes = Vec::new();
    // a server that refuses a body unread may cut the connection after its answer
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().unwrap();
    let head = head
        .lines()
        .filter(|l| !l.starts_with("date:"))
        .collect::<Vec<_>>()
        .join("\n");
    Some(Answer {
        status,
        head,
        body: body.to_owned(),
    })
}

impl World {
    async fn send(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut stream = TcpStream::connect(self.at).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let _ = stream.write_all(body).await;
        answer(stream).await.expect("no answer")
    }

    async fn signed(&self, delivery: &str, body: &[u8]) -> Answer {
        let headers = [
            ("content-type", "application/json"),
            ("x-forgejo-event-type", "push"),
            ("x-forgejo-delivery", delivery),
            ("x-forgejo-signature", &tag(body)),
        ];
        self.send("/hooks/forgejo", &headers, body).await
    }

    /// Whether the pass was woken since this was last asked.
    async fn woken(&self) -> bool {
        let wait = self.waker.wait(None, Clock::default());
        tokio::time::timeout(Duration::from_millis(20), wait)
            .await
            .is_ok()
    }
}

const LONG: Duration = Duration::from_secs(60);

// holds: FG-2, B03
#[tokio::test]
async fn an_accepted_push_is_in_the_inbox_before_it_is_answered_and_again_it_only_wakes() {
    let world = serve(LONG).await;
    let body = push("refs/heads/main", "caf\u{e9} \u{1f680}");
    for _ in 0..2 {
        let answer = world.signed("d-1", &body).await;
        assert_eq!((answer.status, answer.body.as_str()), (202, ""));
        let open = world.store.inbox_open().await.unwrap();
        assert_eq!(open.len(), 1);
        assert!(world.woken().await, "the same again is a wish to look again");
    }
    let World { folder, store, .. } = world;
    store.close().await;
    // restarted, with nothing sent anew: the row still asks for a look
    std::fs::remove_file(folder.path().join("meshplan.lock")).unwrap();
    assert_eq!(store_in(&folder).await.inbox_open().await.unwrap().len(), 1);
}

// holds: FG-2, B03
#[tokio::test]
async fn redelivered_after_it_was_looked_at_it_leads_to_a_look_although_no_row_is_open() {
    let world = serve(LONG).await;
    let body = push("refs/heads/main", "hello");
    assert_eq!(world.signed("d-1", &body).await.status, 202);
    let open = world.store.inbox_open().await.unwrap();
    let ids: Vec<String> = open.into_iter().map(|row| row.id).collect();
    world.store.inbox_handled(&ids).await.unwrap();
    assert!(!world.look_now.take(), "the row asks for the first look");
    assert_eq!(world.signed("d-1", &body).await.status, 202);
    assert!(world.store.inbox_open().await.unwrap().is_empty());
    assert!(
        world.look_now.take(),
        "nothing asks for a look: the poll may be hours away"
    );
}

// holds: FG-2, B59
#[tokio::test]
async fn a_wrong_signature_is_answered_in_the_same_words_whatever_is_wrong() {
    let world = serve(LONG).await;
    let known = push("refs/heads/main", "hello");
    let unknown = String::from_utf8(known.clone())
        .unwrap()
        .replace("acme/fleet", "acme/other");
    let mut all = refused(&world, &known).await;
    all.extend(refused(&world, unknown.as_bytes()).await);
    assert_eq!(all[0].status, 401);
    assert_eq!(all[0].body, "not signed with this hook's secret\n");
    assert!(all.iter().all(|a| *a == all[0]), "{all:?}");
    assert!(world.store.inbox_open().await.unwrap().is_empty());
    assert!(!world.woken().await);
}

/// What is answered to a body under each kind of wrong signature.
async fn refused(world: &World, body: &[u8]) -> Vec<Answer> {
    let right = tag(body);
    let mut answers = Vec::new();
    for signature in [
        Some(tag(b"another body")),
        Some(String::new()),
        Some("not hex".to_owned()),
        Some(right.chars().rev().collect()),
        None,
    ] {
        let mut headers = vec![
            ("content-type", "application/json"),
            ("x-forgejo-event-type", "push"),
        ];
        if let Some(signature) = &signature {
            headers.push(("x-forgejo-signature", signature));
        }
        answers.push(world.send("/hooks/forgejo", &headers, body).await);
    }
    answers
}

// holds: FG-2, B05
#[tokio::test]
async fn what_is_not_about_the_tracked_branch_is_accepted_and_does_nothing() {
    let world = serve(LONG).await;
    for reference in [
        "refs/heads/feature/main",
        "refs/tags/main",
        "refs/notes/mesh-plan",
    ] {
        assert_eq!(world.signed("d", &push(reference, "")).await.status, 202);
    }
    let text = String::from_utf8(push("refs/heads/main", "")).unwrap();
    let other_repo = text.replace("acme/fleet", "acme/other");
    assert_eq!(world.signed("d", other_repo.as_bytes()).await.status, 202);
    let gone = text.replace(B, &"0".repeat(40));
    assert_eq!(world.signed("d", gone.as_bytes()).await.status, 202);
    let headers = [
        ("content-type", "application/json"),
        ("x-gitea-event-type", "issues"),
        ("x-gitea-signature", &tag(b"{}")),
    ];
    assert_eq!(world.send("/hooks/gitea", &headers, b"{}").await.status, 202);
    assert!(world.store.inbox_open().await.unwrap().is_empty());
    assert!(!world.woken().await);
}

// holds: FG-2, B01
#[tokio::test]
async fn each_refusal_has_its_number_and_no_detail() {
    let world = serve(LONG).await;
    let mut no_text = push("refs/heads/main", "J?rg");
    let at = no_text.iter().position(|b| *b == b'?').unwrap();
    no_text[at] = 0xfc;
    let answer = world.signed("d", &no_text).await;
    assert_eq!((answer.status, answer.body.as_str()), (400, "cannot be read\n"));

    let plain = [
        ("content-type", "text/plain"),
        ("x-forgejo-signature", &tag(b"x")),
    ];
    let answer = world.send("/hooks/forgejo", &plain, b"x").await;
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (415, "send application/json\n")
    );
    assert_eq!(world.send("/hooks/github", &plain, b"x").await.status, 404);

    world.store.close().await;
    let answer = world.signed("d", &push("refs/heads/main", "")).await;
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (503, "not stored, send it again\n")
    );
    assert!(answer.head.contains("retry-after: 30"), "{}", answer.head);
}

// holds: FG-2, B07
#[tokio::test]
async fn a_signed_push_of_twenty_mebibytes_is_taken_and_one_above_the_bound_is_not() {
    let world = serve(LONG).await;
    let large = push("refs/heads/main", &"x".repeat(20 * 1024 * 1024));
    assert_eq!(world.signed("d", &large).await.status, 202);
    let mut stream = TcpStream::connect(world.at).await.unwrap();
    let head = format!(
        "POST /hooks/forgejo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        WEBHOOK_BYTES + 1
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = answer(stream).await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (413, "too large\n"));
}

// holds: FG-2, B07
#[tokio::test]
async fn an_endless_body_is_cut_at_the_bound_whatever_length_it_claims() {
    let world = serve(LONG).await;
    for length in ["", "content-length: 10\r\n"] {
        let stream = TcpStream::connect(world.at).await.unwrap();
        let (mut reading, mut writing) = stream.into_split();
        let head =
            format!("POST /hooks/forgejo HTTP/1.1\r\nhost: x\r\n{length}transfer-encoding: chunked\r\n\r\n");
        writing.write_all(head.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        let answering = reading.read_to_end(&mut said);
        let sending = async {
            let mut chunk = Vec::new();
            write!(chunk, "10000\r\n{}\r\n", "x".repeat(0x10000)).unwrap();
            let mut sent = 0_usize;
            while writing.write_all(&chunk).await.is_ok() {
                sent += 0x10000;
                assert!(sent < 4 * WEBHOOK_BYTES, "nobody stops it");
            }
            sent
        };
        let both = async { tokio::join!(answering, sending) };
        let (_, sent) = tokio::time::timeout(LONG, both)
            .await
            .expect("it goes on for ever");
        assert!(sent >= WEBHOOK_BYTES / 2, "cut after {sent} bytes");
        let said = String::from_utf8_lossy(&said);
        // cut off while it still sends, it may not get to read the answer
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 413"), "{said}");
    }
    let after = world.signed("d", &push("refs/heads/main", "")).await;
    assert_eq!(after.status, 202);
}

// holds: FG-2, B07
#[tokio::test]
async fn two_hundred_slow_senders_do_not_delay_a_good_delivery_and_are_cut_off() {
    let world = serve(Duration::from_secs(2)).await;
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(world.at).await.unwrap();
        let head =
            "POST /hooks/forgejo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 1000\r\n\r\n{";
        stream.write_all(head.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    let began = Instant::now();
    assert_eq!(world.signed("d", &push("refs/heads/main", "")).await.status, 202);
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "it had to wait for the slow ones"
    );
    for stream in slow {
        let answer = tokio::time::timeout(LONG, answer(stream)).await;
        let answer = answer.expect("a slow sender is waited for").unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (408, "too slow\n"));
    }
}

// holds: FG-2
#[tokio::test]
async fn without_a_secret_it_does_not_start() {
    let folder = TempDir::new().unwrap();
    let store = store_in(&folder).await;
    for empty in ["", "\n", "  \r\n"] {
        let error = Hooks::new(&forge_in(&folder, empty), "main", store.clone(), Waker::default())
            .err()
            .unwrap();
        assert!(
            error
                .to_string()
                .starts_with("the webhook secret is empty: anybody could send webhooks."),
            "{error}"
        );
    }
    let mut forge = forge_in(&folder, SECRET);
    forge.webhook_secret_file = folder.path().join("nowhere");
    let error = Hooks::new(&forge, "main", store, Waker::default()).err().unwrap();
    assert!(error.to_string().contains("nowhere"), "{error}");
}

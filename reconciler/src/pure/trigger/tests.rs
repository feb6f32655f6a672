use super::*;
use proptest::prelude::*;

const SECRET: &[u8] = b"s3cr3t";
const A: &str = "a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0";
const B: &str = "b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0";

fn read(kind: ForgeKind, secret: &[u8], headers: &Headers, body: &[u8]) -> Result<Trigger, Refusal> {
    super::read(kind, secret, headers, body, Timestamp::UNIX_EPOCH)
}

fn mac(message: &[u8]) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(SECRET).unwrap();
    data_encoding::HEXLOWER.encode(&mac.chain_update(message).finalize().into_bytes())
}

fn headers(content_type: &str, signature: &str) -> Headers {
    [
        ("Content-Type", content_type),
        ("X-Forgejo-Event", "push"),
        ("X-Forgejo-Event-Type", "push"),
        ("X-Forgejo-Delivery", "d-1"),
        ("X-Forgejo-Signature", signature),
    ]
    .into_iter()
    .collect()
}

fn push_json(reference: &str, after: &str) -> String {
    format!(
        r#"{{"ref":"{reference}","before":"{A}","after":"{after}","repository":{{"full_name":"acme/fleet"}}}}"#
    )
}

fn form(json: &[u8]) -> Vec<u8> {
    let mut body = b"payload=".to_vec();
    for byte in json {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => body.push(*byte),
            b' ' => body.push(b'+'),
            other => body.extend_from_slice(format!("%{other:02X}").as_bytes()),
        }
    }
    body
}

fn read_json(body: &[u8]) -> Result<Trigger, Refusal> {
    read(
        ForgeKind::Forgejo,
        SECRET,
        &headers("application/json", &mac(body)),
        body,
    )
}

fn moved() -> Event {
    Event::Push {
        repo: "acme/fleet".to_owned(),
        reference: "refs/heads/main".to_owned(),
        before: A.to_owned(),
        after: B.to_owned(),
    }
}

// holds: FG-2 (the vector of the forges page)
#[test]
fn the_tag_is_the_one_that_forgejo_computes() {
    assert_eq!(
        mac(br#"{"ref":"refs/heads/main","n":1}"#),
        "5a4b4c0935bcc1a619d8eeac054b3dd0908c0352ec28356c88164eb808aecfdb"
    );
}

// holds: FG-2, B01
#[test]
fn the_same_push_in_four_dresses_leads_to_one_decision_and_a_changed_byte_to_none() {
    let emoji = push_json("refs/heads/main", B).replace(
        "{\"ref\"",
        "{\"commits\":[{\"message\":\"caf\u{65}\u{301} \u{1f680}\"}],\"ref\"",
    );
    let spaced = emoji.replace(":", " :\t ").replace("refs/heads", "refs\\/heads");
    let form_of_payload = form(emoji.as_bytes());
    let form_of_bytes = form(spaced.as_bytes());
    let dresses: [(&str, Vec<u8>, String); 4] = [
        (
            "application/json",
            emoji.clone().into_bytes(),
            mac(emoji.as_bytes()),
        ),
        (
            "application/json; charset=utf-8",
            spaced.clone().into_bytes(),
            mac(spaced.as_bytes()),
        ),
        // as Gitea and Forgejo sign a form, and as GitHub does
        (
            "application/x-www-form-urlencoded",
            form_of_payload,
            mac(emoji.as_bytes()),
        ),
        (
            "application/x-www-form-urlencoded",
            form_of_bytes.clone(),
            mac(&form_of_bytes),
        ),
    ];
    for (content_type, body, tag) in dresses {
        let headers = headers(content_type, &tag);
        let trigger = read(ForgeKind::Forgejo, SECRET, &headers, &body).unwrap();
        assert_eq!(trigger.event, moved(), "{content_type}");
        assert_eq!(trigger.delivery_id, "d-1");
        for at in 0..body.len() {
            let mut changed = body.clone();
            changed[at] ^= 0x01;
            let answer = read(ForgeKind::Forgejo, SECRET, &headers, &changed);
            // `%2f` and `%2F` are one byte to the signer of the payload
            let same_payload = form_field(&changed, b"payload") == form_field(&body, b"payload")
                && content_type.contains("form")
                && tag == mac(emoji.as_bytes());
            if !same_payload {
                assert_eq!(answer, Err(Refusal::Unauthorized), "{content_type}, byte {at}");
            }
        }
    }
}

// holds: B01
#[test]
fn a_signed_body_with_a_byte_that_is_no_text_is_malformed_not_unauthorized() {
    let mut body = push_json("refs/heads/main", B)
        .replace("{\"ref\"", "{\"author\":\"J?rg\",\"ref\"")
        .into_bytes();
    let at = body.iter().position(|b| *b == b'?').unwrap();
    body[at] = 0xfc;
    let refusal = read_json(&body).unwrap_err();
    assert!(
        matches!(&refusal, Refusal::Malformed(why) if why.contains("UTF-8")),
        "{refusal}"
    );
    let as_form = form(&body);
    let headers = headers("application/x-www-form-urlencoded", &mac(&body));
    let refusal = read(ForgeKind::Forgejo, SECRET, &headers, &as_form).unwrap_err();
    assert!(matches!(refusal, Refusal::Malformed(_)), "{refusal}");
}

// holds: B05
#[test]
fn only_the_tracked_branch_itself_starts_work() {
    let zeros = ["0".repeat(40), "0".repeat(64)];
    let rows = [
        ("refs/heads/main", B, true),
        ("refs/heads/feature/main", B, false),
        ("refs/tags/main", B, false),
        ("refs/notes/mesh-plan", B, false),
        ("refs/heads/main", &zeros[0], false),
        ("refs/heads/main", &zeros[1], false),
        ("main", B, false),
        ("refs/heads/main/", B, false),
        ("refs/heads/Main", B, false),
    ];
    for (reference, after, starts) in rows {
        for deleted in ["", r#""deleted":true,"#] {
            let body = push_json(reference, after).replacen('{', &format!("{{{deleted}"), 1);
            let event = read_json(body.as_bytes()).unwrap().event;
            assert_eq!(
                concerns(&event, "acme/fleet", "main"),
                starts,
                "{reference} {after}"
            );
            assert!(!concerns(&event, "acme/other", "main"), "another repository");
        }
    }
}

// holds: FG-2
#[test]
fn the_envelope_of_a_bare_hook_is_read_with_our_headers_and_with_giteas() {
    let body =
        format!(r#"{{"repo":"fleet","ref":"refs/heads/main","before":"{A}","after":"{B}","pusher":"dana"}}"#);
    let tag = mac(body.as_bytes());
    for (signature, delivery) in [
        ("X-Meshplan-Signature", "X-Meshplan-Delivery"),
        ("X-Gitea-Signature", "X-Gitea-Delivery"),
        ("X-Forgejo-Signature", "X-Forgejo-Delivery"),
    ] {
        let headers: Headers = [
            ("content-type", "application/json"),
            (signature, tag.as_str()),
            (delivery, "7"),
        ]
        .into_iter()
        .collect();
        let trigger = read(ForgeKind::Bare, SECRET, &headers, body.as_bytes()).unwrap();
        assert!(concerns(&trigger.event, "fleet", "main"), "{signature}");
        assert_eq!(trigger.delivery_id, "7");
        assert_eq!(trigger.body_digest, Digest::of(body.as_bytes()));
    }
}

// holds: FG-2
#[test]
fn the_first_signature_that_is_there_decides() {
    let body = push_json("refs/heads/main", B);
    let good = mac(body.as_bytes());
    let hub = format!("sha256={good}");
    let wrong = mac(b"another");
    let case = |forgejo: &str, gitea: &str, hub: &str| {
        let headers: Headers = [
            ("content-type", "application/json"),
            ("x-gitea-event", "push"),
            ("x-forgejo-signature", forgejo),
            ("x-gitea-signature", gitea),
            ("x-hub-signature-256", hub),
        ]
        .into_iter()
        .collect();
        read(ForgeKind::Forgejo, SECRET, &headers, body.as_bytes()).is_ok()
    };
    assert!(case(&good, &wrong, &wrong));
    assert!(!case(&wrong, &good, &hub), "fell through to the next one");
    assert!(
        case("", &good, ""),
        "an empty one is none: hooks without a secret send it"
    );
    assert!(case("", "", &hub));
    assert!(!case("", "", "sha256="));
    assert!(!case("", "", ""));
    assert!(!case("zz", &good, &hub));
    assert!(!case(good.get(..32).unwrap(), "", ""), "half a tag");
}

// holds: FG-2
#[test]
fn what_starts_no_work_is_told_apart_and_an_empty_secret_opens_to_nobody() {
    let body = push_json("refs/heads/main", B);
    let with_event = |event: &str, body: &str| {
        let tag = mac(body.as_bytes());
        let headers: Headers = [
            ("content-type", "application/json"),
            ("x-gitea-event", event),
            ("x-gitea-signature", tag.as_str()),
        ]
        .into_iter()
        .collect();
        read(ForgeKind::Forgejo, SECRET, &headers, body.as_bytes()).map(|t| t.event)
    };
    assert_eq!(with_event("ping", "{}"), Ok(Event::Ping));
    assert_eq!(with_event("workflow_run", "not even JSON"), Ok(Event::Other));
    assert_eq!(
        with_event("push", &push_json("refs/heads/main", A)),
        Ok(Event::Ping),
        "Test delivery"
    );
    let cut = body.get(..body.len() - 1).unwrap();
    for bad in ["", "[]", "{}", &body.replace(B, "short"), cut] {
        assert!(
            matches!(with_event("push", bad), Err(Refusal::Malformed(_))),
            "{bad:?}"
        );
    }
    let empty = Hmac::<Sha256>::new_from_slice(b"")
        .unwrap()
        .chain_update(&body)
        .finalize()
        .into_bytes();
    let headers = headers("application/json", &data_encoding::HEXLOWER.encode(&empty));
    assert_eq!(
        read(ForgeKind::Forgejo, b"", &headers, body.as_bytes()),
        Err(Refusal::Unauthorized)
    );
}

#[test]
fn another_content_type_is_refused_by_name() {
    for content_type in ["text/plain", "multipart/form-data; boundary=x", ""] {
        let refusal = read(
            ForgeKind::Bare,
            SECRET,
            &headers(content_type, &mac(b"{}")),
            b"{}",
        )
        .unwrap_err();
        assert_eq!(refusal, Refusal::UnsupportedType(content_type.to_owned()));
    }
}

proptest! {
    // holds: FG-2
    #[test]
    fn hostile_bytes_are_refused_and_never_a_panic(body in proptest::collection::vec(any::<u8>(), 0..400), form in any::<bool>(), signed in any::<bool>()) {
        let content_type = if form { "application/x-www-form-urlencoded" } else { "application/json" };
        let tag = if signed { mac(&body) } else { mac(b"something else") };
        let answer = read(ForgeKind::Bare, SECRET, &headers(content_type, &tag), &body);
        if !signed {
            prop_assert_eq!(answer, Err(Refusal::Unauthorized));
        }
    }

    #[test]
    fn a_form_gives_back_the_bytes_that_went_in(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(form_field(&form(&bytes), b"payload"), Some(bytes));
    }
}

// holds: FG-2, FG-1
#[test]
fn what_happens_to_a_pull_request_is_told_apart_from_what_is_said_on_it() {
    let event = |name: &str, exact: &str, body: &str| {
        let tag = mac(body.as_bytes());
        let headers: Headers = [
            ("content-type", "application/json"),
            ("x-gitea-event", name),
            ("x-gitea-event-type", exact),
            ("x-gitea-signature", tag.as_str()),
        ]
        .into_iter()
        .collect();
        read(ForgeKind::Forgejo, SECRET, &headers, body.as_bytes()).map(|t| t.event)
    };
    let pull = |spoken: bool| {
        Ok(Event::PullRequest {
            repo: "acme/fleet".to_owned(),
            number: 7,
            spoken,
            sender: "dana".to_owned(),
        })
    };
    let of = r#""repository":{"full_name":"acme/fleet"},"sender":{"login":"dana"}"#;
    let changed = format!(r#"{{"action":"synchronized","number":7,{of}}}"#);
    for (name, exact) in [
        ("pull_request", "pull_request"),
        ("pull_request", "pull_request_sync"),
        ("pull_request_approved", "pull_request_review_approved"),
        ("pull_request_comment", "pull_request_review_comment"),
    ] {
        assert_eq!(event(name, exact, &changed), pull(false), "{exact}");
    }
    let spoken =
        format!(r#"{{"action":"created","issue":{{"number":7,"pull_request":{{}}}},"is_pull":true,{of}}}"#);
    assert_eq!(
        event("issue_comment", "pull_request_comment", &spoken),
        pull(true)
    );
    assert_eq!(event("issue_comment", "", &spoken), pull(true));
    let on_issue = spoken.replace("true", "false");
    assert_eq!(
        event("issue_comment", "issue_comment", &on_issue),
        Ok(Event::Other)
    );
    assert!(matches!(
        event("pull_request", "pull_request", "{}"),
        Err(Refusal::Malformed(_))
    ));
    assert!(concerns(&pull(true).unwrap(), "acme/fleet", "main"));
    assert!(!concerns(&pull(true).unwrap(), "acme/fleet2", "main"));
}

fn of_github(event: &str, body: &[u8], content_type: &str, tag: &str) -> Result<Event, Refusal> {
    let headers: Headers = [
        ("content-type", content_type),
        ("x-github-event", event),
        ("x-github-delivery", "g-1"),
        ("x-hub-signature-256", tag),
    ]
    .into_iter()
    .collect();
    let trigger = read(ForgeKind::Github, SECRET, &headers, body)?;
    assert_eq!(trigger.delivery_id, "g-1");
    Ok(trigger.event)
}

// holds: FG-2, B01 (the vector of the forges page)
#[test]
fn github_signs_the_bytes_also_of_a_form() {
    let vector = Hmac::<Sha256>::new_from_slice(b"It's a Secret to Everybody").unwrap();
    assert_eq!(
        data_encoding::HEXLOWER.encode(&vector.chain_update(b"Hello, World!").finalize().into_bytes()),
        "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    );
    let json = push_json("refs/heads/main", B);
    let of_form = form(json.as_bytes());
    let hub = |message: &[u8]| format!("sha256={}", mac(message));
    let urlencoded = "application/x-www-form-urlencoded";
    assert_eq!(
        of_github("push", json.as_bytes(), "application/json", &hub(json.as_bytes())),
        Ok(moved())
    );
    assert_eq!(
        of_github("push", &of_form, urlencoded, &hub(&of_form)),
        Ok(moved())
    );
    assert_eq!(
        of_github("push", &of_form, urlencoded, &hub(json.as_bytes())),
        Err(Refusal::Unauthorized),
        "that is how Gitea signs"
    );
    for none in ["", "sha256=", "sha1=00"] {
        let refused = of_github("push", json.as_bytes(), "application/json", none);
        assert_eq!(refused, Err(Refusal::Unauthorized), "{none}");
    }
}

// holds: FG-2
#[test]
fn another_forges_signature_opens_nothing_at_github() {
    let json = push_json("refs/heads/main", B);
    let headers = headers("application/json", &mac(json.as_bytes()));
    let refused = read(ForgeKind::Github, SECRET, &headers, json.as_bytes());
    assert_eq!(refused, Err(Refusal::Unauthorized));
}

// holds: FG-2, FG-1
#[test]
fn a_review_at_github_has_its_number_inside_the_pull_request() {
    let of =
        r#""repository":{"id":12,"full_name":"acme/fleet"},"sender":{"login":"ravi","id":42,"type":"User"}"#;
    let event = |name: &str, body: &str| {
        let tag = format!("sha256={}", mac(body.as_bytes()));
        of_github(name, body.as_bytes(), "application/json", &tag)
    };
    let pull = |spoken: bool| {
        Ok(Event::PullRequest {
            repo: "acme/fleet".to_owned(),
            number: 7,
            spoken,
            sender: "ravi".to_owned(),
        })
    };
    let review = format!(
        r#"{{"action":"submitted","review":{{"state":"approved"}},"pull_request":{{"number":7}},{of}}}"#
    );
    assert_eq!(event("pull_request_review", &review), pull(false));
    let changed = format!(r#"{{"action":"synchronize","number":7,"pull_request":{{"number":7}},{of}}}"#);
    assert_eq!(event("pull_request", &changed), pull(false));
    let on_pull =
        format!(r#"{{"action":"created","issue":{{"number":7,"pull_request":{{"url":"x"}}}},{of}}}"#);
    assert_eq!(event("issue_comment", &on_pull), pull(true));
    let on_issue = format!(r#"{{"action":"created","issue":{{"number":7}},{of}}}"#);
    assert_eq!(event("issue_comment", &on_issue), Ok(Event::Other));
    let ping = r#"{"zen":"Keep it small.","hook_id":88,"hook":{"type":"Repository"}}"#;
    assert_eq!(event("ping", ping), Ok(Event::Ping));
    for other in ["status", "check_run", "installation", "delete"] {
        assert_eq!(event(other, "{}"), Ok(Event::Other));
    }
}

fn of_gitlab(secret: &[u8], headers: &[(&str, &str)], body: &[u8], at: i64) -> Result<Event, Refusal> {
    let headers = headers.iter().copied().chain([
        ("content-type", "application/json"),
        ("x-gitlab-event", "Push Hook"),
    ]);
    let headers: Headers = headers.collect();
    let now = Timestamp::from_second(at).unwrap();
    super::read(ForgeKind::Gitlab, secret, &headers, body, now).map(|trigger| trigger.event)
}

// holds: FG-2 (the vector of the forges page)
#[test]
fn a_signing_token_of_gitlab_wants_the_signature_of_standard_webhooks_and_takes_nothing_else() {
    const TOKEN: &[u8] = b"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const AT: i64 = 1_795_000_000;
    let body = br#"{"ref":"refs/heads/main","n":1}"#;
    let good = "v1,5dl56Los11IR/46ILEzFhD5TT++aEMChLUQQ3sE40/Y=";
    let signed = |signature: &str, at: &str, now: i64, body: &[u8]| {
        let headers = [
            ("webhook-id", "f5e5f430-f57b-4e6e-9fac-d9128cd7232f"),
            ("webhook-timestamp", at),
            ("webhook-signature", signature),
        ];
        of_gitlab(TOKEN, &headers, body, now)
    };
    let at = AT.to_string();
    // The signature holds; what is signed is no event that counts.
    let held = |answer: Result<Event, Refusal>| answer == Ok(Event::Other);
    assert!(held(signed(good, &at, AT, body)));
    assert!(held(signed(&format!("v1,AAAA {good}"), &at, AT + 300, body)));
    let refused = Err(Refusal::Unauthorized);
    assert_eq!(signed(good, &at, AT + 301, body), refused, "of long ago");
    assert_eq!(signed(good, &at, AT - 301, body), refused, "of the future");
    assert_eq!(signed(good, &(AT + 1).to_string(), AT, body), refused);
    assert_eq!(signed(good, &at, AT, b"{}"), refused);
    assert_eq!(signed(good.trim_start_matches("v1,"), &at, AT, body), refused);
    assert_eq!(signed("v1,", &at, AT, body), refused);
    let token = [("x-gitlab-token", std::str::from_utf8(TOKEN).unwrap())];
    assert_eq!(of_gitlab(TOKEN, &token, body, AT), refused, "in clear");
    assert_eq!(of_gitlab(b"whsec_not base64!", &token, body, AT), refused);
}

// holds: FG-2
#[test]
fn a_secret_token_of_gitlab_is_compared_whole() {
    let push = format!(
        r#"{{"object_kind":"push","ref":"refs/heads/main","before":"{A}","after":"{B}","project":{{"path_with_namespace":"acme/fleet"}}}}"#
    );
    let with =
        |secret: &[u8], token: &str| of_gitlab(secret, &[("x-gitlab-token", token)], push.as_bytes(), 0);
    assert_eq!(with(SECRET, "s3cr3t"), Ok(moved()));
    for wrong in ["", "s3cr3", "s3cr3tt", "S3cr3t"] {
        assert_eq!(with(SECRET, wrong), Err(Refusal::Unauthorized), "{wrong}");
    }
    assert_eq!(with(b"", ""), Err(Refusal::Unauthorized));
    let tag = mac(push.as_bytes());
    let hub = [
        ("x-hub-signature-256", tag.as_str()),
        ("x-gitea-signature", tag.as_str()),
    ];
    assert_eq!(
        of_gitlab(SECRET, &hub, push.as_bytes(), 0),
        Err(Refusal::Unauthorized),
        "another forge's"
    );
}

// holds: FG-2, FG-1
#[test]
fn events_of_gitlab_are_told_apart_by_what_they_are_of() {
    let event = |body: &str| of_gitlab(SECRET, &[("x-gitlab-token", "s3cr3t")], body.as_bytes(), 0);
    let pull = |spoken: bool| {
        Ok(Event::PullRequest {
            repo: "acme/fleet".to_owned(),
            number: 7,
            spoken,
            sender: "ravi".to_owned(),
        })
    };
    let of = r#""user":{"id":42,"username":"ravi"},"project":{"id":12,"path_with_namespace":"acme/fleet"}"#;
    let changed = format!(
        r#"{{"object_kind":"merge_request",{of},"object_attributes":{{"iid":7,"action":"approval"}}}}"#
    );
    assert_eq!(event(&changed), pull(false));
    let note = |of_what: &str| {
        format!(
            r#"{{"object_kind":"note",{of},"object_attributes":{{"id":1,"noteable_type":"{of_what}"}},"merge_request":{{"iid":7}}}}"#
        )
    };
    assert_eq!(event(&note("MergeRequest")), pull(true));
    assert_eq!(event(&note("Issue")), Ok(Event::Other));
    for other in ["pipeline", "build", "tag_push", "deployment"] {
        let body = format!(r#"{{"object_kind":"{other}",{of},"ref":"edge"}}"#);
        assert_eq!(event(&body), Ok(Event::Other), "{other}");
    }
    let none = format!(r#"{{"object_kind":"push",{of}}}"#);
    assert!(matches!(event(&none), Err(Refusal::Malformed(_))));
}

use super::*;

fn api() -> Api {
    Api::new(
        &crate::pure::forge::forgejo::MANNERS,
        "http://127.0.0.1:1/api/v1",
        Zeroizing::new("t0k&n".to_owned()),
        Clock::default(),
    )
    .unwrap()
}

fn answer(status: u16, headers: &[(&'static str, &str)], body: &str) -> Answer {
    let headers = headers.iter().map(|(name, value)| {
        let name = reqwest::header::HeaderName::from_static(name);
        (name, HeaderValue::from_str(value).unwrap())
    });
    Answer {
        status: StatusCode::from_u16(status).unwrap(),
        body: body.as_bytes().to_vec(),
        headers: headers.collect(),
    }
}

// holds: B53
#[test]
fn the_token_is_in_no_word_of_ours_in_any_dress() {
    let body = r#"{"message":"no: token t0k&n, dDBrJm4=, t0k%26n"}"#;
    for status in [401, 403, 500, 422] {
        let error = api().judged(answer(status, &[], body), "a test").err().unwrap();
        let said = format!("{error} {error:?} {:?}", api());
        for dress in ["t0k&n", "dDBrJm4=", "t0k%26n"] {
            assert!(!said.contains(dress), "{said}");
        }
        assert!(said.contains("(token)"), "{said}");
    }
}

// holds: FG-4
#[test]
fn a_forge_that_asks_for_quiet_gets_it() {
    for (status, header, secs) in [(429, "120", 120), (403, "7", 7), (503, "99999999", 3600)] {
        let api = api();
        assert!(api.quiet().is_none());
        let error = api
            .judged(answer(status, &[("retry-after", header)], ""), "a test")
            .err()
            .unwrap();
        assert_eq!(
            error,
            api.later(
                format!("it answered {}", StatusCode::from_u16(status).unwrap()),
                Some(Duration::from_secs(secs))
            )
        );
        assert!(api.quiet().is_some_and(|left| left <= Duration::from_secs(secs)));
    }
    let api = api();
    assert!(api.judged(answer(429, &[], ""), "a test").is_err());
    assert!(api.quiet().is_some_and(|left| left <= QUIET));
}

// holds: FG-4
#[test]
fn a_wait_is_seconds_or_a_time() {
    let now = "2026-11-29T10:00:00Z".parse().unwrap();
    assert_eq!(asked_wait("30", now), Some(Duration::from_secs(30)));
    assert_eq!(
        asked_wait("Sun, 29 Nov 2026 10:01:00 GMT", now),
        Some(Duration::from_secs(60))
    );
    assert_eq!(asked_wait("Sun, 29 Nov 2026 09:01:00 GMT", now), None);
    assert_eq!(asked_wait("soon", now), None);
}

// holds: B54
#[test]
fn an_address_is_plain_http() {
    for no in [
        "file:///etc",
        "ftp://f.test/",
        "https://u:pass@f.test/api",
        "-u",
        "https://f.test/?a=b",
    ] {
        let error = Api::new(
            &crate::pure::forge::github::MANNERS,
            no,
            Zeroizing::new("t".to_owned()),
            Clock::default(),
        )
        .unwrap_err();
        assert!(!error.to_string().contains("pass"), "{error}");
    }
}

// holds: FG-4
#[test]
fn what_is_left_is_told_by_the_headers_that_the_forge_names() {
    let api = Api::new(
        &crate::pure::forge::github::MANNERS,
        "http://127.0.0.1:1/",
        Zeroizing::new("t0k".to_owned()),
        Clock::default(),
    )
    .unwrap();
    let soon = (Clock::default().now().as_second() + 300).to_string();
    let left = |left| {
        [
            ("x-ratelimit-remaining", left),
            ("x-ratelimit-reset", soon.as_str()),
        ]
    };
    let refused = api.judged(answer(403, &left("12"), ""), "a test");
    assert!(matches!(refused, Err(ForgeError::Refused { .. })));
    assert!(api.quiet().is_none());
    let spent = api.judged(answer(403, &left("0"), ""), "a test");
    assert!(matches!(spent, Err(ForgeError::Later { .. })));
    assert!(api.quiet().is_some_and(|left| left > Duration::from_secs(290)));
}

// holds: FG-4
#[tokio::test]
async fn requests_that_write_keep_their_distance() {
    let api = Api::new(
        &crate::pure::forge::github::MANNERS,
        "http://127.0.0.1:1/",
        Zeroizing::new("t0k".to_owned()),
        Clock::default(),
    )
    .unwrap();
    let began = tokio::time::Instant::now();
    for _ in 0..2 {
        api.wait_to_write().await;
    }
    assert!(began.elapsed() >= Duration::from_secs(1));
}

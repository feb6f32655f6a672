use super::*;

fn comment(body: &str) -> Comment {
    let at = "2026-11-29T10:00:00Z".parse().unwrap();
    Comment {
        id: 1,
        author: None,
        body: body.to_owned(),
        created_at: at,
        updated_at: at,
    }
}

fn said(body: &str) -> Option<(Verb, String)> {
    order(&comment(body)).map(|order| (order.verb, order.why))
}

// holds: DL-4
#[test]
fn a_word_stands_on_a_line_of_its_own_with_its_reason() {
    assert_eq!(said("/plans go"), Some((Verb::Go, String::new())));
    assert_eq!(
        said("fine by me\r\n\r\n  /plans hold  the fair is on\r\n"),
        Some((Verb::Hold, "the fair is on".into()))
    );
    assert_eq!(
        said("/plans go --again mended"),
        Some((Verb::GoAgain, "mended".into()))
    );
    for (word, verb) in [
        ("stop", Verb::Stop),
        ("withdraw", Verb::Withdraw),
        ("retry", Verb::Retry),
    ] {
        assert_eq!(said(&format!("/plans {word}")), Some((verb, String::new())));
    }
}

// holds: B57
#[test]
fn a_quotation_an_example_and_an_edit_order_nothing() {
    for none in [
        "> /plans go",
        "say `/plans go` then",
        "please /plans go",
        "```\n/plans go\n```",
        "~~~~ text\n```\n/plans go\n~~~\n/plans go",
        "    /plans go",
        "\t/plans go",
        "/plans",
        "/plans freeze",
        "/plans Go",
        "/plansgo",
        "<!-- /plans go -->",
    ] {
        assert_eq!(said(none), None, "{none}");
    }
    assert_eq!(
        said("```\n/plans go\n```\n/plans stop"),
        Some((Verb::Stop, String::new()))
    );
    let mut edited = comment("/plans go");
    edited.updated_at = "2026-11-29T10:00:01Z".parse().unwrap();
    assert_eq!(order(&edited), None);
}

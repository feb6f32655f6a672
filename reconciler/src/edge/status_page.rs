//! The read-only status page: one template, rendered from the view that the API gives too.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, context};

use crate::pure::page::StatusView;

const TEMPLATE: &str = include_str!("../../templates/status.html");
const CSS: &str = include_str!("../../templates/status.css");
/// Nothing of elsewhere, no script at all.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Renders the page; what cannot be rendered is our fault and said as such.
pub fn html(status: &StatusView) -> Response {
    match render(status) {
        Ok(page) => (
            [
                (header::CONTENT_TYPE, "text/html; charset=utf-8"),
                (header::CONTENT_SECURITY_POLICY, POLICY),
                (header::REFERRER_POLICY, "no-referrer"),
                (header::CACHE_CONTROL, "no-store"),
            ],
            page,
        )
            .into_response(),
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the status page cannot be rendered"
            );
            (
                StatusCode::INTERNAL_SERVER_ERROR,
                "the page cannot be rendered; see the log\n",
            )
                .into_response()
        }
    }
}

fn render(status: &StatusView) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // The name ends in `.html`, so everything is escaped.
    environment.add_template("status.html", TEMPLATE)?;
    environment
        .get_template("status.html")?
        .render(context! { status => Serde(status) })
}

/// The style sheet.
pub async fn css() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], CSS).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::decide::why::Why;
    use crate::pure::page::DeliveryView;
    use crate::pure::roll_call::Page;
    use meshplan_schemas::lifecycle::delivery::State;

    #[test]
    fn a_commit_subject_is_text_and_never_markup() {
        let delivery = DeliveryView {
            name: "fleet@0123".into(),
            commit: "0".repeat(40),
            subject: "<script>alert(1)</script>".into(),
            author: "Dana".into(),
            state: State::Held,
            code: "person-hold".into(),
            since: jiff::Timestamp::UNIX_EPOCH,
            reason: "said so".into(),
            scopes: vec![],
            skipped: vec![],
            stages: vec![],
            left_behind: vec![],
            remarks: vec![],
            epoch: 0,
            revision: 0,
            sequence: 0,
            abort_cause: None,
            outstanding: vec![],
            story: vec![],
            why: Some(Why {
                waits_for: "a person: <b>said so</b>".into(),
                rule: "plans/web.toml:3, approvals = 2 (approvals)".into(),
                next: "a go begins it".into(),
                deadline: Some(jiff::Timestamp::UNIX_EPOCH),
                command: Some("meshplan deliveries go 0123".into()),
                as_of: jiff::Timestamp::UNIX_EPOCH,
            }),
        };
        let status = StatusView {
            fleet: "demo".into(),
            branch: "main".into(),
            as_of: jiff::Timestamp::UNIX_EPOCH,
            frozen: None,
            recovering: None,
            troubles: vec![],
            deliveries: vec![delivery],
            page: Page::default(),
        };
        let page = render(&status).unwrap();
        assert!(
            page.contains("&lt;script&gt;") && !page.contains("<script"),
            "{page}"
        );
        assert!(page.contains(">1970-01-01 00:00:00 UTC<"), "{page}");
        // holds: DL-16
        for said in [
            "waits for a person: &lt;b&gt;said so",
            "plans&#x2f;web.toml:3, approvals = 2 (approvals)",
            "next: a go begins it, by 1970-01-01 00:00:00 UTC",
            "<code>meshplan deliveries go 0123</code>",
        ] {
            assert!(page.contains(said), "no {said} in {page}");
        }
    }
}

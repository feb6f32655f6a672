//! A bare repository: no API, and webhooks that its own post-receive hook sends.
//!
//! The envelope is a cut-down push event, signed like Gitea's, so that a Gitea's or Forgejo's webhook serves as well.

use crate::pure::trigger::hook::{self, Form, Hook, Signed};

/// Its webhooks.
pub const HOOK: Hook = Hook {
    names: &["bare"],
    signed: Signed::Hmac {
        headers: &[
            "x-meshplan-signature",
            "x-forgejo-signature",
            "x-gitea-signature",
            "x-hub-signature-256",
        ],
        form: Form::Either,
    },
    deliveries: &[
        "x-meshplan-delivery",
        "x-forgejo-delivery",
        "x-gitea-delivery",
        "x-gogs-delivery",
        "x-github-delivery",
    ],
    events: &[
        "x-meshplan-event",
        "x-forgejo-event-type",
        "x-gitea-event-type",
        "x-forgejo-event",
        "x-gitea-event",
        "x-gogs-event",
        "x-github-event",
    ],
    event: hook::of_bare,
};

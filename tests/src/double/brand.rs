//! Which forges there are doubles of, and what each wants to be given.

/// Which forge it is a double of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Brand {
    /// Forgejo, and Gitea.
    Forgejo,
    /// GitHub.
    Github,
    /// GitLab.
    Gitlab,
}

impl Brand {
    /// As the configuration names it, and the address of its webhooks.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Forgejo => "forgejo",
            Self::Github => "github",
            Self::Gitlab => "gitlab",
        }
    }

    /// The scopes of a token that may do all that the reconciler does, as `docs/forges` says.
    #[must_use]
    pub fn scopes(self) -> &'static [&'static str] {
        match self {
            Self::Forgejo => &[
                "write:repository",
                "write:issue",
                "read:user",
                "read:organization",
            ],
            Self::Github => &[
                "contents:write",
                "pull_requests:write",
                "statuses:write",
                "checks:read",
                "metadata:read",
                "members:read",
            ],
            // It covers git as well.
            Self::Gitlab => &["api", "write_repository"],
        }
    }

    /// The events of the webhook, as `docs/forges` says.
    #[must_use]
    pub fn events(self) -> &'static [&'static str] {
        match self {
            Self::Forgejo => &[
                "push",
                "pull_request_only",
                "pull_request_sync",
                "pull_request_review",
                "pull_request_comment",
            ],
            Self::Github => &["push", "pull_request", "pull_request_review", "issue_comment"],
            Self::Gitlab => &["push_events", "merge_requests_events", "note_events"],
        }
    }

    /// What the reconciler's user has to be.
    pub(super) fn of_bot(self) -> &'static str {
        match self {
            // Only who administers is told what others may do.
            Self::Forgejo => "admin",
            Self::Github | Self::Gitlab => "write",
        }
    }

    pub(super) fn api(self) -> &'static str {
        match self {
            Self::Forgejo => "/api/v1",
            Self::Github => "/api/v3",
            Self::Gitlab => "/api/v4",
        }
    }

    /// The scope that git asks for, to push or to fetch.
    pub(super) fn of_git(self, pushes: bool) -> &'static [&'static str] {
        match (self, pushes) {
            (Self::Forgejo, true) => &["write:repository"],
            (Self::Forgejo, false) => &["write:repository", "read:repository"],
            (Self::Github, true) => &["contents:write"],
            (Self::Github, false) => &["contents:write", "contents:read"],
            (Self::Gitlab, true) => &["write_repository"],
            (Self::Gitlab, false) => &["write_repository", "read_repository"],
        }
    }

    pub(super) fn head_ref(self, number: u64) -> String {
        match self {
            Self::Forgejo | Self::Github => format!("refs/pull/{number}/head"),
            Self::Gitlab => format!("refs/merge-requests/{number}/head"),
        }
    }
}

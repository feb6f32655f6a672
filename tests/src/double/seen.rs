//! What can be seen of a double.

use anyhow::Result;

use super::{Brand, Double, StatusRow};

impl Double {
    /// The comments of a pull request by somebody, oldest first: id and text.
    #[must_use]
    pub fn comments_by(&self, login: &str, number: u64) -> Vec<(u64, String)> {
        let state = self.locked();
        let of = state
            .comments
            .values()
            .filter(|c| c.number == number && c.author == login);
        of.map(|c| (c.id, c.body.clone())).collect()
    }

    /// The statuses of a commit, as they were set, oldest first.
    #[must_use]
    pub fn statuses(&self, commit: &str) -> Vec<StatusRow> {
        let state = self.locked();
        let of = state.statuses.iter().filter(|s| s.commit == commit);
        of.cloned()
            .map(|mut status| {
                // In the words of the others, so that a story can be told once.
                status.state = match (state.brand, status.state.as_str()) {
                    (Brand::Gitlab, "failed") => "failure".to_owned(),
                    (Brand::Gitlab, "running") => "pending".to_owned(),
                    _ => status.state,
                };
                status
            })
            .collect()
    }

    /// The newest status of a context on a commit.
    #[must_use]
    pub fn status(&self, commit: &str, context: &str) -> Option<StatusRow> {
        self.statuses(commit)
            .into_iter()
            .rfind(|status| status.context == context)
    }

    /// The requests to the API since the last time, as method, path and answer.
    #[must_use]
    pub fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.locked().calls)
    }

    /// How many webhooks were sent.
    #[must_use]
    pub fn posted(&self) -> usize {
        self.locked().posted
    }

    /// The head of a pull request.
    ///
    /// # Errors
    /// There is none.
    pub fn head(&self, number: u64) -> Result<String> {
        Ok(self.locked().pull(number)?.head.clone())
    }

    /// The text of a pull request.
    ///
    /// # Errors
    /// There is none.
    pub fn body(&self, number: u64) -> Result<String> {
        Ok(self.locked().pull(number)?.body.clone())
    }

    /// The numbers of pull requests whose title begins so.
    #[must_use]
    pub fn pulls_called(&self, title: &str) -> Vec<u64> {
        let state = self.locked();
        let called = state.pulls.values().filter(|pull| pull.title.starts_with(title));
        called.map(|pull| pull.number).collect()
    }
}

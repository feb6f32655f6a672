//! What a person does at a double: opens, speaks, reviews, merges.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{
    Brand, Done, Double, Happening, NAME, New, ReviewRow, Says, StatusRow, Way, git, moment, now, post,
};

impl Double {
    /// Opens a pull request of a branch that was pushed.
    ///
    /// # Errors
    /// There is no such branch, or nobody of that name.
    pub fn open_pull(&self, login: &str, branch: &str, title: &str) -> Result<u64> {
        let head = git::resolve(&self.locked().repository(), &format!("refs/heads/{branch}"))?;
        self.opened(login, branch, None, head, title)
    }

    /// Opens a pull request of a branch of a fork, whose commits come from `clone`.
    ///
    /// # Errors
    /// There is nobody of that name, or git says no.
    pub fn open_pull_from_fork(&self, login: &str, clone: &Path, branch: &str, title: &str) -> Result<u64> {
        let repository = self.locked().repository();
        let head = git::resolve(clone, &format!("refs/heads/{branch}"))?;
        git::fetch(&repository, clone, &head)?;
        self.opened(login, branch, Some(format!("{login}/{NAME}")), head, title)
    }

    fn opened(
        &self,
        login: &str,
        from: &str,
        fork: Option<String>,
        head: String,
        title: &str,
    ) -> Result<u64> {
        let mut state = self.locked();
        state.person(login)?;
        let new = New {
            author: login,
            title,
            body: "",
            from,
            fork,
            head,
        };
        state.add_pull(&self.state, new)
    }

    /// Writes a comment; gives its id.
    ///
    /// # Errors
    /// There is no such pull request, or nobody of that name.
    pub fn comment(&self, login: &str, number: u64, body: &str) -> Result<u64> {
        let mut state = self.locked();
        state.person(login)?;
        state.pull(number)?;
        Ok(state.add_comment(&self.state, login, number, body).id)
    }

    /// Changes a comment, of anybody.
    ///
    /// # Errors
    /// There is none.
    pub fn edit_comment(&self, login: &str, id: u64, body: &str) -> Result<()> {
        let mut state = self.locked();
        let comment = state.comments.get_mut(&id).context("no such comment")?;
        body.clone_into(&mut comment.body);
        // Later than it was written, also where that was within this second.
        comment.updated = format!("{}.5Z", now().trim_end_matches('Z'));
        let (edited, by) = (true, login);
        post::tell(&self.state, &mut state, &Happening::Spoke { id, edited, by });
        Ok(())
    }

    /// Takes a comment away.
    pub fn delete_comment(&self, id: u64) {
        self.locked().comments.remove(&id);
    }

    /// Reviews a pull request as it stands.
    ///
    /// # Errors
    /// There is none, nobody of that name, or it is one's own.
    pub fn review(&self, login: &str, number: u64, says: Says) -> Result<()> {
        let mut state = self.locked();
        state.person(login)?;
        let official = state.writes(login);
        let pull = state.pull(number)?.clone();
        ensure!(
            pull.author != login || says == Says::Comment,
            "approve your own pull is not allowed"
        );
        state.reviews.push(ReviewRow {
            number,
            by: login.to_owned(),
            says,
            commit: pull.head,
            official,
            dismissed: false,
            at: moment(),
        });
        let (done, by) = (Done::Reviewed(says), login);
        post::tell(&self.state, &mut state, &Happening::Pull { number, done, by });
        Ok(())
    }

    /// Sets a status, as a CI of somebody else does.
    pub fn set_status(&self, commit: &str, context: &str, says: &str) {
        self.check(commit, context, says, false);
    }

    /// What the forge's own CI says: `pending`, `success`, `failure`, `error`. Of a forge that has a place of its own for
    /// that, it stands there.
    pub fn run_check(&self, commit: &str, context: &str, says: &str) {
        self.check(commit, context, says, true);
    }

    fn check(&self, commit: &str, context: &str, says: &str, run: bool) {
        self.locked().statuses.push(StatusRow {
            commit: commit.to_owned(),
            context: context.to_owned(),
            state: says.to_owned(),
            description: String::new(),
            by: "ci".to_owned(),
            run,
        });
    }

    /// Merges a pull request; gives what the branch is at then.
    ///
    /// # Errors
    /// It is not open, there are conflicts, or the person may not.
    pub fn merge(&self, login: &str, number: u64, way: Way) -> Result<String> {
        let mut state = self.locked();
        ensure!(state.writes(login), "{login} may not merge");
        ensure!(
            state.brand != Brand::Github || way != Way::FastForward,
            "there is no such button"
        );
        let pull = state.pull(number)?.clone();
        ensure!(pull.open, "{number} is closed");
        let repository = state.repository();
        let before = git::resolve(&repository, "refs/heads/main")?;
        let after = git::merge(&repository, &before, &pull.head, way, &pull.title)?;
        git::set(&repository, "refs/heads/main", &after)?;
        if state.brand == Brand::Gitlab && way == Way::Rebase {
            // There the branch itself is rebased, and then fast-forwarded to.
            git::set(&repository, &state.brand.head_ref(number), &after)?;
            let row = state.pull(number)?;
            row.head.clone_from(&after);
            row.heads.push((after.clone(), moment()));
            row.fork_point.clone_from(&before);
        }
        let row = state.pull(number)?;
        row.open = false;
        row.merged = Some((after.clone(), now(), login.to_owned(), way));
        let (name, by) = ("refs/heads/main", login);
        let pushed = Happening::Pushed {
            name,
            before: &before,
            after: &after,
            by,
        };
        post::tell(&self.state, &mut state, &pushed);
        let done = Done::Merged;
        post::tell(&self.state, &mut state, &Happening::Pull { number, done, by });
        Ok(after)
    }
}

//! The double's repositories: git's own plumbing, and who may fetch and push.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{Brand, Done, Happening, PASSWORD, Shared, State as Forge, Token, Way, moment, now, post};
use crate::program::{Said, clean};

/// git in a repository.
fn git(repository: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = clean("git", repository);
    command.arg("-C").arg(repository);
    command.args([
        "-c",
        "user.name=Forge",
        "-c",
        "user.email=forge@example.org",
        "-c",
        "safe.directory=*",
    ]);
    command.args(arguments);
    Ok(Said::of(command)?.ok()?.trim_end().to_owned())
}

/// An empty repository that takes pushes.
pub(super) fn create(repository: &Path) -> Result<()> {
    std::fs::create_dir_all(repository)?;
    git(
        repository,
        &["init", "--quiet", "--bare", "--initial-branch=main", "."],
    )?;
    git(repository, &["config", "http.receivepack", "true"])?;
    Ok(())
}

/// The commit that a ref points at.
pub(super) fn resolve(repository: &Path, name: &str) -> Result<String> {
    git(repository, &["rev-parse", "--verify", "--end-of-options", name])
}

/// Whether there is such a commit.
pub(super) fn has(repository: &Path, commit: &str) -> bool {
    git(repository, &["cat-file", "-e", &format!("{commit}^{{commit}}")]).is_ok()
}

/// Whether a commit is another's ancestor, or that one.
pub(super) fn is_behind(repository: &Path, commit: &str, tip: &str) -> bool {
    git(repository, &["merge-base", "--is-ancestor", commit, tip]).is_ok()
}

/// Whether a branch has it.
pub(super) fn is_on_a_branch(repository: &Path, commit: &str) -> bool {
    let list = git(
        repository,
        &["for-each-ref", "--contains", commit, "--count=1", "refs/heads"],
    );
    list.is_ok_and(|list| !list.is_empty())
}

/// Where a commit left the fleet branch.
pub(super) fn fork_point(repository: &Path, commit: &str) -> Result<String> {
    git(repository, &["merge-base", "refs/heads/main", commit])
}

/// Moves a ref.
pub(super) fn set(repository: &Path, name: &str, commit: &str) -> Result<()> {
    git(repository, &["update-ref", name, commit]).map(drop)
}

/// Takes a commit from another repository.
pub(super) fn fetch(repository: &Path, from: &Path, commit: &str) -> Result<()> {
    let from = from.to_str().context("a path is a text")?;
    git(repository, &["fetch", "--quiet", from, commit]).map(drop)
}

/// Every ref with its commit.
pub(super) fn refs(repository: &Path) -> Result<BTreeMap<String, String>> {
    let text = git(repository, &["for-each-ref", "--format=%(refname) %(objectname)"])?;
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    Ok(pairs.map(|(name, id)| (name.to_owned(), id.to_owned())).collect())
}

/// What a merge makes of the branch.
pub(super) fn merge(repository: &Path, base: &str, head: &str, way: Way, title: &str) -> Result<String> {
    let tree = |base: &str, head: &str| git(repository, &["merge-tree", "--write-tree", base, head]);
    let commit = |tree: &str, parents: &[&str], message: &str| {
        let mut arguments = vec!["commit-tree", tree, "-m", message];
        for parent in parents {
            arguments.extend(["-p", parent]);
        }
        git(repository, &arguments)
    };
    match way {
        Way::FastForward => Ok(head.to_owned()),
        Way::Merge => commit(
            &tree(base, head)?,
            &[base, head],
            &format!("Merge pull request '{title}'"),
        ),
        Way::Squash => commit(&tree(base, head)?, &[base], title),
        Way::Rebase => {
            let list = git(
                repository,
                &["rev-list", "--reverse", "--no-merges", &format!("{base}..{head}")],
            )?;
            let mut tip = base.to_owned();
            for one in list.lines() {
                let parent = resolve(repository, &format!("{one}^"))?;
                let merge_base = format!("--merge-base={parent}");
                let tree = git(
                    repository,
                    &["merge-tree", "--write-tree", &merge_base, &tip, one],
                )?;
                let message = git(repository, &["log", "-1", "--format=%B", one])?;
                tip = commit(&tree, &[&tip], &message)?;
            }
            Ok(tip)
        }
    }
}

/// Who may fetch and push; and what a push has changed.
pub(super) async fn gate(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let packs = request.uri().path().ends_with("/git-receive-pack");
    let pushes = packs || query.contains("git-receive-pack");
    let (login, before) = {
        let state = shared.locked();
        if state.down {
            return StatusCode::BAD_GATEWAY.into_response();
        }
        let Ok(token) = who(&state, request.headers()) else {
            let realm = HeaderValue::from_static("Basic realm=\"Forge\"");
            return (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, realm)]).into_response();
        };
        let scopes = state.brand.of_git(pushes);
        let scoped = scopes.iter().any(|scope| token.scopes.contains(*scope));
        let may = match pushes {
            true => state.writes(&token.login),
            false => state.permission(&token.login) != "none",
        };
        if !scoped || !may {
            return StatusCode::FORBIDDEN.into_response();
        }
        (token.login, refs(&state.repository()).unwrap_or_default())
    };
    let response = next.run(request).await;
    if !packs {
        return response;
    }
    // The refs have moved once the whole answer is here.
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, 64 << 20).await.unwrap_or_default();
    if let Err(error) = pushed(&shared, &before, &login) {
        return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
    }
    Response::from_parts(parts, Body::from(body))
}

/// What a push has changed: webhooks, and the heads of pull requests.
pub(super) fn pushed(shared: &Arc<Shared>, before: &BTreeMap<String, String>, login: &str) -> Result<()> {
    let mut state = shared.locked();
    let repository = state.repository();
    let after = refs(&repository)?;
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        let (old, new) = (before.get(name), after.get(name));
        // Post-receive keeps branches and tags alone: notes send nothing.
        let Some(branch) = name.strip_prefix("refs/heads/") else {
            continue;
        };
        let zeros = "0".repeat(40);
        let by = login;
        match (old, new) {
            (old, Some(new)) if old != Some(new) => {
                let pushed = Happening::Pushed {
                    name,
                    before: old.unwrap_or(&zeros),
                    after: new,
                    by,
                };
                post::tell(shared, &mut state, &pushed);
                moved(shared, &mut state, branch, new, by)?;
            }
            (Some(before), None) => {
                post::tell(shared, &mut state, &Happening::Deleted { branch, before, by });
            }
            _ => {}
        }
    }
    // Merged by hand: the head of an open one came onto the branch by a push.
    let Some(main) = after
        .get("refs/heads/main")
        .filter(|main| before.get("refs/heads/main") != Some(*main))
    else {
        return Ok(());
    };
    let open = state.pulls.values().filter(|p| p.open);
    let open: Vec<(u64, String)> = open.map(|p| (p.number, p.head.clone())).collect();
    for (number, head) in open {
        if !is_behind(&repository, &head, main) {
            continue;
        }
        let pull = state.pull(number)?;
        pull.open = false;
        pull.merged = Some((main.clone(), now(), login.to_owned(), Way::FastForward));
        let (done, by) = (Done::Merged, login);
        post::tell(shared, &mut state, &Happening::Pull { number, done, by });
    }
    Ok(())
}

/// A branch has moved: so have the heads of the pull requests that come from it.
fn moved(shared: &Arc<Shared>, state: &mut Forge, branch: &str, new: &str, by: &str) -> Result<()> {
    let (repository, base) = (state.repository(), state.main());
    let of = |p: &&mut super::PullRow| p.open && p.fork.is_none() && p.from == branch;
    let mut heads = Vec::new();
    for pull in state.pulls.values_mut().filter(of) {
        heads.push((pull.number, std::mem::replace(&mut pull.head, new.to_owned())));
        pull.heads.push((new.to_owned(), moment()));
        pull.base.clone_from(&base);
        if let Ok(point) = fork_point(&repository, new) {
            pull.fork_point = point;
        }
    }
    for (number, was) in heads {
        set(&repository, &state.brand.head_ref(number), new)?;
        let done = Done::Moved(&was);
        post::tell(shared, state, &Happening::Pull { number, done, by });
    }
    Ok(())
}

/// Whom a request names.
pub(super) fn who(state: &Forge, headers: &HeaderMap) -> Result<Token> {
    let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(text) = given else {
        bail!("no token");
    };
    let word = match state.brand {
        Brand::Forgejo => text
            .strip_prefix("token ")
            .or_else(|| text.strip_prefix("Bearer ")),
        Brand::Github | Brand::Gitlab => text.strip_prefix("Bearer "),
    };
    if let Some(token) = word {
        return state.tokens.get(token).cloned().context("the token is nobody's");
    }
    let pair = text
        .strip_prefix("Basic ")
        .context("neither a token nor a password")?;
    let pair = String::from_utf8(data_encoding::BASE64.decode(pair.as_bytes())?)?;
    let (login, password) = pair.split_once(':').context("a name and a password")?;
    if let Some(token) = state.tokens.get(password) {
        return Ok(token.clone());
    }
    ensure!(
        password == PASSWORD && state.people.contains_key(login),
        "a wrong password"
    );
    Ok(Token {
        login: login.to_owned(),
        scopes: state.brand.scopes().iter().map(|s| (*s).to_owned()).collect(),
    })
}

//! Other people's clients read what the doubles answer.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use forgejo_api::structs::{
    CommitStatusState, CreateIssueCommentOption, CreateStatusOption, IssueGetCommentsQuery,
    RepoListPullRequestsQuery,
};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use octocrab::models::{CombinedStatus, StatusState};
use octocrab::params::repos::Commitish;
use octocrab::service::middleware::base_uri::BaseUriLayer;
use octocrab::service::middleware::extra_headers::ExtraHeadersLayer;
use octocrab::{AuthState, OctoBody, OctocrabBuilder};
use scenarios::double::{BOT, Brand};

use super::{Scene, wait};

/// Where a double is.
fn host(scene: &Scene) -> Result<String> {
    let url = scene.double.url();
    Ok(url
        .strip_suffix("/acme/fleet.git")
        .context("its address")?
        .to_owned())
}

// holds: FG-6
#[test]
fn a_client_made_from_forgejos_description_reads_the_double() -> Result<()> {
    let scene = Scene::at(Brand::Forgejo)?;
    let token = scene.token()?;
    let api = forgejo_api::Forgejo::new(forgejo_api::Auth::Token(&token), host(&scene)?.parse()?)?;
    let (owner, repo, open) = ("acme", "fleet", i64::try_from(scene.open)?);
    wait(async {
        ensure!(api.user_get_current().await?.login.as_deref() == Some(BOT));
        let query = RepoListPullRequestsQuery::default();
        let (_, pulls) = api.repo_list_pull_requests(owner, repo, query).await?;
        ensure!(pulls.len() == 1, "{pulls:?}");
        let pull = api.repo_get_pull_request(owner, repo, open).await?;
        let head = pull.head.and_then(|head| head.sha);
        ensure!(head.as_deref() == Some(&*scene.head) && pull.merged == Some(false));
        let merged = api
            .repo_get_commit_pull_request(owner, repo, &scene.commit)
            .await?;
        ensure!(merged.merge_commit_sha.as_deref() == Some(&*scene.commit) && merged.merged == Some(true));
        let query = IssueGetCommentsQuery::default();
        let (_, comments) = api.issue_get_comments(owner, repo, open, query).await?;
        ensure!(comments.first().and_then(|comment| comment.body.as_deref()) == Some("look at this"));
        let (_, reviews) = api.repo_list_pull_reviews(owner, repo, open).await?;
        let review = reviews.first().context("a review")?;
        ensure!(review.commit_id.as_deref() == Some(&*scene.head) && review.official == Some(true));
        let (_, status) = api
            .repo_get_combined_status_by_ref(owner, repo, &scene.head)
            .await?;
        ensure!(status.total_count == Some(2), "{status:?}");
        let said = api.repo_get_repo_permissions(owner, repo, "dana").await?;
        ensure!(said.permission.as_deref() == Some("write"));
        let (_, teams) = api.org_list_teams(owner).await?;
        let team = teams.first().and_then(|team| team.id).context("a team")?;
        let (_, members) = api.org_list_team_members(team).await?;
        ensure!(members.iter().any(|member| member.id == Some(41)), "{members:?}");
        let body = CreateIssueCommentOption {
            body: "hello".to_owned(),
            updated_at: None,
        };
        let comment = api.issue_create_comment(owner, repo, open, body).await?;
        ensure!(comment.body.as_deref() == Some("hello"));
        let body = CreateStatusOption {
            context: Some("ci/more".to_owned()),
            description: Some("well".to_owned()),
            state: Some(CommitStatusState::Success),
            target_url: None,
        };
        let status = api.repo_create_status(owner, repo, &scene.commit, body).await?;
        ensure!(status.context.as_deref() == Some("ci/more"));
        Ok(())
    })
}

// holds: FG-6
#[test]
fn a_client_of_github_reads_the_double() -> Result<()> {
    let scene = Scene::at(Brand::Github)?;
    wait(async {
        let headers = [
            ("authorization", format!("Bearer {}", scene.token()?)),
            ("accept", "application/vnd.github+json".to_owned()),
            ("x-github-api-version", "2022-11-28".to_owned()),
            ("user-agent", "a-test".to_owned()),
        ];
        let headers: Result<Vec<_>> = (headers.into_iter())
            .map(|(name, value)| Ok((name.parse()?, value.parse()?)))
            .collect();
        // Over plain HTTP: its own way to TLS brings another provider of cryptography.
        let client = Client::builder(TokioExecutor::new()).build_http::<OctoBody>();
        let crab = OctocrabBuilder::new_empty()
            .with_service(client)
            .with_layer(&BaseUriLayer::new(format!("{}/api/v3", host(&scene)?).parse()?))
            .with_layer(&ExtraHeadersLayer::new(Arc::new(headers?)))
            .with_auth(AuthState::None)
            .build()?;
        ensure!(crab.current().user().await?.login == BOT);
        let pulls = crab.pulls("acme", "fleet");
        let open = pulls.list().send().await?;
        ensure!(open.items.len() == 1);
        let pull = pulls.get(scene.open).await?;
        ensure!(pull.head.sha == scene.head && pull.merged_at.is_none());
        let merged = pulls.get(scene.merged).await?;
        ensure!(merged.merge_commit_sha.as_deref() == Some(&*scene.commit) && merged.merged == Some(true));
        let reviews = pulls.list_reviews(scene.open).send().await?;
        ensure!(
            reviews
                .items
                .first()
                .and_then(|review| review.commit_id.as_deref())
                == Some(&*scene.head)
        );
        let commits = crab.commits("acme", "fleet");
        let target = octocrab::commits::PullRequestTarget::Sha(scene.commit.clone());
        let of_commit = commits.associated_pull_requests(target).send().await?;
        ensure!(of_commit.items.iter().any(|pull| pull.number == scene.merged));
        let issues = crab.issues("acme", "fleet");
        let comments = issues.list_comments(scene.open).send().await?;
        ensure!(comments.items.first().and_then(|comment| comment.body.as_deref()) == Some("look at this"));
        let comment = issues.create_comment(scene.open, "hello").await?;
        ensure!(comment.body.as_deref() == Some("hello"));
        let repos = crab.repos("acme", "fleet");
        let of_head = format!("/repos/acme/fleet/commits/{}/status", scene.head);
        let combined: CombinedStatus = crab.get(of_head, None::<&()>).await?;
        ensure!(combined.total_count == 1 && combined.statuses.len() == 1);
        let runs = crab.checks("acme", "fleet");
        let runs = runs
            .list_check_runs_for_git_ref(Commitish(scene.head.clone()))
            .send()
            .await?;
        ensure!(runs.check_runs.first().is_some_and(|run| run.name == "ci/own"));
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let status = repos.create_status(scene.commit.clone(), StatusState::Success);
        let status = status.context("ci/more".to_owned()).send().await?;
        ensure!(status.context.as_deref() == Some("ci/more"));
        let members = crab.teams("acme").members("ops").send().await?;
        ensure!(members.items.iter().any(|member| member.id.0 == 41));
        Ok(())
    })
}

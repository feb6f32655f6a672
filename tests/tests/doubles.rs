//! The doubles refuse what the real forges refuse: a reconciler that is told yes by one would be told yes there.

use anyhow::{Context, Result, ensure};
use reqwest::Method;
use scenarios::double::{BOT, Brand, Double};
use scenarios::world::World;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Somebody who asks a double's API.
struct Client {
    runtime: Runtime,
    client: reqwest::Client,
    base: String,
    headers: Vec<(&'static str, String)>,
}

/// What is answered.
struct Answer {
    status: u16,
    link: String,
    retry_after: String,
    body: Value,
}

impl Client {
    fn new(brand: Brand, double: &Double, token: &str) -> Result<Self> {
        let host = double.url();
        let host = host.strip_suffix("/acme/fleet.git").context("its address")?;
        let api = match brand {
            Brand::Forgejo => "api/v1/repos/acme/fleet",
            Brand::Github => "api/v3/repos/acme/fleet",
            Brand::Gitlab => "api/v4/projects/acme%2Ffleet",
        };
        let mut headers = vec![("authorization", format!("Bearer {token}"))];
        if brand == Brand::Github {
            headers.push(("accept", "application/vnd.github+json".to_owned()));
            headers.push(("x-github-api-version", "2022-11-28".to_owned()));
            headers.push(("user-agent", "a-test".to_owned()));
        }
        Ok(Self {
            runtime: Runtime::new()?,
            client: reqwest::Client::builder().tls_certs_only([]).build()?,
            base: format!("{host}/{api}"),
            headers,
        })
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(header, _)| *header != name);
        self
    }

    fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        let mut request = self.client.request(method, format!("{}/{path}", self.base));
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        self.runtime.block_on(async {
            let response = request.send().await?;
            let header = |name: &str| {
                let value = response.headers().get(name).and_then(|v| v.to_str().ok());
                value.unwrap_or_default().to_owned()
            };
            let (link, retry_after) = (header("link"), header("retry-after"));
            Ok(Answer {
                status: response.status().as_u16(),
                link,
                retry_after,
                body: serde_json::from_slice(&response.bytes().await?).unwrap_or_default(),
            })
        })
    }

    fn status(&self, method: Method, path: &str, body: Option<&Value>) -> Result<u16> {
        Ok(self.ask(method, path, body)?.status)
    }
}

/// The paths of a forge: pull requests, comments of the first, statuses of a commit.
fn paths(brand: Brand, commit: &str) -> (&'static str, &'static str, String) {
    match brand {
        Brand::Forgejo | Brand::Github => ("pulls", "issues/1/comments", format!("statuses/{commit}")),
        Brand::Gitlab => (
            "merge_requests",
            "merge_requests/1/notes",
            format!("statuses/{commit}"),
        ),
    }
}

const ALL: [Brand; 3] = [Brand::Forgejo, Brand::Github, Brand::Gitlab];

fn status_of(brand: Brand, state: &str, description: &str) -> Value {
    let name = if brand == Brand::Gitlab { "name" } else { "context" };
    json!({ "state": state, name: "ci/x", "description": description })
}

// holds: FG-6
#[test]
fn who_is_not_known_or_has_no_scope_is_refused() -> Result<()> {
    for brand in ALL {
        let (world, double) = World::at_forge(brand, "doubles")?;
        let (pulls, ..) = paths(brand, &world.head()?);
        let good = double.token(BOT, brand.scopes());
        let client = || Client::new(brand, &double, &good);
        ensure!(client()?.status(Method::GET, pulls, None)? == 200, "{brand:?}");
        let none = client()?.without("authorization");
        ensure!(
            none.status(Method::GET, pulls, None)? == 401,
            "{brand:?}: no token"
        );
        let wrong = Client::new(brand, &double, "t0ken-of-nobody")?;
        ensure!(
            wrong.status(Method::GET, pulls, None)? == 401,
            "{brand:?}: a wrong one"
        );
        let scopeless = Client::new(brand, &double, &double.token(BOT, &[]))?;
        ensure!(
            scopeless.status(Method::GET, pulls, None)? == 403,
            "{brand:?}: no scope"
        );
        if brand == Brand::Github {
            ensure!(client()?.without("user-agent").status(Method::GET, pulls, None)? == 403);
            ensure!(
                client()?
                    .without("x-github-api-version")
                    .status(Method::GET, pulls, None)?
                    == 400
            );
        }
    }
    Ok(())
}

// holds: FG-6, B51
#[test]
fn what_is_too_long_unknown_repeated_or_too_fast_is_refused() -> Result<()> {
    for brand in ALL {
        let (world, double) = World::at_forge(brand, "doubles")?;
        let head = world.head()?;
        let (_, comments, statuses) = paths(brand, &head);
        world.git(&["checkout", "--quiet", "-b", "edge"])?;
        world.write("README.md", "# edge\n")?;
        world.commit("edge")?;
        world.git(&["push", "--quiet", "origin", "HEAD:refs/heads/edge"])?;
        double.open_pull("dana", "edge", "edge")?;
        let client = Client::new(brand, &double, &double.token(BOT, brand.scopes()))?;
        let rest = || {
            if brand == Brand::Github {
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
        };
        let post = |path: &str, body: &Value| {
            rest();
            client.status(Method::POST, path, Some(body))
        };
        let refused = |status: u16| matches!(status, 400 | 422);
        ensure!(post(comments, &json!({ "body": "good" }))? == 201, "{brand:?}");
        let long = "x".repeat(if brand == Brand::Gitlab { 1_000_001 } else { 65_537 });
        ensure!(
            refused(post(comments, &json!({ "body": long }))?),
            "{brand:?}: too long"
        );
        ensure!(
            refused(post(comments, &json!({ "body": "" }))?),
            "{brand:?}: nothing"
        );
        let unknown = json!({ "body": "good", "colour": "red" });
        ensure!(refused(post(comments, &unknown)?), "{brand:?}: an unknown field");
        let state = if brand == Brand::Gitlab {
            "running"
        } else {
            "pending"
        };
        let good = status_of(brand, state, "on its way");
        ensure!(post(&statuses, &good)? == 201, "{brand:?}");
        let again = post(&statuses, &good)?;
        ensure!(
            again == if brand == Brand::Gitlab { 400 } else { 201 },
            "{brand:?}: {again}"
        );
        let long = status_of(brand, state, &"x".repeat(256));
        ensure!(
            refused(post(&statuses, &long)?),
            "{brand:?}: too long a description"
        );
        let odd = status_of(brand, "splendid", "x");
        ensure!(refused(post(&statuses, &odd)?), "{brand:?}: no such state");
        rest();
        client.status(Method::POST, comments, Some(&json!({ "body": "one" })))?;
        let fast = client.ask(Method::POST, comments, Some(&json!({ "body": "two" })))?;
        if brand == Brand::Github {
            ensure!(fast.status == 403 && fast.retry_after == "60", "two at once");
        }
    }
    Ok(())
}

// holds: FG-6
#[test]
fn lists_come_in_pages() -> Result<()> {
    for brand in ALL {
        let (world, double) = World::at_forge(brand, "doubles")?;
        let (pulls, ..) = paths(brand, &world.head()?);
        for branch in ["one", "two"] {
            world.git(&["push", "--quiet", "origin", &format!("HEAD:refs/heads/{branch}")])?;
            double.open_pull("dana", branch, branch)?;
        }
        double.page(1);
        let client = Client::new(brand, &double, &double.token(BOT, brand.scopes()))?;
        let (mut seen, mut page) = (Vec::new(), 1);
        loop {
            let answer = client.ask(Method::GET, &format!("{pulls}?page={page}"), None)?;
            let of_page = answer.body.as_array().context("a list")?.clone();
            ensure!(of_page.len() == 1, "{brand:?}: {of_page:?}");
            seen.extend(of_page);
            if !answer.link.contains("rel=\"next\"") {
                break;
            }
            page += 1;
        }
        ensure!(seen.len() == 2, "{brand:?}: {seen:?}");
    }
    Ok(())
}

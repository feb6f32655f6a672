//! The reconciler's own configuration: one TOML file, every path in it relative to the file's folder.
//!
//! Repository, branch and fleet name stand here, not in the tree alone: those in the tree must equal them (DL-1).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use meshplan_schemas::ident::FleetName;
use serde::{Deserialize, Deserializer};

/// `meshplan serve --config FILE`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The fleet's name; must equal fleet.toml's.
    pub fleet: FleetName,
    /// The branch whose merges are orders; must equal fleet.toml's.
    #[serde(default = "main_branch")]
    pub branch: String,
    /// Where database, mirror and socket live.
    pub state_dir: PathBuf,
    /// What the service listens on; loopback unless told otherwise (OP-4).
    #[serde(default = "loopback")]
    pub listen: SocketAddr,
    /// Where hosts find the reconciler: `ws://host:port/mesh`, or `wss://host/mesh` where TLS ends before it; they stand
    /// in the signed list.
    pub addresses: Vec<String>,
    /// Where the fleet repo lives.
    pub forge: Forge,
    /// Other repositories whose commits may be delivered: those that fleet.toml names and this list does not are never
    /// fetched (DL-1).
    #[serde(default)]
    pub components: Vec<Component>,
    /// The keys.
    pub keys: Keys,
}

/// A component that fleet.toml may name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Component {
    /// The repository's name, as the forge calls it and as deliveries are called after it.
    #[serde(deserialize_with = "plain")]
    pub repo: String,
    /// The branch whose merges are orders.
    #[serde(default = "main_branch", deserialize_with = "plain")]
    pub branch: String,
    /// `http://` or `https://`, the address that git fetches from.
    pub url: String,
    /// A file `user:password` or a token, for the fetch; left out, nobody is named.
    #[serde(default)]
    pub credentials_file: Option<PathBuf>,
}

/// A name that can stand among others in a line of the record.
fn plain<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '@') {
        let why = format!("`{}` is no name of a repository or branch", text.escape_debug());
        return Err(serde::de::Error::custom(why));
    }
    Ok(text)
}

/// Where the fleet repo lives.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forge {
    /// Which kind.
    pub kind: ForgeKind,
    /// `http://` or `https://`, the address that git fetches from.
    pub url: String,
    /// The repository's name, as deliveries are called after it (`acme/fleet`, or any word for `bare`).
    pub repo: String,
    /// A file that holds the webhook's shared secret.
    pub webhook_secret_file: PathBuf,
    /// A file `user:password` or a token, for fetch and push.
    #[serde(default)]
    pub credentials_file: Option<PathBuf>,
    /// A file that holds a token for the forge's API. Without one nothing is said on pull requests and none is read.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// Where the API is; left out, it is found beside `url`: of Forgejo `https://host/api/v1` for
    /// `https://host/owner/repo.git`, of GitHub `https://api.github.com`, elsewhere `https://host/api/v3`, of GitLab
    /// `https://host/api/v4`.
    #[serde(default)]
    pub api_url: Option<String>,
    /// How often to look when no webhook comes, in seconds.
    #[serde(default = "a_minute")]
    pub poll_secs: u32,
}

/// Kinds of forge (FG-1); the others come with their page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ForgeKind {
    /// Forgejo and Gitea.
    Forgejo,
    /// GitHub, and GitHub Enterprise Server.
    Github,
    /// GitLab.
    Gitlab,
    /// Any git remote with a post-receive hook or polling.
    Bare,
}

/// Where the keys are (SG-7).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// The encrypted key bundle.
    pub file: PathBuf,
    /// A file that holds its passphrase; else `MESHPLAN_PASSPHRASE`, else systemd's credential `meshplan-passphrase`.
    #[serde(default)]
    pub passphrase_file: Option<PathBuf>,
}

fn main_branch() -> String {
    "main".to_owned()
}
fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7946))
}
fn a_minute() -> u32 {
    60
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no configuration; the text has line and column.
    #[error("{path}: {message}")]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line.
        message: String,
    },
}

impl Config {
    /// Reads a file; relative paths in it are taken from its folder.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        let mut config: Self = toml::from_str(&text).map_err(|e| ConfigError::Form {
            path: path.to_owned(),
            message: e.to_string(),
        })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let anchor = |p: &mut PathBuf| *p = folder.join(&*p);
        anchor(&mut config.state_dir);
        anchor(&mut config.keys.file);
        anchor(&mut config.forge.webhook_secret_file);
        config.keys.passphrase_file.as_mut().map(anchor);
        config.forge.credentials_file.as_mut().map(anchor);
        config.forge.token_file.as_mut().map(anchor);
        for component in &mut config.components {
            component.credentials_file.as_mut().map(anchor);
        }
        Ok(config)
    }
}

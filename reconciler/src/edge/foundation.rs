//! What a reconciler stands on: its state folder, key bundle, age identity, webhook secret and configuration, made
//! once.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use data_encoding::BASE64URL_NOPAD;
use meshplan_schemas::fleet_list::Author;
use meshplan_schemas::ident::{FleetName, KeyId};

use super::age_file::{AgeIdentity, IDENTITY_FILE};
use super::key_file::{KeyBundle, KeyFileError, Passphrase};

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The state folder; made with mode 0700.
    pub state: PathBuf,
    /// The fleet.
    pub fleet: FleetName,
    /// The branch whose merges are orders.
    pub branch: String,
    /// What the service listens on, and what hosts are told.
    pub address: SocketAddr,
    /// Where git fetches from.
    pub forge_url: String,
    /// The repository's name, as deliveries are called after it.
    pub repo: String,
    /// How often to look when no webhook comes, in seconds.
    pub poll_secs: u32,
}

/// What was made.
#[derive(Debug)]
pub struct Foundation {
    /// `meshplan.toml`, for `meshplan serve --config`.
    pub config: PathBuf,
    /// The public half of the author key, for fleet.toml.
    pub author: Author,
    /// To whom secrets of the fleet repo are encrypted, for fleet.toml (FR-9).
    pub recipient: String,
}

/// Why it was not made.
#[derive(Debug, thiserror::Error)]
pub enum FoundationError {
    /// A file or folder.
    #[error("cannot make {path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Something stands there already; nothing is written over.
    #[error("{path} is there already: a reconciler's state is never written over; choose another --state")]
    There {
        /// What.
        path: PathBuf,
    },
    /// The keys.
    #[error(transparent)]
    Keys(#[from] KeyFileError),
    /// No randomness.
    #[error("the system gave no random bytes: {0}")]
    Random(String),
}

/// Makes it all. The passphrase lies beside the bundle, mode 0600, so that the service starts by itself; whoever
/// wants it elsewhere moves it and says so in `keys.passphrase_file`.
///
/// # Errors
/// [`FoundationError`].
pub fn lay(spec: &Spec) -> Result<Foundation, FoundationError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| FoundationError::Io { path, source }
    };
    let config = spec.state.join("meshplan.toml");
    let bundle = spec.state.join("keys.json");
    for path in [&config, &bundle] {
        if path.exists() {
            return Err(FoundationError::There { path: path.clone() });
        }
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&spec.state)
        .map_err(io(&spec.state))?;
    let passphrase = random()?;
    private(&spec.state.join("passphrase"), &passphrase)?;
    private(&spec.state.join("webhook-secret"), &random()?)?;
    let author_id = KeyId(format!("{}-reconciler", spec.fleet));
    let passphrase = Passphrase::new(passphrase.into_bytes(), "the new passphrase")?;
    let keys = KeyBundle::create(&bundle, author_id.clone(), &passphrase)?;
    let identity = AgeIdentity::generate();
    private(&spec.state.join(IDENTITY_FILE), &identity.file_text())?;
    private(&config, &text(spec))?;
    Ok(Foundation {
        recipient: identity.recipient().to_string(),
        config,
        author: Author {
            id: author_id,
            key: keys.public().author,
        },
    })
}

fn random() -> Result<String, FoundationError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|e| FoundationError::Random(e.to_string()))?;
    Ok(BASE64URL_NOPAD.encode(&bytes))
}

fn private(path: &Path, text: &str) -> Result<(), FoundationError> {
    let wrong = |source| FoundationError::Io {
        path: path.to_owned(),
        source,
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(wrong)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(wrong)
}

/// A text as a TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn text(spec: &Spec) -> String {
    format!(
        "# The reconciler's own configuration; paths are taken from this file's folder.
fleet = {fleet}
branch = {branch}
state_dir = \".\"
listen = {listen}                # loopback. A TLS proxy before it, for hosts elsewhere, must pass only
                                 # /mesh and /hooks on: the status page is for this machine alone
addresses = [{address}]          # where hosts find it; they stand in the signed list

[forge]
kind = \"bare\"                     # bare | forgejo | github | gitlab
url = {url}
repo = {repo}
webhook_secret_file = \"webhook-secret\"
# token_file = \"forge-token\"      # of a forge with pull requests: previews, statuses, orders by comment
poll_secs = {poll}

[keys]
file = \"keys.json\"
passphrase_file = \"passphrase\"
",
        fleet = quoted(spec.fleet.as_str()),
        branch = quoted(&spec.branch),
        listen = quoted(&spec.address.to_string()),
        address = quoted(&format!("ws://{}/mesh", spec.address)),
        url = quoted(&spec.forge_url),
        repo = quoted(&spec.repo),
        poll = spec.poll_secs,
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::Config;

    fn spec(state: &Path) -> Spec {
        Spec {
            state: state.to_owned(),
            fleet: "home".parse().unwrap(),
            branch: "main".into(),
            address: "127.0.0.1:7946".parse().unwrap(),
            forge_url: "http://forge/\"quoted\".git".into(),
            repo: "fleet".into(),
            poll_secs: 7,
        }
    }

    // holds: SG-7
    #[test]
    fn what_is_laid_reads_back_and_belongs_to_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let made = lay(&spec(&state)).unwrap();
        let config = Config::read(&made.config).unwrap();
        assert_eq!(config.forge.url, "http://forge/\"quoted\".git");
        assert_eq!(config.state_dir, state.join("."));
        for name in [
            "keys.json",
            "passphrase",
            "webhook-secret",
            "meshplan.toml",
            "age-identity",
        ] {
            let mode = fs::metadata(state.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let passphrase = Passphrase::find(config.keys.passphrase_file.as_deref(), |_| None).unwrap();
        assert_eq!(
            KeyBundle::open(&config.keys.file, &passphrase)
                .unwrap()
                .public()
                .author,
            made.author.key
        );
        let identity = AgeIdentity::read(&state.join(IDENTITY_FILE)).unwrap();
        assert_eq!(identity.recipient().to_string(), made.recipient);
        assert!(matches!(lay(&spec(&state)), Err(FoundationError::There { .. })));
    }
}

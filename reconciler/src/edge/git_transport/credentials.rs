//! Who we are to a remote, and what of an address may be shown.

use std::fmt;

use data_encoding::BASE64;
use url::Url;
use zeroize::Zeroizing;

use super::Failure;

/// A user name and a password or token for one remote. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: String,
    password: Zeroizing<String>,
}

impl Credentials {
    /// A user and a password or token.
    #[must_use]
    pub fn new(user: &str, password: &str) -> Self {
        Self {
            user: user.to_owned(),
            password: Zeroizing::new(password.to_owned()),
        }
    }

    /// Reads a credentials file's text: `user:password`, or a token alone. Surrounding white space is no part of it.
    /// None when nothing is there.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        match text.split_once(':') {
            _ if text.is_empty() => None,
            Some((user, password)) => Some(Self::new(user, password)),
            // Forgejo and GitLab look at the password only, GitHub wants this very name.
            None => Some(Self::new("x-access-token", text)),
        }
    }

    /// The value of an `Authorization` header (RFC 7617).
    pub(super) fn header(&self) -> Zeroizing<String> {
        let pair = Zeroizing::new(format!("{}:{}", self.user, *self.password));
        Zeroizing::new(format!("Basic {}", BASE64.encode(pair.as_bytes())))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({}, ..)", self.user)
    }
}

/// An address as it may stand in messages and logs: without user and password.
#[must_use]
pub fn shown(url: &str) -> String {
    match Url::parse(url) {
        Ok(mut parsed) if parsed.has_host() && parsed.scheme() != "ssh" => {
            let clean = parsed.set_username("").is_ok() && parsed.set_password(None).is_ok();
            if clean { parsed.to_string() } else { url.to_owned() }
        }
        _ => url.to_owned(),
    }
}

/// Parts an address from the credentials that stand in it.
pub(super) fn split(text: &str) -> Result<(Url, Option<Credentials>), Failure> {
    let mut url =
        Url::parse(text).map_err(|e| Failure::Protocol(format!("{} is no address: {e}", shown(text))))?;
    let decode = |part: &str| {
        url::form_urlencoded::parse(format!("k={}", part.replace('+', "%2B").replace('&', "%26")).as_bytes())
            .next()
            .map(|(_, value)| value.into_owned())
            .unwrap_or_default()
    };
    let embedded = match (url.username(), url.password()) {
        ("", None) => None,
        (user, password) => Some(Credentials::new(&decode(user), &decode(password.unwrap_or("")))),
    };
    // Both fail only for addresses without a host, which HTTP does not have.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    Ok((url, embedded))
}

/// Whether credentials that were given for `asked` may go to `target`: the same host and port, or the same host by
/// TLS where plain HTTP was asked for.
pub(super) fn may_go(asked: &Url, target: &Url) -> bool {
    let upgraded = asked.scheme() == "http"
        && target.scheme() == "https"
        && asked.port().is_none()
        && target.port().is_none()
        && asked.host() == target.host();
    asked.origin() == target.origin() || upgraded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        assert_eq!(
            shown("https://ann:s3cret@forge.test/a/b.git"),
            "https://forge.test/a/b.git"
        );
        assert_eq!(shown("/srv/git/fleet.git"), "/srv/git/fleet.git");
    }

    #[test]
    fn a_credentials_file_is_a_pair_or_a_token() {
        assert_eq!(
            Credentials::parse("ann:a:b\n"),
            Some(Credentials::new("ann", "a:b"))
        );
        assert_eq!(
            Credentials::parse(" ghp_1 \n"),
            Some(Credentials::new("x-access-token", "ghp_1"))
        );
        assert_eq!(Credentials::parse("\n"), None);
        assert!(!format!("{:?}", Credentials::new("ann", "s3cret")).contains("s3cret"));
    }

    #[test]
    fn credentials_in_an_address_are_taken_out_of_it() {
        let (url, found) = split("http://ann:p%40ss+word@forge.test:3000/x").unwrap();
        assert_eq!(url.as_str(), "http://forge.test:3000/x");
        assert_eq!(found, Some(Credentials::new("ann", "p@ss+word")));
    }

    #[test]
    fn credentials_go_to_their_own_host_only() {
        let may = |from: &str, to: &str| may_go(&from.parse().unwrap(), &to.parse().unwrap());
        assert!(may("https://forge.test/a", "https://forge.test/b"));
        assert!(may("http://forge.test/a", "https://forge.test/a"));
        assert!(!may("https://forge.test/a", "http://forge.test/a"));
        assert!(!may("https://forge.test/a", "https://forge.test.evil.test/a"));
        assert!(!may("http://forge.test:3000/a", "http://forge.test:3001/a"));
    }
}

//! TLS around a session (LK-1): for the proxies and terminators that stand before a reconciler, and nothing else.
//!
//! The session inside proves the reconciler's key whatever this says; a certificate is checked all the same, so that
//! nobody between learns which machine talks, and so that a name that leads elsewhere is noticed. What the machine
//! trusts is read anew at each dial: an authority that was just installed counts without a restart.

use std::sync::Arc;

use jiff::Timestamp;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Why there is no TLS with what answers.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error(
        "this machine trusts no certificate authority, so it can check nobody's certificate{0}; install its list (the package `ca-certificates`), or name a file of authorities in SSL_CERT_FILE"
    )]
    NoAuthorities(String),
    #[error(
        "the certificate of `{host}` is signed by an authority that this machine does not trust; add that authority to the machine's list, name a file with it in SSL_CERT_FILE, or give the terminator a certificate of an authority that is trusted here"
    )]
    Authority { host: String },
    #[error(
        "the certificate that answers at `{host}` is for {presented}, not for `{host}`; dial a name that it is for (`addresses` in meshplan.toml), or give the terminator a certificate for `{host}`"
    )]
    Name { host: String, presented: String },
    #[error(
        "the certificate of `{host}` expired{at}; renew it at the terminator, or put this machine's clock right if it is wrong{now}"
    )]
    Expired { host: String, at: String, now: String },
    #[error(
        "the certificate of `{host}` is not valid yet{at}; put this machine's clock right if it is wrong{now}, or wait"
    )]
    Early { host: String, at: String, now: String },
    #[error("the certificate of `{host}` is no good: {why}; look at it with `openssl s_client -connect`")]
    Certificate { host: String, why: String },
    #[error(
        "what answers at `{host}` speaks no TLS ({why}); if nothing stands before the reconciler there, its address begins with `ws://`"
    )]
    NotTls { host: String, why: String },
    #[error("the TLS handshake with `{host}` failed: {why}")]
    Handshake { host: String, why: String },
}

/// Shakes hands with what answers as `host`, a name or an IP address, which its certificate must name.
pub(crate) async fn shake(stream: TcpStream, host: &str) -> Result<TlsStream<TcpStream>, TlsError> {
    let handshake = |why: String| TlsError::Handshake {
        host: host.to_owned(),
        why,
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|e| handshake(e.to_string()))?;
    let config = tokio::task::spawn_blocking(config)
        .await
        .map_err(|e| handshake(e.to_string()))??;
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|e| said(host, &e))
}

fn config() -> Result<ClientConfig, TlsError> {
    // The machine's list, or what SSL_CERT_FILE and SSL_CERT_DIR name.
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|e| format!(" ({e})"));
        return Err(TlsError::NoAuthorities(why.unwrap_or_default()));
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        // The provider has the versions that this very build names.
        .map_err(|e| TlsError::NoAuthorities(format!(" ({e})")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // A WebSocket begins as HTTP/1.1 (RFC 6455, section 1.3), also where the terminator would rather speak another.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// What a failed handshake means to whoever reads it at night.
fn said(host: &str, error: &std::io::Error) -> TlsError {
    let inner = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
    let host = host.to_owned();
    match inner {
        Some(rustls::Error::InvalidCertificate(why)) => certificate(host, why),
        Some(rustls::Error::InvalidMessage(why)) => TlsError::NotTls {
            host,
            why: format!("{why:?}"),
        },
        Some(other) => TlsError::Handshake {
            host,
            why: other.to_string(),
        },
        None => TlsError::Handshake {
            host,
            why: error.to_string(),
        },
    }
}

fn certificate(host: String, error: &CertificateError) -> TlsError {
    match error {
        CertificateError::UnknownIssuer => TlsError::Authority { host },
        CertificateError::NotValidForNameContext { presented, .. } => TlsError::Name {
            host,
            presented: names(presented),
        },
        CertificateError::NotValidForName => TlsError::Name {
            host,
            presented: names(&[]),
        },
        CertificateError::ExpiredContext { time, not_after } => TlsError::Expired {
            host,
            at: at(*not_after),
            now: now(*time),
        },
        CertificateError::Expired => TlsError::Expired {
            host,
            at: String::new(),
            now: String::new(),
        },
        CertificateError::NotValidYetContext { time, not_before } => TlsError::Early {
            host,
            at: at(*not_before),
            now: now(*time),
        },
        CertificateError::NotValidYet => TlsError::Early {
            host,
            at: String::new(),
            now: String::new(),
        },
        other => TlsError::Certificate {
            host,
            why: other.to_string(),
        },
    }
}

/// The names of a certificate as somebody would write them; the library gives `DnsName("a.example.org")`.
fn names(presented: &[String]) -> String {
    /// A certificate may have hundreds; a sentence has few.
    const SHOWN: usize = 4;
    let name = |text: &String| {
        let inner = text
            .split_once('(')
            .map_or(text.as_str(), |(_, rest)| rest.trim_end_matches(')'));
        format!("`{}`", inner.trim_matches('"'))
    };
    let mut shown: Vec<String> = presented.iter().take(SHOWN).map(name).collect();
    if presented.len() > SHOWN {
        shown.push(format!("{} more", presented.len() - SHOWN));
    }
    if shown.is_empty() {
        "another name".to_owned()
    } else {
        shown.join(", ")
    }
}

fn instant(time: UnixTime) -> Option<Timestamp> {
    i64::try_from(time.as_secs())
        .ok()
        .and_then(|secs| Timestamp::from_second(secs).ok())
}

fn at(time: UnixTime) -> String {
    instant(time).map_or_else(String::new, |t| format!(" ({t})"))
}

fn now(time: UnixTime) -> String {
    instant(time).map_or_else(String::new, |t| format!(" (it says {t})"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    // holds: LK-1
    #[test]
    fn each_fault_of_a_certificate_says_what_why_and_what_next() {
        let at = |secs| UnixTime::since_unix_epoch(Duration::from_secs(secs));
        let expected = ServerName::try_from("mesh.example.org").unwrap();
        let table = [
            (
                CertificateError::UnknownIssuer,
                ["an authority that this machine does not trust", "SSL_CERT_FILE"],
            ),
            (
                CertificateError::NotValidForNameContext {
                    expected,
                    presented: vec!["DnsName(\"a.example.org\")".into(), "IpAddress(10.0.0.7)".into()],
                },
                [
                    "is for `a.example.org`, `10.0.0.7`, not for `mesh.example.org`",
                    "`addresses`",
                ],
            ),
            (
                CertificateError::ExpiredContext {
                    time: at(1_800_000_000),
                    not_after: at(1_700_000_000),
                },
                [
                    "expired (2023-11-14T22:13:20Z)",
                    "clock right if it is wrong (it says 2027-01-15T08:00:00Z)",
                ],
            ),
            (
                CertificateError::NotValidYetContext {
                    time: at(0),
                    not_before: at(1_700_000_000),
                },
                [
                    "not valid yet (2023-11-14T22:13:20Z)",
                    "(it says 1970-01-01T00:00:00Z)",
                ],
            ),
            (CertificateError::BadSignature, ["no good", "openssl s_client"]),
        ];
        for (error, words) in table {
            let said = certificate("mesh.example.org".to_owned(), &error).to_string();
            for word in words {
                assert!(said.contains(word), "{error:?}: {said}");
            }
            assert!(said.contains("`mesh.example.org`"), "{said}");
        }
    }
}

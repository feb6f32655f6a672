//! The probe (HK-13): asks, changes nothing, feeds confirm and looks.
//!
//! It has no target, so there is nothing to plan, write, take back or remove; how it is asked is in
//! [`crate::edge::probe_run`]. Three answers, not two: "could not be asked" is not "no" (DL-13).

use meshplan_schemas::resource::{Ask, Probe};
use url::{Host, Url};

use super::service::unit_name;
use crate::pure::container_spec::is_name;

/// The longest time-out of a probe, in seconds.
pub const TIMEOUT_SECS: u32 = 300;

/// Where and what a plain http probe asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpTarget {
    /// Name or address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// As the `Host` header says it.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

/// Whether a probe can be asked at all.
///
/// # Errors
/// In words: what is wrong with it.
pub fn validate(probe: &Probe) -> Result<(), String> {
    if probe.timeout_secs == 0 || probe.timeout_secs > TIMEOUT_SECS {
        return Err(format!(
            "timeout_secs is 1 to {TIMEOUT_SECS}, this is {}",
            probe.timeout_secs
        ));
    }
    match &probe.ask {
        Ask::Http { url, status } => {
            http_target(url)?;
            if (100..=599).contains(status) {
                Ok(())
            } else {
                Err(format!("{status} is no HTTP status"))
            }
        }
        Ask::Tcp(address) => match address.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(()),
            _ => Err(format!("`{address}` is not `host:port`")),
        },
        Ask::Command(argv) => match argv.first() {
            Some(program) if !program.is_empty() => Ok(()),
            _ => Err("the command names no program".to_owned()),
        },
        Ask::Unit(unit) => unit_name(unit),
        Ask::Container(name) if is_name(name) => Ok(()),
        Ask::Container(name) => Err(format!("`{name}` is no name of a container")),
    }
}

/// Reads the address of an http probe.
///
/// # Errors
/// In words: it is no plain http address.
pub fn http_target(url: &str) -> Result<HttpTarget, String> {
    let parsed = Url::parse(url).map_err(|e| format!("`{url}` is no address: {e}"))?;
    if parsed.scheme() != "http" {
        return Err(format!(
            "`{url}` is not plain http; a probe asks on the machine itself, use a command for anything else"
        ));
    }
    let host = match parsed.host() {
        Some(Host::Ipv6(address)) => address.to_string(),
        Some(other) => other.to_string(),
        None => return Err(format!("`{url}` names no host")),
    };
    let port = parsed.port_or_known_default().unwrap_or(80);
    let name = parsed.host_str().unwrap_or_default();
    let path = match parsed.query() {
        Some(query) => format!("{}?{query}", parsed.path()),
        None => parsed.path().to_owned(),
    };
    Ok(HttpTarget {
        host,
        port,
        authority: format!("{name}:{port}"),
        path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(ask: Ask) -> Probe {
        Probe { ask, timeout_secs: 5 }
    }
    fn http(url: &str) -> Probe {
        probe(Ask::Http {
            url: url.into(),
            status: 200,
        })
    }

    // holds: HK-13
    #[test]
    fn what_cannot_be_asked_is_said_beforehand() {
        for bad in [
            http("https://127.0.0.1/"),
            http("127.0.0.1:80"),
            http("http://"),
            probe(Ask::Http {
                url: "http://a/".into(),
                status: 7,
            }),
            probe(Ask::Tcp("localhost".into())),
            probe(Ask::Tcp(":80".into())),
            probe(Ask::Tcp("localhost:70000".into())),
            probe(Ask::Command(vec![])),
            Probe {
                ask: Ask::Tcp("a:1".into()),
                timeout_secs: 0,
            },
        ] {
            assert!(validate(&bad).is_err(), "{bad:?} was taken");
        }
        for good in [
            http("http://127.0.0.1:8080/health?x=1"),
            probe(Ask::Tcp("[::1]:22".into())),
            probe(Ask::Command(vec!["true".into()])),
        ] {
            assert_eq!(validate(&good), Ok(()));
        }
    }

    #[test]
    fn an_address_is_parted_for_the_connection_and_for_the_header() {
        let target = http_target("http://[::1]:8080/a/b?c=d#e").unwrap();
        assert_eq!((target.host.as_str(), target.port), ("::1", 8080));
        assert_eq!(
            (target.authority.as_str(), target.path.as_str()),
            ("[::1]:8080", "/a/b?c=d")
        );
        assert_eq!(http_target("http://web").unwrap().path, "/");
    }
}

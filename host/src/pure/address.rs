//! Where a reconciler is dialled: the text of a token or a list, read once (LK-1).
//!
//! What stands between is only the carrier: `wss://` puts TLS around the session, which proves itself either way.

use url::Url;

/// An address that can be dialled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Whether TLS stands around the session.
    pub carrier: Carrier,
    /// A name or an IP address, that of version 6 without brackets, as resolvers and certificates have it.
    pub host: String,
    /// The port; 80 and 443 where none is written.
    pub port: u16,
}

/// What carries the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// `ws://`
    Plain,
    /// `wss://`
    Tls,
}

/// Not an address of a reconciler: what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an address of a reconciler ({0}); one is `ws://host:port/mesh` or `wss://host/mesh`")]
pub struct NoAddress(String);

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// [`NoAddress`]: no URL, of another scheme, or without a host.
    pub fn read(text: &str) -> Result<Self, NoAddress> {
        let url = Url::parse(text).map_err(|e| NoAddress(e.to_string()))?;
        let (carrier, port) = match url.scheme() {
            "ws" => (Carrier::Plain, 80),
            "wss" => (Carrier::Tls, 443),
            other => return Err(NoAddress(format!("the host dials no `{other}://`"))),
        };
        let host = url.host_str().ok_or_else(|| NoAddress("no host".to_owned()))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self {
            carrier,
            host,
            port: url.port().unwrap_or(port),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: LK-1
    #[test]
    fn an_address_says_carrier_host_and_port() {
        let table = [
            ("ws://10.0.0.7:7946/mesh", Carrier::Plain, "10.0.0.7", 7946),
            (
                "ws://mesh.example.org/mesh",
                Carrier::Plain,
                "mesh.example.org",
                80,
            ),
            (
                "wss://mesh.example.org/mesh",
                Carrier::Tls,
                "mesh.example.org",
                443,
            ),
            (
                "wss://MESH.example.org:8443/mesh",
                Carrier::Tls,
                "mesh.example.org",
                8443,
            ),
            ("wss://[2001:db8::1]/mesh", Carrier::Tls, "2001:db8::1", 443),
        ];
        for (text, carrier, host, port) in table {
            let host = host.to_owned();
            let address = Address { carrier, host, port };
            assert_eq!(Address::read(text), Ok(address), "{text}");
        }
    }

    // holds: LK-1
    #[test]
    fn what_is_no_address_is_refused_with_what_one_is() {
        for text in [
            "",
            "mesh.example.org",
            "https://mesh.example.org/mesh",
            "ws://",
            "wss://:443/mesh",
        ] {
            let said = Address::read(text).unwrap_err().to_string();
            assert!(said.contains("`wss://host/mesh`"), "{text}: {said}");
        }
    }
}

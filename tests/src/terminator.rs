//! A TLS terminator before a real reconciler, as a proxy would stand there: it takes TLS off and passes bytes on.
//!
//! Its authority is its own, so that nothing trusts it but what is told to. Which certificate it shows can be changed
//! while it stands.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Which certificate is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// For `localhost`, by the authority of [`Terminator::authorities`].
    Good,
    /// For another name.
    WrongName,
    /// Past its time.
    Expired,
    /// By an authority that nobody has heard of.
    Unknown,
}

/// The terminator. Dropped, it and what goes through it ends.
pub struct Terminator {
    address: SocketAddr,
    authorities: PathBuf,
    authority: CertifiedIssuer<'static, KeyPair>,
    config: Arc<Mutex<Arc<ServerConfig>>>,
    // Last: its threads end with it.
    _runtime: tokio::runtime::Runtime,
}

impl std::fmt::Debug for Terminator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Terminator({})", self.address)
    }
}

impl Terminator {
    /// Stands before `behind`, with the files of its authority in `folder`.
    ///
    /// # Errors
    /// No port, or a certificate cannot be made.
    pub fn before(behind: SocketAddr, folder: &Path, shown: Shown) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let authority = authority("the authority of this test")?;
        let authorities = folder.join("authorities.pem");
        fs::write(&authorities, authority.pem())?;
        let config = Arc::new(Mutex::new(config(&authority, shown)?));
        runtime.spawn(accept(listener, behind, Arc::clone(&config)));
        Ok(Self {
            address,
            authorities,
            authority,
            config,
            _runtime: runtime,
        })
    }

    /// Where the mesh is found through it.
    #[must_use]
    pub fn mesh(&self) -> String {
        format!("wss://localhost:{}/mesh", self.address.port())
    }

    /// The file of its authority, for `SSL_CERT_FILE`.
    #[must_use]
    pub fn authorities(&self) -> &Path {
        &self.authorities
    }

    /// Shows another certificate from the next connection on.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn show(&self, shown: Shown) -> Result<()> {
        let config = config(&self.authority, shown)?;
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }
}

async fn accept(listener: TcpListener, behind: SocketAddr, config: Arc<Mutex<Arc<ServerConfig>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let config = Arc::clone(&config.lock().unwrap_or_else(PoisonError::into_inner));
        tokio::spawn(async move {
            let mut inside = TlsAcceptor::from(config).accept(stream).await?;
            let mut outside = TcpStream::connect(behind).await?;
            copy_bidirectional(&mut inside, &mut outside).await
        });
    }
}

fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::new(Vec::new())?;
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name.to_owned());
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

fn config(trusted: &CertifiedIssuer<'static, KeyPair>, shown: Shown) -> Result<Arc<ServerConfig>> {
    let name = match shown {
        Shown::WrongName => "elsewhere.example.org",
        _ => "localhost",
    };
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    if shown == Shown::Expired {
        params.not_after = date_time_ymd(2020, 1, 1);
    }
    let key = KeyPair::generate()?;
    let stranger = authority("nobody has heard of it")?;
    let certificate = match shown {
        Shown::Unknown => params.signed_by(&key, &stranger)?,
        _ => params.signed_by(&key, trusted)?,
    };
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )
        .context("the key is the certificate's")?;
    Ok(Arc::new(config))
}

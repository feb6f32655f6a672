//! The doors: one TCP listener for forge, hosts and local readers, one unix socket for the command line.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use axum::Router;
use axum::serve::ListenerExt as _;
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;

use super::operator::{self, Counter};

/// A door that does not open.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; another program may have it, see `listen` in the configuration"
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The socket cannot be made.
    #[error("cannot make the socket {path}: {source}")]
    Socket {
        /// Where.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
}

/// Opens the TCP door.
///
/// # Errors
/// [`DoorError::Listen`].
pub async fn listen(address: SocketAddr) -> Result<TcpListener, DoorError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| DoorError::Listen { address, source })
}

/// Serves forge (`/hooks`), hosts (`/mesh`) and local readers on TCP until `stop`.
pub async fn serve_tcp(
    listener: TcpListener,
    hooks: Router,
    mesh: Router,
    counter: Counter,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let router = hooks.merge(mesh).merge(operator::local(operator::reads(counter)));
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    // An order is a few small writes: none of them waits for the other side's acknowledgement of the one before.
    let listener = listener.tap_io(|socket| {
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its small writes back");
        }
    });
    axum::serve(listener, service)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

/// Serves the command line on a unix socket until `stop`: mode 0660, so that its group may use it (OP-4).
///
/// # Errors
/// [`DoorError::Socket`].
pub fn open_socket(path: &Path) -> Result<UnixListener, DoorError> {
    let wrong = |source| DoorError::Socket {
        path: path.display().to_string(),
        source,
    };
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(wrong(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(wrong)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(wrong)?;
    Ok(listener)
}

/// Serves reads and words on the socket until `stop`.
pub async fn serve_socket(
    listener: UnixListener,
    counter: Counter,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let router = operator::reads(counter.clone()).merge(operator::words(counter));
    axum::serve(listener, router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

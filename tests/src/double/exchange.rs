//! What was asked of a double's API and what it answered, in whole, for those who hold both to the forge's own description.

use axum::body::{Body, to_bytes};
use axum::response::Response;
use serde_json::Value;

use super::{Double, Shared};

/// A request and its answer.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// How it was asked.
    pub method: String,
    /// The path below the API's address, as it was sent.
    pub path: String,
    /// The query, as it was sent.
    pub query: String,
    /// What was sent; null: nothing.
    pub sent: Value,
    /// The answer's number.
    pub status: u16,
    /// What was answered; null: nothing that is JSON.
    pub answered: Value,
}

impl Double {
    /// Keeps what is asked and answered from now on.
    pub fn keep_exchanges(&self) {
        self.locked().exchanges = Some(Vec::new());
    }

    /// What was asked and answered since the last time.
    #[must_use]
    pub fn take_exchanges(&self) -> Vec<Exchange> {
        self.locked()
            .exchanges
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }
}

impl Shared {
    /// Keeps an exchange with what is answered to it, where exchanges are kept.
    pub(super) async fn kept(&self, mut exchange: Exchange, response: Response) -> Response {
        if self.locked().exchanges.is_none() {
            return response;
        }
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, 64 << 20).await.unwrap_or_default();
        exchange.status = parts.status.as_u16();
        exchange.answered = serde_json::from_slice(&bytes).unwrap_or_default();
        if let Some(kept) = &mut self.locked().exchanges {
            kept.push(exchange);
        }
        Response::from_parts(parts, Body::from(bytes))
    }
}

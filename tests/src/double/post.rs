//! Sends a double's webhooks: at most once, and never again.

use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use meshplan_reconciler::edge::clock::Clock;
use sha2::Sha256;

use super::{Brand, Happening, Posting, Shared, State, forgejo, github, gitlab};

/// How late a late one is: later than a poll of the worlds.
const LATE: Duration = Duration::from_secs(3);

/// Tells every hook that has switched it on.
pub(super) fn tell(shared: &Arc<Shared>, state: &mut State, happening: &Happening<'_>) {
    let (times, after) = match state.posting {
        Posting::Once => (1, Duration::ZERO),
        Posting::Lost => (0, Duration::ZERO),
        Posting::Twice => (2, Duration::ZERO),
        Posting::Late => (1, LATE),
    };
    for hook in state.hooks.clone() {
        let posts = match state.brand {
            Brand::Forgejo => forgejo::hooks::posts(state, happening, &hook),
            Brand::Github => github::hooks::posts(state, happening, &hook),
            Brand::Gitlab => gitlab::hooks::posts(state, happening, &hook),
        };
        for post in posts.iter().filter(|post| hook.events.contains(post.switch)) {
            for _ in 0..times {
                state.posted += 1;
                let request = shared
                    .client
                    .post(&hook.url)
                    .header("Content-Type", "application/json");
                let request = post
                    .headers
                    .iter()
                    .fold(request, |request, (name, value)| request.header(name, value))
                    .body(post.text.clone());
                // Marked as delivered before it goes out: whatever comes of it, it is never sent again.
                shared.runtime.spawn(async move {
                    tokio::time::sleep(after).await;
                    request.send().await
                });
            }
        }
    }
}

/// The time and the signature of Standard Webhooks; none where the secret is no signing token.
pub(super) fn standard(secret: &str, id: &str, text: &str) -> Option<(String, String)> {
    let key = data_encoding::BASE64
        .decode(secret.strip_prefix("whsec_")?.as_bytes())
        .ok()?;
    let at = Clock::default().now().as_second().to_string();
    let mac = Hmac::<Sha256>::new_from_slice(&key).ok()?;
    let mac = mac.chain_update(format!("{id}.{at}.{text}"));
    let tag = data_encoding::BASE64.encode(&mac.finalize().into_bytes());
    Some((at, format!("v1,{tag}")))
}

/// HMAC-SHA256, in lower-case hexadecimal.
pub(super) fn mac(secret: &[u8], text: &[u8]) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(secret);
    let tag = mac.map(|mac| mac.chain_update(text).finalize().into_bytes());
    tag.map(|tag| data_encoding::HEXLOWER.encode(&tag))
        .unwrap_or_default()
}

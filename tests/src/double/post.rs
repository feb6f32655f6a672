//! Sends a double's webhooks: at most once, and never again.

use std::sync::Arc;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::{Brand, Happening, Posting, Shared, State, forgejo, github};

/// Tells every hook that has switched it on.
pub(super) fn tell(shared: &Arc<Shared>, state: &mut State, happening: &Happening<'_>) {
    let times = match state.posting {
        Posting::Once => 1,
        Posting::Lost => 0,
        Posting::Twice => 2,
    };
    for hook in state.hooks.clone() {
        let posts = match state.brand {
            Brand::Forgejo => forgejo::hooks::posts(state, happening, &hook),
            Brand::Github => github::hooks::posts(state, happening, &hook),
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
                shared.runtime.spawn(async move { request.send().await });
            }
        }
    }
}

/// HMAC-SHA256, in lower-case hexadecimal.
pub(super) fn mac(secret: &[u8], text: &[u8]) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(secret);
    let tag = mac.map(|mac| mac.chain_update(text).finalize().into_bytes());
    tag.map(|tag| data_encoding::HEXLOWER.encode(&tag))
        .unwrap_or_default()
}

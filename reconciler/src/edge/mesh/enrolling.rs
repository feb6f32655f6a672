//! One enrolment session (LK-3): it can ask for admission and poll for it, and nothing else.

use std::net::IpAddr;

use meshplan_schemas::session::{self, Request};
use meshplan_schemas::wire::{FromEnrolling, ToEnrolling};
use tokio::time::Instant;

use super::carrier::Carrier;
use super::{Mesh, close, locked};

impl Mesh {
    pub(super) async fn enrolling(&self, mut carrier: Carrier, request: Request, address: IpAddr) {
        let Ok(_permit) = self.shared.enrolments.try_acquire() else {
            return carrier.close(close::LATER, "too many at once").await;
        };
        let late = locked(&self.shared.attempts).count(address, Instant::now());
        let Ok((answer, mut session)) = request.accept() else {
            return;
        };
        if carrier.send(vec![answer]).await.is_err() {
            return;
        }
        let opened = Instant::now();
        let talk = async {
            while let Some(frame) = carrier.next().await {
                let said = match session.receive(&frame) {
                    Ok(None) => continue,
                    Ok(Some(message)) => session::decode::<FromEnrolling>(&message),
                    Err(_) => return,
                };
                let busy = match &said {
                    Ok(FromEnrolling::Unknown) => continue,
                    Ok(FromEnrolling::Enrol { .. }) => late,
                    Ok(FromEnrolling::Poll { .. }) => None,
                    Err(_) => return,
                };
                let answer = match (busy, said) {
                    (Some(after), _) => ToEnrolling::Busy {
                        retry_after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
                    },
                    (None, Ok(said)) => self.shared.desk.enrol(said).await,
                    (None, Err(_)) => return,
                };
                let over = matches!(answer, ToEnrolling::Busy { .. } | ToEnrolling::Refused);
                let frames = session::encode(&answer)
                    .and_then(|bytes| session.send(&bytes, opened.elapsed().as_secs()));
                let Ok(frames) = frames else { return };
                if carrier.send(frames).await.is_err() || over {
                    return;
                }
                // Whoever asks in a hurry waits here, on its own time.
                tokio::time::sleep(self.shared.limits.enrolment_pace).await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(self.shared.limits.enrolment, talk) => {}
            () = self.shared.closing.cancelled() => {}
        }
    }
}

//! Who signs: the key bundle in this process, or a command outside (SG-7).
//!
//! Both are [`Signer`]s. A signature that a command returns is checked before it is used: a wrong one would be
//! stored, published, and refused by every host.

use std::process::Stdio;
use std::time::Duration;

use data_encoding::BASE64;
use meshplan_schemas::envelope::{SignError, Signer};
use meshplan_schemas::ident::KeyId;
use meshplan_schemas::key::SigningKey;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub use meshplan_schemas::envelope::SoftSigner;

/// The most that a signing command may print.
const OUTPUT_BYTES: u64 = 4096;

/// Keeps this process out of core dumps and away from debuggers of the same user: it holds keys (SG-7).
///
/// # Errors
/// The kernel refused; the caller says so and goes on, as a container may forbid it.
pub fn harden() -> std::io::Result<()> {
    setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            maximum: Some(0),
        },
    )?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// A command that signs: the bytes on its standard input, the 64-byte signature, raw or in base64, on its output.
#[derive(Debug, Clone)]
pub struct CommandSigner {
    id: KeyId,
    public: SigningKey,
    argv: Vec<String>,
    within: Duration,
}

impl CommandSigner {
    /// A signer for the key `public`, called `id`; `argv` is run without a shell and ended after `within`.
    #[must_use]
    pub fn new(id: KeyId, public: SigningKey, argv: Vec<String>, within: Duration) -> Self {
        Self {
            id,
            public,
            argv,
            within,
        }
    }

    fn name(&self) -> &str {
        self.argv.first().map_or("(empty)", String::as_str)
    }

    async fn run(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let failed =
            |what: &str, e: &dyn std::fmt::Display| SignError(format!("`{}` {what}: {e}", self.name()));
        let (program, args) = self
            .argv
            .split_first()
            .ok_or_else(|| SignError("the signing command is empty".to_owned()))?;
        let mut child = tokio::process::Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| failed("cannot be started", &e))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A command that does not read to the end shows itself by its answer.
                let _ = stdin.write_all(message).await;
            }
        };
        let mut output = Vec::new();
        let read = async {
            match stdout {
                Some(stdout) => stdout.take(OUTPUT_BYTES).read_to_end(&mut output).await,
                None => Ok(0),
            }
        };
        let ((), read) = tokio::join!(feed, read);
        read.map_err(|e| failed("cannot be heard", &e))?;
        let status = child
            .wait()
            .await
            .map_err(|e| failed("cannot be waited for", &e))?;
        if !status.success() {
            return Err(SignError(format!("`{}` ended with {status}", self.name())));
        }
        Ok(output)
    }
}

/// Raw bytes, or base64 with white space around it.
fn signature(output: &[u8]) -> Option<Vec<u8>> {
    if output.len() == 64 {
        return Some(output.to_vec());
    }
    BASE64
        .decode(output.trim_ascii())
        .ok()
        .filter(|bytes| bytes.len() == 64)
}

impl Signer for CommandSigner {
    fn key_id(&self) -> KeyId {
        self.id.clone()
    }
    fn public(&self) -> SigningKey {
        self.public
    }
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        // A thread with a runtime of its own, because the caller may itself stand in one.
        let work = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|e| SignError(e.to_string()))?;
            runtime.block_on(async {
                tokio::time::timeout(self.within, self.run(message))
                    .await
                    .map_err(|_| {
                        SignError(format!(
                            "`{}` did not answer within {} s",
                            self.name(),
                            self.within.as_secs()
                        ))
                    })?
            })
        };
        let output = std::thread::scope(|scope| scope.spawn(work).join()).map_err(|_| {
            SignError("the thread that waits for the signing command ended early".to_owned())
        })??;
        let bytes = signature(&output).ok_or_else(|| {
            SignError(format!(
                "`{}` printed {} bytes; expected a signature of 64, raw or in base64",
                self.name(),
                output.len()
            ))
        })?;
        let valid = ed25519_dalek::VerifyingKey::from_bytes(self.public.as_bytes())
            .ok()
            .zip(ed25519_dalek::Signature::from_slice(&bytes).ok())
            .is_some_and(|(key, signature)| key.verify_strict(message, &signature).is_ok());
        if valid {
            Ok(bytes)
        } else {
            Err(SignError(format!(
                "what `{}` printed is no signature by the key of `{}`; does it sign with another key, or a hash of its input?",
                self.name(),
                self.id
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soft() -> SoftSigner {
        SoftSigner::new(None, &[3; 32]).unwrap()
    }
    fn command(script: &str) -> CommandSigner {
        let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
        CommandSigner::new(KeyId("kms".into()), soft().public(), argv, Duration::from_secs(5))
    }

    // holds: SG-7
    #[test]
    fn a_command_signs_raw_or_in_base64() {
        let signature = soft().sign(b"message").unwrap();
        let text = BASE64.encode(&signature);
        let base64 = command(&format!("cat >/dev/null; echo {text}"));
        assert_eq!(base64.sign(b"message").unwrap(), signature);
        let raw = command(&format!("cat >/dev/null; printf %s {text} | base64 -d"));
        assert_eq!(raw.sign(b"message").unwrap(), signature);
    }

    // holds: SG-7
    #[test]
    fn a_command_that_fails_hangs_or_signs_something_else_is_refused_with_the_reason() {
        let said = |script: &str| command(script).sign(b"message").unwrap_err().to_string();
        assert!(said("exit 3").contains("exit status: 3"));
        assert!(said("echo no").contains("expected a signature of 64"));
        let other = BASE64.encode(&soft().sign(b"another message").unwrap());
        assert!(said(&format!("echo {other}")).contains("no signature by the key"));
        let mut hangs = command("exec sleep 600");
        hangs.within = Duration::from_millis(200);
        assert!(
            hangs
                .sign(b"message")
                .unwrap_err()
                .to_string()
                .contains("did not answer")
        );
    }

    #[tokio::test]
    async fn a_command_signs_inside_a_runtime_too() {
        let text = BASE64.encode(&soft().sign(b"message").unwrap());
        assert!(
            command(&format!("cat >/dev/null; echo {text}"))
                .sign(b"message")
                .is_ok()
        );
    }

    // holds: SG-7
    #[test]
    fn a_hardened_process_leaves_no_core() {
        harden().unwrap();
        assert_eq!(rustix::process::getrlimit(Resource::Core).maximum, Some(0));
        assert_eq!(
            rustix::process::dumpable_behavior().unwrap(),
            DumpableBehavior::NotDumpable
        );
    }
}

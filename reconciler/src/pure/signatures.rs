//! Signatures of commits, where the fleet asks for them (`[trust] signed_commits`): what a signature proves, and whether the
//! commits that a delivery brings are signed by whom the tree before them trusts.
//!
//! It stands alone because reading a signature and trusting its key are two things: a signature says which key signed, whoever
//! that is; trust comes from the tree that was let through before, never from the commits that ask for it.
//!
//! SSH signatures are read as OpenSSH's PROTOCOL.sshsig and PROTOCOL.u2f say; git signs under the namespace `git`
//! (git-config(1), `gpg.format = ssh`).

use std::collections::BTreeSet;

use data_encoding::BASE64;
use meshplan_schemas::document::fleet::{CommitSigners, SignedCommits};
use meshplan_schemas::document::signers::Signer;
use meshplan_schemas::ident::CommitId;
use ring::signature as ring;
use sha2::{Digest as _, Sha256, Sha512};

/// The namespace that git signs under.
const NAMESPACE: &str = "git";
const BEGIN: &str = "-----BEGIN SSH SIGNATURE-----";
const END: &str = "-----END SSH SIGNATURE-----";
const MAGIC: &[u8] = b"SSHSIG";

/// What a delivery brings, oldest first, its own commit last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Brought {
    /// The commits that are not behind the one before.
    pub commits: Vec<BroughtCommit>,
    /// There are more than were looked at.
    pub more: bool,
}

/// A commit and what its signature proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BroughtCommit {
    /// Its id.
    pub id: CommitId,
    /// When its committer says that it was made, unix seconds.
    pub at: i64,
    /// What its signature proves.
    pub proof: Proof,
    /// It is a merge, and has nothing that its parents do not give.
    pub clean_merge: bool,
}

/// What a signature proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// There is none.
    Unsigned,
    /// Whoever has this key signed these bytes.
    Key {
        /// The key's type.
        kind: String,
        /// Its bytes, as in a list of signers.
        key: Vec<u8>,
    },
    /// Nothing, because.
    Nothing(String),
}

/// What the tree before asks of the commits that a delivery brings: by whom they are signed; or why they are not.
///
/// # Errors
/// Why not, in a sentence.
pub fn judge(trusted: &CommitSigners, brought: &Brought) -> Result<BTreeSet<String>, String> {
    let of = |commit: &BroughtCommit| by_whom(&trusted.signers, commit);
    match trusted.asks {
        SignedCommits::Off => Ok(BTreeSet::new()),
        SignedCommits::Tip => match brought.commits.last() {
            Some(tip) => of(tip).map(|who| BTreeSet::from([who])),
            None => Err("its commit cannot be looked at".to_owned()),
        },
        SignedCommits::Every if brought.more => Err(format!(
            "it brings more than {} commits, and every one must be signed",
            brought.commits.len()
        )),
        SignedCommits::Every => {
            let signed = |commit: &&BroughtCommit| !(commit.clean_merge && commit.proof == Proof::Unsigned);
            brought.commits.iter().filter(signed).map(of).collect()
        }
    }
}

fn by_whom(signers: &[Signer], commit: &BroughtCommit) -> Result<String, String> {
    let id = commit.id.short();
    match &commit.proof {
        Proof::Unsigned => Err(format!("{id} is not signed")),
        Proof::Nothing(why) => Err(format!("the signature of {id} proves nothing: {why}")),
        Proof::Key { kind, key } => {
            let signer = signers.iter().find(|signer| {
                signer.kind == *kind && signer.key == *key && signer.limits.allow(NAMESPACE, commit.at)
            });
            signer.map(|signer| signer.principals.clone()).ok_or_else(|| {
                let print = BASE64.encode(&Sha256::digest(key));
                format!(
                    "{id} is signed by the key SHA256:{}, which the tree before does not trust",
                    print.trim_end_matches('=')
                )
            })
        }
    }
}

/// What a signature in its armor proves about these bytes.
#[must_use]
pub fn proof(armored: &[u8], payload: &[u8]) -> Proof {
    match prove(armored, payload) {
        Ok((kind, key)) => Proof::Key { kind, key },
        Err(why) => Proof::Nothing(why),
    }
}

fn prove(armored: &[u8], payload: &[u8]) -> Result<(String, Vec<u8>), String> {
    let text = std::str::from_utf8(armored).map_err(|_| "it is no text")?;
    if text.contains("-----BEGIN PGP") {
        return Err("it is one of OpenPGP, and those of SSH alone are verified".to_owned());
    }
    let body = text
        .trim()
        .strip_prefix(BEGIN)
        .and_then(|rest| rest.strip_suffix(END))
        .ok_or("it is none of SSH")?;
    let body: String = body.split_whitespace().collect();
    let blob = BASE64
        .decode(body.as_bytes())
        .map_err(|_| "its body is not base64")?;
    let mut blob = Bytes(&blob);
    if blob.take(MAGIC.len())? != MAGIC || blob.number()? != 1 {
        return Err("it is of a version that is not known".to_owned());
    }
    let key = blob.text()?;
    let namespace = blob.text()?;
    let reserved = blob.text()?;
    let hash = blob.text()?;
    let signature = blob.text()?;
    blob.end()?;
    if namespace != NAMESPACE.as_bytes() {
        return Err("it was made for something else than a commit".to_owned());
    }
    let digest = match hash {
        b"sha256" => Sha256::digest(payload).to_vec(),
        b"sha512" => Sha512::digest(payload).to_vec(),
        _ => return Err("its hash is neither sha256 nor sha512".to_owned()),
    };
    let mut signed = MAGIC.to_vec();
    for part in [namespace, reserved, hash, &digest] {
        // What came out of the blob, or of a hash, is never so long.
        signed.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
        signed.extend(part);
    }
    let kind = verify(key, signature, &signed)?;
    Ok((kind, key.to_vec()))
}

/// Verifies; the type of the key.
fn verify(key: &[u8], signature: &[u8], signed: &[u8]) -> Result<String, String> {
    let (mut key, mut signature) = (Bytes(key), Bytes(signature));
    let kind = std::str::from_utf8(key.text()?).map_err(|_| "its key is of no known type")?;
    let made = signature.text()?;
    let of = |expected: &[u8]| match made == expected {
        true => Ok(()),
        false => Err("it is of another type than its key".to_owned()),
    };
    let wrong = || "it does not fit the commit".to_owned();
    match kind {
        "ssh-ed25519" => {
            of(b"ssh-ed25519")?;
            let (point, value) = (key.text()?, signature.text()?);
            signature.end()?;
            ed25519(point, value, signed).ok_or_else(wrong)?;
        }
        "ecdsa-sha2-nistp256" | "ecdsa-sha2-nistp384" => {
            of(kind.as_bytes())?;
            let _curve = key.text()?;
            let (point, value) = (key.text()?, signature.text()?);
            signature.end()?;
            let (algorithm, size): (&ring::EcdsaVerificationAlgorithm, _) = match kind {
                "ecdsa-sha2-nistp256" => (&ring::ECDSA_P256_SHA256_FIXED, 32),
                _ => (&ring::ECDSA_P384_SHA384_FIXED, 48),
            };
            ecdsa(algorithm, size, (point, value), signed)?.ok_or_else(wrong)?;
        }
        "ssh-rsa" => {
            let (e, n) = (key.text()?, key.text()?);
            let algorithm = match made {
                b"rsa-sha2-256" => &ring::RSA_PKCS1_2048_8192_SHA256,
                b"rsa-sha2-512" => &ring::RSA_PKCS1_2048_8192_SHA512,
                _ => return Err("it is made with a hash that is too weak".to_owned()),
            };
            let value = signature.text()?;
            signature.end()?;
            let key = ring::RsaPublicKeyComponents {
                n: unsigned(n),
                e: unsigned(e),
            };
            key.verify(algorithm, signed, value).map_err(|_| wrong())?;
        }
        "sk-ssh-ed25519@openssh.com" => {
            of(kind.as_bytes())?;
            let (point, application) = (key.text()?, key.text()?);
            let value = signature.text()?;
            let signed = by_a_token(application, &mut signature, signed)?;
            ed25519(point, value, &signed).ok_or_else(wrong)?;
        }
        "sk-ecdsa-sha2-nistp256@openssh.com" => {
            of(kind.as_bytes())?;
            let _curve = key.text()?;
            let (point, application) = (key.text()?, key.text()?);
            let value = signature.text()?;
            let signed = by_a_token(application, &mut signature, signed)?;
            ecdsa(&ring::ECDSA_P256_SHA256_FIXED, 32, (point, value), &signed)?.ok_or_else(wrong)?;
        }
        other => {
            return Err(format!(
                "signatures of {} keys are not verified",
                other.escape_debug()
            ));
        }
    }
    key.end()?;
    Ok(kind.to_owned())
}

fn ed25519(point: &[u8], value: &[u8], signed: &[u8]) -> Option<()> {
    let key = ed25519_dalek::VerifyingKey::from_bytes(point.try_into().ok()?).ok()?;
    let value = ed25519_dalek::Signature::from_bytes(value.try_into().ok()?);
    key.verify_strict(signed, &value).ok()
}

/// A signature of two numbers, which ring takes at a fixed size; none where it does not fit.
fn ecdsa(
    algorithm: &'static ring::EcdsaVerificationAlgorithm,
    size: usize,
    (point, value): (&[u8], &[u8]),
    signed: &[u8],
) -> Result<Option<()>, String> {
    let mut value = Bytes(value);
    let mut fixed = Vec::with_capacity(2 * size);
    for _ in 0..2 {
        let number = unsigned(value.text()?);
        let Some(zeros) = size.checked_sub(number.len()) else {
            return Ok(None);
        };
        fixed.resize(fixed.len() + zeros, 0);
        fixed.extend(number);
    }
    value.end()?;
    let key = ring::UnparsedPublicKey::new(algorithm, point);
    Ok(key.verify(signed, &fixed).ok())
}

/// What a token has signed in place of these bytes (PROTOCOL.u2f): somebody must have touched it.
fn by_a_token(application: &[u8], signature: &mut Bytes<'_>, signed: &[u8]) -> Result<Vec<u8>, String> {
    const TOUCHED: u8 = 1;
    let flags = signature.take(1)?;
    let counter = signature.take(4)?;
    signature.end()?;
    if flags.first().is_none_or(|flags| flags & TOUCHED == 0) {
        return Err("nobody touched the token that made it".to_owned());
    }
    let digests = (Sha256::digest(application), Sha256::digest(signed));
    Ok([&digests.0, flags, counter, &digests.1].concat())
}

/// A number without the zeros before it.
fn unsigned(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}

/// Bytes that are read from the front, as SSH lays them out (RFC 4251, section 5).
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("it is cut off")?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, String> {
        let bytes = self.take(4)?;
        bytes
            .try_into()
            .map(u32::from_be_bytes)
            .map_err(|_| "it is cut off".to_owned())
    }

    fn text(&mut self) -> Result<&'a [u8], String> {
        let length = self.number()?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn end(&self) -> Result<(), String> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err("something stands behind its end".to_owned())
        }
    }
}

#[cfg(test)]
mod tests;

//! How the program ends: the only place where exit numbers live.

use crate::edge::agent::RunError;
use crate::edge::disk::LockError;
use crate::edge::enrol::EnrolError;

/// What a command's end means to whoever called it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, or yes.
    Done = 0,
    /// No: the answer to what was asked, such as a machine that is not as declared.
    No = 1,
    /// The command line is not as it must be.
    Usage = 2,
    /// Nobody answered.
    Unreachable = 3,
    /// Somebody answered, or was judged, and it was refused.
    Refused = 4,
    /// A fault of this program, or of the machine under it.
    Internal = 5,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<&RunError> for Exit {
    fn from(error: &RunError) -> Self {
        match error {
            RunError::NotEnrolled | RunError::Lock(LockError::Busy(_)) => Self::No,
            RunError::Path(_) => Self::Usage,
            RunError::Membership(_)
            | RunError::Identity(_)
            | RunError::Lock(LockError::Io { .. })
            | RunError::Folder { .. }
            | RunError::State(_)
            | RunError::Machine(_)
            | RunError::Broke(_)
            | RunError::System { .. } => Self::Internal,
        }
    }
}

impl From<&EnrolError> for Exit {
    fn from(error: &EnrolError) -> Self {
        match error {
            EnrolError::Already { .. } => Self::No,
            EnrolError::Kind(_) | EnrolError::Pin(_) | EnrolError::Refused | EnrolError::Admission(_) => {
                Self::Refused
            }
            EnrolError::Identity(_)
            | EnrolError::Membership(_)
            | EnrolError::Write { .. }
            | EnrolError::Session(_) => Self::Internal,
        }
    }
}

//! How the program ends: the only place where exit numbers live.

/// What a command's end means to whoever called it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, or yes.
    Done = 0,
    /// No: the answer to what was asked, such as a tree that does not check.
    No = 1,
    /// The command line, or a file that it names, is not as it must be.
    Usage = 2,
    /// Nobody answered.
    Unreachable = 3,
    /// Somebody answered, and refused.
    Refused = 4,
    /// A fault of this program, or of the machine under it.
    Internal = 5,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

//! Everything git, against the real git over real HTTP: each test has a server and repositories of its own.

#[cfg(test)]
mod git {
    pub(crate) mod cli;
    pub(crate) mod components;
    pub(crate) mod mirror;
    pub(crate) mod notes;
    pub(crate) mod race;
    pub(crate) mod reverts;
    pub(crate) mod signatures;
    pub(crate) mod transport;
    pub(crate) mod trees;
    pub(crate) mod world;
}

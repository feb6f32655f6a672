//! Whole-program tests, and the tests of the house itself.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`booted`] | a machine that a test boots |
//! | [`house`] | the rules that no compiler knows: arrows between rooms, names, requirement ids, documents |
//! | [`world`] | the real programs in a folder of their own, with a forge beside them |
//! | [`tree`] | the fleet repository that the worlds start from |
//! | [`forge`] | a bare repository, served by real git over HTTP |
//! | [`component`] | a component beside a fleet |
//! | [`double`] | doubles of forges: API, webhooks, real git behind it |
//! | [`ground`] | the real service with a fleet of any size, for benches |
//! | [`measure`] | what benches measure by |
//! | [`program`] | a started program: its output in a file, ended when dropped |
//! | [`site`] | a world whose first node is a booted machine |
//! | [`skip`] | what a machine lacks |
//! | [`story`] | what database and note tell of a delivery |
//! | [`terminator`] | a TLS terminator before the reconciler |

pub mod booted;
pub mod component;
pub mod double;
pub mod forge;
pub mod ground;
pub mod house;
pub mod measure;
pub mod npm;
pub mod program;
pub mod site;
pub mod skip;
pub mod story;
pub mod terminator;
pub mod tree;
pub mod world;

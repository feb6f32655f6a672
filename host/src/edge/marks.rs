//! The highest numbers verified, in two alternating files, synced before anything acts on an order (SG-5).
//!
//! It stands alone because a lost number is a door for old orders. One file lost or damaged: the other is at most one
//! write behind, and every order is judged again. Both lost is an answer of its own, never "no number yet".

use std::marker::PhantomData;

use meshplan_schemas::report::Marks;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::checked::{self, Found, path};
use super::disk::{Disk, DiskError};
use crate::pure::orders::Anchor;
use crate::pure::target_path::TargetPath;

/// The marks, and whom the host believes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarksFile {
    /// The highest numbers.
    pub marks: Marks,
    /// See [`Anchor`]; none before the first list.
    pub anchor: Option<Anchor>,
}

/// The pair of files that holds the marks.
#[must_use]
pub fn marks() -> Pair<MarksFile> {
    Pair::new("/marks.a", "/marks.b")
}

/// The pair of files that holds the counter of reports: a number below which all are used up.
#[must_use]
pub fn counter() -> Pair<u64> {
    Pair::new("/counter.a", "/counter.b")
}

/// One value in two files, written in turn.
#[derive(Debug)]
pub struct Pair<T> {
    files: [TargetPath; 2],
    generation: u64,
    value: PhantomData<T>,
}

#[derive(Serialize, Deserialize)]
struct Content<T> {
    generation: u64,
    value: T,
}

/// What a pair holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held<T> {
    /// The newest value that is whole; with words about the other file when it is damaged.
    Value(T, Option<String>),
    /// Neither file was ever written.
    Never,
    /// Nothing whole is left.
    Lost(String),
}

impl<T: Serialize + DeserializeOwned + Clone> Pair<T> {
    fn new(a: &str, b: &str) -> Self {
        Self {
            files: [path(a), path(b)],
            generation: 0,
            value: PhantomData,
        }
    }

    /// Reads both.
    pub fn read(&mut self, disk: &dyn Disk) -> Held<T> {
        let mut newest: Option<Content<T>> = None;
        let mut broken = Vec::new();
        for file in &self.files {
            let text = match checked::read(disk, file) {
                Found::Missing => continue,
                Found::Broken(why) => {
                    broken.push(why);
                    continue;
                }
                Found::Whole(text) => text,
            };
            match serde_json::from_str::<Content<T>>(&text) {
                Err(e) => broken.push(format!("{file}: {e}")),
                Ok(content) => {
                    if newest.as_ref().is_none_or(|n| content.generation > n.generation) {
                        newest = Some(content);
                    }
                }
            }
        }
        let words = (!broken.is_empty()).then(|| broken.join("; "));
        match (newest, words) {
            (Some(content), words) => {
                self.generation = content.generation;
                Held::Value(content.value, words)
            }
            (None, Some(words)) => Held::Lost(words),
            (None, None) => Held::Never,
        }
    }

    /// Writes the value over the older of the two, synced. Once nothing was held both are written.
    ///
    /// # Errors
    /// [`DiskError`]; the other file still holds the value before.
    pub fn write(&mut self, disk: &dyn Disk, value: &T) -> Result<(), DiskError> {
        let first = self.generation == 0;
        for _ in 0..if first { 2 } else { 1 } {
            let generation = self.generation + 1;
            let content = Content {
                generation,
                value: value.clone(),
            };
            let text = serde_json::to_string(&content).unwrap_or_default();
            let file = usize::from(generation.is_multiple_of(2));
            // One that failed is not counted: the next try is over the older file again.
            checked::write(disk, &self.files[file], &text)?;
            self.generation = generation;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::disk::SimDisk;
    use super::*;

    fn read(disk: &SimDisk) -> Held<u64> {
        counter().read(disk)
    }
    fn written(values: &[u64]) -> SimDisk {
        let disk = SimDisk::new();
        let mut pair = counter();
        assert_eq!(pair.read(&disk), Held::Never);
        for value in values {
            pair.write(&disk, value).unwrap();
        }
        disk
    }

    // holds: SG-5
    #[test]
    fn a_cut_at_any_act_of_a_write_leaves_the_new_number_or_the_one_before() {
        let disk = written(&[7, 8]);
        disk.begin();
        let mut pair = counter();
        pair.read(&disk);
        pair.write(&disk, &9).unwrap();
        for acts in 0..=disk.acts() {
            for cut in disk.cuts_after(acts) {
                match read(&cut) {
                    Held::Value(value, _) => assert!(value == 8 || value == 9, "{value} after {acts} acts"),
                    other => panic!("{other:?} after {acts} acts"),
                }
            }
        }
        assert_eq!(read(&disk), Held::Value(9, None));
    }

    // holds: SG-5, HR-15
    #[test]
    fn the_museum_of_damage() {
        type Damage = fn(&SimDisk, &TargetPath);
        let damages: [(&str, Damage); 4] = [
            ("cut to nothing", |disk, file| disk.plant(file, b"", 0o600)),
            ("noise", |disk, file| disk.plant(file, &[0xa5; 300], 0o600)),
            ("cut in the middle", |disk, file| {
                let whole = disk.read(file).unwrap();
                disk.plant(file, &whole[..whole.len() / 2], 0o600);
            }),
            ("another's text, whole", |disk, file| {
                checked::write(disk, file, "{}").unwrap();
            }),
        ];
        let files = [path("/counter.a"), path("/counter.b")];
        for (name, damage) in damages {
            for (one, file) in files.iter().enumerate() {
                let disk = written(&[7, 8, 9]);
                damage(&disk, file);
                let Held::Value(value, Some(words)) = read(&disk) else {
                    panic!("{name} in {file}: {:?}", read(&disk))
                };
                assert!(value == 9 || value == 8, "{name}: {value}");
                assert!(words.contains(file.as_str()), "{words}");
                damage(&disk, &files[1 - one]);
                assert!(matches!(read(&disk), Held::Lost(_)), "{name} in both");
            }
        }
    }

    #[test]
    fn a_file_that_is_gone_leaves_the_other() {
        let disk = written(&[7]);
        disk.unlink(&path("/counter.a")).unwrap();
        assert_eq!(read(&disk), Held::Value(7, None));
    }
}

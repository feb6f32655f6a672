//! What runs beside the fleet and is nobody's here, looked at and never touched (HR-9).

use std::collections::BTreeSet;

use meshplan_schemas::declaration::Declaration;

use super::Machine;
use crate::edge::disk::{Disk, DiskError, Sort as FileSort};
use crate::kinds;
use crate::kinds::container::units_of;
use crate::pure::container_spec::former_of;
use crate::pure::strays::{self, Container, FOLDERS};
use crate::pure::target::{Sort, Target};
use crate::pure::target_path::TargetPath;

impl Machine {
    /// Containers and units that the host neither wrote nor holds, and that this declaration does not name.
    #[must_use]
    pub fn strays(&self, declaration: &Declaration) -> Vec<String> {
        let ours = self.ours(declaration);
        let engine = self.setup.system.engine();
        // A machine without an engine has no containers; one that a person stopped is not started to be asked for strays.
        let containers = if engine.is_there() && !self.is_engine_at_rest() {
            engine.containers().map(|all| {
                let each = all.into_iter();
                each.map(|one| Container {
                    name: one.name,
                    image: one.image,
                    status: one.status,
                })
                .collect()
            })
        } else {
            Ok(Vec::new())
        };
        let units = units_by_hand(self.root()).map_err(|e| e.to_string());
        strays::list(containers, units, |target| ours.contains(target))
    }

    /// All that the host wrote, holds, or is asked for, with what comes with it.
    fn ours(&self, declaration: &Declaration) -> BTreeSet<Target> {
        let book = self.book();
        let mut ours = self.targets(declaration, &book).unwrap_or_default();
        let records = book.records.values().chain(book.orphans.values());
        ours.extend(records.filter_map(|record| record.target.clone()));
        ours.extend(book.held.values().map(|held| held.target.clone()));
        ours.extend(book.leavings.iter().cloned());
        let beside = ours.iter().filter_map(|target| match target {
            Target::Thing(Sort::Process, name) => Some(kinds::claims_of(name)),
            Target::Thing(Sort::Container, name) => {
                let mut beside = kinds::claims_of(&units_of(name));
                beside.push(Target::Thing(Sort::Container, former_of(name)));
                Some(beside)
            }
            _ => None,
        });
        let beside: Vec<Target> = beside.flatten().collect();
        ours.extend(beside);
        ours
    }

    /// Whether a question would start an engine that somebody stopped.
    fn is_engine_at_rest(&self) -> bool {
        let system = &self.setup.system;
        // Where no service manager answers, none has a socket that wakes anything.
        let rests = |unit| matches!(system.unit(unit), Ok(Some(unit)) if !unit.is_up());
        system.engine().woken_by_asking().is_some_and(rests)
    }
}

/// The units that somebody put there. What went meanwhile, or leads to no name that can be read, is passed over: it hides
/// none of the others.
fn units_by_hand(root: &dyn Disk) -> Result<Vec<TargetPath>, DiskError> {
    let mut units = Vec::new();
    for folder in FOLDERS.iter().filter_map(|folder| TargetPath::parse(folder).ok()) {
        let sort = root.stat(&folder)?.map(|stat| stat.sort);
        if sort != Some(FileSort::Directory) {
            continue;
        }
        for name in root.list(Some(&folder))? {
            let Ok(file) = folder.join(&name) else { continue };
            let leads_to = match root.stat(&file).map(|stat| stat.map(|stat| stat.sort)) {
                Ok(Some(FileSort::File)) => Ok(None),
                Ok(Some(FileSort::Link)) => root.read_link(&file).map(Some),
                Ok(Some(FileSort::Directory | FileSort::Other) | None) => continue,
                Err(error) => Err(error),
            };
            match leads_to {
                Ok(to) if strays::is_by_hand(&file, to.as_deref()) => units.push(file),
                Ok(_) => {}
                Err(error) => tracing::debug!(%file, %error, "whose it is cannot be told"),
            }
        }
    }
    Ok(units)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::edge::disk::RealDisk;

    // holds: HR-9
    #[test]
    fn a_link_that_leads_to_no_text_hides_no_other_unit() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("etc/systemd/system");
        std::fs::create_dir_all(&folder).unwrap();
        symlink(OsStr::from_bytes(b"/opt/\xff.service"), folder.join("a.service")).unwrap();
        std::fs::write(folder.join("b.service"), "[Service]\n").unwrap();
        symlink("../../../opt/c.service", folder.join("c.service")).unwrap();
        symlink("b.service", folder.join("d.service")).unwrap();
        let disk = RealDisk::open(root.path()).unwrap();
        let units = units_by_hand(&disk).unwrap();
        let names: Vec<&str> = units.iter().map(TargetPath::file_name).collect();
        assert_eq!(names, ["b.service", "c.service"]);
    }
}

//! What runs beside the fleet and is nobody's here, looked at and never touched (HR-9).

use std::collections::BTreeSet;

use meshplan_schemas::declaration::Declaration;

use super::Machine;
use crate::edge::disk::{DiskError, Sort as FileSort};
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
        // A machine without an engine has no containers.
        let containers = if engine.is_there() {
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
        let units = self.units_by_hand().map_err(|e| e.to_string());
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

    fn units_by_hand(&self) -> Result<Vec<TargetPath>, DiskError> {
        let mut units = Vec::new();
        for folder in FOLDERS.iter().filter_map(|folder| TargetPath::parse(folder).ok()) {
            let sort = self.root().stat(&folder)?.map(|stat| stat.sort);
            if sort != Some(FileSort::Directory) {
                continue;
            }
            for name in self.root().list(Some(&folder))? {
                let Ok(file) = folder.join(&name) else { continue };
                let leads_to = match self.root().stat(&file)?.map(|stat| stat.sort) {
                    Some(FileSort::File) => None,
                    Some(FileSort::Link) => Some(self.root().read_link(&file)?),
                    Some(FileSort::Directory | FileSort::Other) | None => continue,
                };
                if strays::is_by_hand(&name, leads_to.as_deref()) {
                    units.push(file);
                }
            }
        }
        Ok(units)
    }
}

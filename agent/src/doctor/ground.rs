//! Where the canary may act: scratch disks in memory, one for each type of filesystem whose syncs are traced, or the
//! directory that was asked for.

use std::path::Path;

use anyhow::anyhow;

use super::acts;
use super::canary::{Ground, Place};
use crate::kernel::host::Roots;
use crate::probes::shown::Shown;
use crate::probes::table::{Attached, State};
use crate::scratch::{self, Device, Format, Scratch};

const FORMATS: [&Format; 3] = [&scratch::EXT4, &scratch::XFS, &scratch::BTRFS];
/// Memory that the images may take together. They took 5, 67 and 4 MiB: the second has a log of the least size that its
/// tools make.
const MEMORY_BYTES: u64 = 160 << 20;

/// Places, and what could not be made.
pub struct Grounds {
    pub places: Vec<Place>,
    /// Types of filesystems, and why there is none.
    pub unmade: Vec<(&'static str, String)>,
    _scratch: Vec<Scratch>,
}

impl Grounds {
    pub fn of(asked: Option<&Path>, attached: &[Attached], roots: &Roots) -> Self {
        let mut grounds = Self { places: Vec::new(), unmade: Vec::new(), _scratch: Vec::new() };
        match asked {
            Some(directory) => grounds.add("the directory", Place::of(directory, Ground::Asked, roots)),
            None => grounds.make(attached, roots),
        }
        grounds
    }

    /// Why what could not be made was not, each reason once.
    pub fn problems(&self) -> Vec<String> {
        let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
        for (filesystem, why) in &self.unmade {
            match by_reason.iter_mut().find(|(known, _)| known == why) {
                Some((_, filesystems)) => filesystems.push(filesystem),
                None => by_reason.push((why, vec![filesystem])),
            }
        }
        by_reason
            .into_iter()
            .map(|(why, filesystems)| format!("no canary on {}: {why}", filesystems.join(", ")))
            .collect()
    }

    fn make(&mut self, attached: &[Attached], roots: &Roots) {
        let traced = |format: &&&Format| attached.iter().any(|probe| traces(probe, format.filesystem));
        let parent = std::env::temp_dir();
        let memory = scratch::own_mounts().and_then(|()| scratch::memory_over(&parent, MEMORY_BYTES));
        for format in FORMATS.iter().filter(traced) {
            let made = match &memory {
                Ok(()) => make(format, &parent),
                Err(error) => Err(anyhow!("{error:#}")),
            };
            let place = made.and_then(|scratch| {
                let place = Place::of(scratch.directory(), Ground::Scratch, roots);
                self._scratch.push(scratch);
                place
            });
            self.add(format.filesystem, place);
        }
    }

    fn add(&mut self, what: &'static str, place: anyhow::Result<Place>) {
        match place {
            Ok(place) => self.places.push(place),
            Err(error) => self.unmade.push((what, format!("{error:#}"))),
        }
    }
}

fn make(format: &Format, parent: &Path) -> anyhow::Result<Scratch> {
    let directory = parent.join(format!("fsyncscope-canary-{}-{}", format.filesystem, std::process::id()));
    let device = Device::in_memory(&directory.with_extension("img"), format)?;
    Scratch::mount(device, format, directory)
}

fn traces(attached: &Attached, filesystem: &str) -> bool {
    let is_of = matches!(attached.probe.shown_by(), Shown::Sync(of) | Shown::SyncStart(of) if of == filesystem);
    is_of && !matches!(attached.state, State::Missing(_))
}

/// An error if no file can be made in a directory that was asked for.
pub fn check(directory: &Path) -> anyhow::Result<()> {
    let refused = |e| {
        anyhow!(
            "making a canary file in {}: {e}; name a directory where files can be made with --canary",
            directory.display()
        )
    };
    acts::unnamed(directory).map(drop).map_err(refused)
}

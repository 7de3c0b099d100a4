//! Whether anything that runs now is selected: a selector that fits nothing is most often misspelt.

use std::path::Path;

use anyhow::bail;

use crate::kernel::host::Roots;
use crate::names::{self, Process};

use super::Selectors;

/// One value of a flag that nothing fitted so far.
struct Open<'a> {
    flag: &'static str,
    value: &'a str,
    fits: Fits<'a>,
}

/// Whether a process with threads of these names fits.
type Fits<'a> = Box<dyn Fn(&Process, &[String]) -> bool + 'a>;

impl Selectors {
    /// Fails if a process, thread or cgroup is selected that does not run, or if each runs but never in one process.
    /// Files and operations cannot be checked: they show when they sync.
    pub fn check_present(&self, roots: &Roots) -> anyhow::Result<()> {
        let mut open = self.values();
        if open.is_empty() {
            return Ok(());
        }
        let mut any = false;
        let own = own_pid(&roots.proc);
        for pid in names::running(&roots.proc).into_iter().filter(|pid| Some(*pid) != own) {
            let Some(process) = Process::read(&roots.proc, pid) else { continue };
            let threads = if self.thread.is_empty() { Vec::new() } else { names::threads(&roots.proc, pid) };
            open.retain(|value| !(value.fits)(&process, &threads));
            any = any || self.fits_process(&process) && self.fits_a_thread(&threads);
            if open.is_empty() && any {
                return Ok(());
            }
        }
        match open.first() {
            Some(Open { flag, value, .. }) => bail!("{}", sentence(flag, value)),
            None => bail!(
                "looking for what is selected: each selector fits something that runs, but nothing fits all of them; \
                 leave one out, or start what they select"
            ),
        }
    }

    fn fits_a_thread(&self, threads: &[String]) -> bool {
        self.thread.is_empty() || threads.iter().any(|name| self.fits_thread(name))
    }

    fn values(&self) -> Vec<Open<'_>> {
        let process = self.process.iter().map(|pattern| Open {
            flag: "--process",
            value: pattern.text(),
            fits: Box::new(|process, _| pattern.fits_process(process)),
        });
        let thread = self.thread.iter().map(|name| Open {
            flag: "--thread",
            value: name.text(),
            fits: Box::new(|_, threads| threads.iter().any(|shown| name.fits(shown))),
        });
        let cgroup = self.cgroup.iter().map(|pattern| Open {
            flag: "--cgroup",
            value: pattern.text(),
            fits: Box::new(|process, _| process.cgroup.as_deref().is_some_and(|path| pattern.fits(path))),
        });
        process.chain(thread).chain(cgroup).collect()
    }
}

/// The agent's own command line names what it selects, so its own process must not count.
fn own_pid(proc: &Path) -> Option<u32> {
    std::fs::read_link(proc.join("self")).ok()?.to_str()?.parse().ok()
}

fn sentence(flag: &str, value: &str) -> String {
    let (what, list) = match flag {
        "--thread" => ("thread has this name", "ps -eLo pid,comm,args"),
        "--cgroup" => ("process is in such a control group", "ps -eo pid,comm,cgroup"),
        _ => ("process has such a name or executable", "ps -eo pid,comm,exe"),
    };
    format!(
        "looking for {flag} \"{value}\": no running {what}; correct it after a look at `{list}`, or start what it selects"
    )
}

//! Which syncs are wanted: the selectors of the command line, compiled and matched.
//!
//! Values of one flag are alternatives, different flags must all fit. In a glob `*` also spans slashes; one without a
//! slash is compared with the last name of a path too. Matching knows no file; [`Selectors::check_present`] looks at
//! what runs, once, at start.

use anyhow::bail;
use globset::{Glob, GlobMatcher};

use crate::cli;
use crate::names::Process;
use crate::timeline::{Operation, Sync};

mod check;
mod thread_name;

use thread_name::ThreadName;

/// Selectors that are ready to match. Without any, everything is wanted.
#[derive(Clone, Debug, Default)]
pub struct Selectors {
    process: Vec<Pattern>,
    thread: Vec<ThreadName>,
    cgroup: Vec<Pattern>,
    file: Vec<Pattern>,
    operation: Vec<Operation>,
}

/// A glob over names and paths.
#[derive(Clone, Debug)]
struct Pattern {
    matcher: GlobMatcher,
}

impl Selectors {
    /// A value that cannot be understood is one sentence.
    pub fn compile(selectors: &cli::Selectors) -> anyhow::Result<Self> {
        let cli::Selectors { process, thread, cgroup, file, operation } = selectors;
        Ok(Self {
            process: patterns("--process", process)?,
            thread: thread.iter().map(|name| ThreadName::new(name)).collect::<anyhow::Result<_>>()?,
            cgroup: patterns("--cgroup", cgroup)?,
            file: patterns("--file", file)?,
            operation: operation.iter().map(|name| parse_operation(name)).collect::<anyhow::Result<_>>()?,
        })
    }

    pub fn is_empty(&self) -> bool {
        let Self { process, thread, cgroup, file, operation } = self;
        process.is_empty() && thread.is_empty() && cgroup.is_empty() && file.is_empty() && operation.is_empty()
    }

    /// Whether syncs of a thread may be wanted. The name is the one that the kernel shows.
    pub fn wants_thread(&self, thread_name: &str, process: &Process) -> bool {
        self.fits_thread(thread_name) && self.fits_process(process)
    }

    /// Whether a sync of a wanted thread is wanted. One of a file whose path is not known is not, if files are selected.
    pub fn wants_sync(&self, sync: &Sync) -> bool {
        let path = sync.file.path.as_deref();
        let fits_file = any_or_none(&self.file, |pattern| path.is_some_and(|path| pattern.fits(path)));
        fits_file && any_or_none(&self.operation, |operation| *operation == sync.operation)
    }

    fn fits_thread(&self, shown: &str) -> bool {
        any_or_none(&self.thread, |name| name.fits(shown))
    }

    fn fits_process(&self, process: &Process) -> bool {
        any_or_none(&self.process, |pattern| pattern.fits_process(process))
            && any_or_none(&self.cgroup, |pattern| process.cgroup.as_deref().is_some_and(|path| pattern.fits(path)))
    }
}

/// A flag that was not given asks for nothing.
fn any_or_none<T>(values: &[T], fits: impl Fn(&T) -> bool) -> bool {
    values.is_empty() || values.iter().any(fits)
}

fn patterns(flag: &str, globs: &[String]) -> anyhow::Result<Vec<Pattern>> {
    globs.iter().map(|glob| Pattern::new(flag, glob)).collect()
}

fn parse_operation(name: &str) -> anyhow::Result<Operation> {
    match Operation::ALL.into_iter().find(|operation| operation.name() == name) {
        Some(operation) => Ok(operation),
        None => {
            let names = Operation::ALL.map(Operation::name).join(", ");
            bail!("reading --operation \"{name}\": there is no such operation; give one of {names}")
        }
    }
}

impl Pattern {
    fn new(flag: &str, glob: &str) -> anyhow::Result<Self> {
        if glob.is_empty() {
            bail!("reading {flag} \"\": the glob is empty; give a name or a glob such as \"java*\"");
        }
        match Glob::new(glob) {
            Ok(glob) => Ok(Self { matcher: glob.compile_matcher() }),
            Err(error) => bail!(
                "reading {flag} \"{glob}\": {}; put a backslash before [ ] {{ }} * ? that are meant",
                error.kind()
            ),
        }
    }

    fn text(&self) -> &str {
        self.matcher.glob().glob()
    }

    /// Whether a path or a name fits, or, for a glob without a slash, the last name of the path.
    fn fits(&self, path: &str) -> bool {
        let last = path.rsplit('/').next().unwrap_or(path);
        self.matcher.is_match(path) || (!self.text().contains('/') && self.matcher.is_match(last))
    }

    fn fits_process(&self, process: &Process) -> bool {
        let executable = process.executable.as_ref().map(|path| path.to_string_lossy());
        self.fits(&process.name) || executable.is_some_and(|path| self.fits(&path))
    }
}

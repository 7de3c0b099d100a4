//! A thread's full name against the 15 bytes of it that the kernel shows.

use anyhow::bail;
use globset::{Glob, GlobMatcher};

/// Bytes of a thread's name that the kernel keeps.
const KERNEL_BYTES: usize = 15;
/// What a JVM of version 26 or newer keeps of a longer name: its beginning, two dots, its end.
const BEGIN_BYTES: usize = 7;
const END_BYTES: usize = 6;

/// A thread's name as the user gives it.
#[derive(Clone, Debug)]
pub struct ThreadName {
    given: String,
    shown: Shown,
}

/// What the kernel shows of it.
#[derive(Clone, Debug)]
enum Shown {
    /// One of these.
    Forms(Vec<String>),
    Glob(GlobMatcher),
}

impl ThreadName {
    pub fn new(name: &str) -> anyhow::Result<Self> {
        if name.is_empty() {
            bail!("reading --thread \"\": the name is empty; give a thread's name, such as ForceWriteThread");
        }
        let given = name.to_owned();
        let Some(begin) = name.find(['*', '?', '[', '{']) else {
            return Ok(Self { given, shown: Shown::Forms(forms(name)) });
        };
        if begin > KERNEL_BYTES {
            bail!(
                "reading --thread \"{name}\": the kernel shows {KERNEL_BYTES} bytes of a thread's name, so this glob \
                 matches none; give the full name without * or a shorter beginning"
            );
        }
        match Glob::new(name) {
            Ok(glob) => Ok(Self { given, shown: Shown::Glob(glob.compile_matcher()) }),
            Err(error) => {
                bail!("reading --thread \"{name}\": {}; give a name, or a glob such as BookieJ*", error.kind())
            }
        }
    }

    pub fn text(&self) -> &str {
        &self.given
    }

    /// Whether a name that the kernel shows may be this one.
    pub fn fits(&self, shown: &str) -> bool {
        match &self.shown {
            Shown::Forms(forms) => forms.iter().any(|form| form == shown),
            Shown::Glob(glob) => glob.is_match(shown),
        }
    }
}

/// The name itself if it is short enough; otherwise cut at its end, as most programs do, or in its middle.
fn forms(name: &str) -> Vec<String> {
    let bytes = name.as_bytes();
    if bytes.len() <= KERNEL_BYTES {
        return vec![name.to_owned()];
    }
    let elided = [&bytes[..BEGIN_BYTES], b"..", &bytes[bytes.len() - END_BYTES..]].concat();
    // A cut may go through a letter; what the kernel shows is read the same way.
    [&bytes[..KERNEL_BYTES], &elided].map(|form| String::from_utf8_lossy(form).into_owned()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_long_name_are_derived() {
        assert_eq!(forms("ForceWriteThread"), ["ForceWriteThrea", "ForceWr..Thread"]);
        assert_eq!(forms("BookieJournal-3181"), ["BookieJournal-3", "BookieJ..l-3181"]);
        assert_eq!(forms("SyncThread-7-1"), ["SyncThread-7-1"]);
        assert_eq!(forms("fifteen-letters"), ["fifteen-letters"]);
        assert_eq!(forms("journal-fadenääää")[0], "journal-fadenä");
    }
}

//! Selectors: what they match, what they refuse, and what they miss among processes that are made of files.

use fsyncscope::cli;
use fsyncscope::event::{self, Event, Start};
use fsyncscope::kernel::host::Roots;
use fsyncscope::names::Process;
use fsyncscope::select::Selectors;
use fsyncscope::timeline::{Sync, Timeline};

#[path = "facts/tree.rs"]
mod tree;

use tree::Tree;

/// Selectors from pairs of a flag and a value.
fn given(flags: &[(&str, &str)]) -> cli::Selectors {
    let mut selectors = cli::Selectors::default();
    for (flag, value) in flags {
        let values = match *flag {
            "process" => &mut selectors.process,
            "thread" => &mut selectors.thread,
            "cgroup" => &mut selectors.cgroup,
            "file" => &mut selectors.file,
            "operation" => &mut selectors.operation,
            other => panic!("there is no flag {other}"),
        };
        values.push((*value).to_owned());
    }
    selectors
}

fn selectors(flags: &[(&str, &str)]) -> Selectors {
    Selectors::compile(&given(flags)).unwrap()
}

fn refusal(flags: &[(&str, &str)]) -> String {
    Selectors::compile(&given(flags)).unwrap_err().to_string()
}

fn java() -> Process {
    Process {
        name: "java".into(),
        executable: Some("/opt/jdk-21/bin/java".into()),
        cgroup: Some("/kubepods/burstable/pod7/c1".into()),
    }
}

/// An fdatasync of a file, by the timeline.
fn sync(path: Option<&str>) -> Sync {
    let mut timeline = Timeline::default();
    timeline.add(Event::Start(Start { architecture: "x86_64".into(), ..Start::default() }));
    if let Some(path) = path {
        timeline.add(Event::Path { dev: 1, inode: 2, path: path.into(), writers: vec![] });
    }
    let event = event::Sync {
        start_ns: 1,
        end_ns: 2,
        return_ns: 3,
        tid: 4,
        pid: 4,
        thread: "a".into(),
        dev: 1,
        inode: 2,
        datasync: true,
        syscall: 75,
        result: 0,
        end: event::EndSeen::Exactly,
        hands: Default::default(),
        journal_hands: Default::default(),
        after: [0; 4],
        directory: false,
        result_known: false,
        asked: None,
    };
    timeline.add(Event::Sync(event)).unwrap()
}

#[test]
fn without_selectors_everything_is_wanted() {
    let all = selectors(&[]);
    assert!(all.is_empty() && all.wants_thread("x", &Process::default()) && all.wants_sync(&sync(None)));
    assert!(all.check_present(&Roots { proc: "/nowhere".into(), sys: "/nowhere".into() }).is_ok());
    for flag in [("process", "a"), ("thread", "a"), ("cgroup", "a"), ("file", "a"), ("operation", "fsync")] {
        assert!(!selectors(&[flag]).is_empty(), "{flag:?}");
    }
}

#[test]
fn a_thread_is_found_by_both_of_its_shortened_names() {
    let wanted = selectors(&[("thread", "ForceWriteThread")]);
    for (shown, fits) in
        [("ForceWriteThrea", true), ("ForceWr..Thread", true), ("ForceWriteThre", false), ("ForceWr..Thrxad", false)]
    {
        assert_eq!(wanted.wants_thread(shown, &java()), fits, "{shown}");
    }
    let wanted = selectors(&[("thread", "BookieJ*"), ("thread", "SyncThread-7-1")]);
    for (shown, fits) in
        [("BookieJournal-3", true), ("BookieJ..l-3181", true), ("SyncThread-7-1", true), ("SyncThread-7-11", false)]
    {
        assert_eq!(wanted.wants_thread(shown, &java()), fits, "{shown}");
    }
}

#[test]
fn a_process_is_found_by_name_path_or_last_name_of_its_path() {
    for (glob, fits) in [
        ("java", true),
        ("jav?", true),
        ("*/jdk-21/*", true),
        ("/opt/*/java", true),
        ("python*", false),
        ("bin", false),
    ] {
        assert_eq!(selectors(&[("process", glob)]).wants_thread("a", &java()), fits, "{glob}");
    }
    let long = Process {
        name: "prometheus-node".into(),
        executable: Some("/usr/bin/prometheus-node-exporter".into()),
        cgroup: None,
    };
    assert!(selectors(&[("process", "prometheus-node-exporter")]).wants_thread("a", &long));
}

#[test]
fn different_flags_must_all_fit() {
    let wants = |flags: &[(&str, &str)]| selectors(flags).wants_thread("ForceWriteThrea", &java());
    assert!(wants(&[("process", "java"), ("thread", "ForceWriteThread"), ("cgroup", "/kubepods/*")]));
    assert!(!wants(&[("process", "java"), ("thread", "SyncThread")]));
    assert!(!wants(&[("process", "java"), ("cgroup", "/system.slice/*")]));
    assert!(wants(&[("process", "postgres"), ("process", "java")]), "values of one flag are alternatives");
    assert!(!selectors(&[("cgroup", "*")]).wants_thread("a", &Process::default()), "a process without a known cgroup");
}

#[test]
fn files_and_operations_choose_syncs() {
    let wants = |flag: &str, value: &str, path| selectors(&[(flag, value)]).wants_sync(&sync(path));
    assert!(wants("file", "*.txn", Some("/journal/current/1.txn")));
    assert!(wants("file", "1.txn", Some("/journal/current/1.txn")));
    assert!(wants("file", "/journal/*", Some("/journal/current/1.txn")));
    assert!(!wants("file", "current", Some("/journal/current/1.txn")));
    assert!(!wants("file", "*", None), "a file without a known path");
    assert!(wants("operation", "fdatasync", None));
    assert!(!wants("operation", "fsync", None));
}

#[test]
fn what_cannot_be_understood_is_one_sentence() {
    let cases = [
        (
            ("process", "a[b"),
            "reading --process \"a[b\": unclosed character class; missing ']'; put a backslash before [ ] { } * ? that are meant",
        ),
        (("file", ""), "reading --file \"\": the glob is empty; give a name or a glob such as \"java*\""),
        (
            ("operation", "flush"),
            "reading --operation \"flush\": there is no such operation; give one of fsync, fdatasync, o_dsync, o_sync, msync, syncfs, sync, sync_file_range, fadvise",
        ),
        (("thread", ""), "reading --thread \"\": the name is empty; give a thread's name, such as ForceWriteThread"),
        (
            ("thread", "EntryLoggerAllocator-*"),
            "reading --thread \"EntryLoggerAllocator-*\": the kernel shows 15 bytes of a thread's name, so this glob matches none; give the full name without * or a shorter beginning",
        ),
    ];
    for (flag, sentence) in cases {
        assert_eq!(refusal(&[flag]), sentence);
    }
}

/// A JVM with its journal thread, a shell, and the agent itself.
fn machine(name: &str) -> Tree {
    Tree::new(name)
        .link("proc/self", "30")
        .file("proc/10/comm", "java\n")
        .link("proc/10/exe", "/opt/jdk/bin/java")
        .file("proc/10/cgroup", "0::/kubepods/pod7\n")
        .file("proc/10/task/10/comm", "java\n")
        .file("proc/10/task/11/comm", "ForceWr..Thread\n")
        .file("proc/20/comm", "bash\n")
        .file("proc/20/cgroup", "0::/user.slice\n")
        .file("proc/20/task/20/comm", "bash\n")
        .file("proc/30/comm", "fsyncscope\n")
        .file("proc/30/task/30/comm", "fsyncscope\n")
}

#[test]
fn what_runs_is_found() {
    let tree = machine("present");
    let roots = Roots { proc: tree.root().join("proc"), sys: tree.root().join("sys") };
    let check = |flags: &[(&str, &str)]| selectors(flags).check_present(&roots).map_err(|error| error.to_string());
    assert_eq!(check(&[("process", "*/bin/java"), ("thread", "ForceWriteThread"), ("cgroup", "/kubepods/*")]), Ok(()));
    assert_eq!(check(&[("file", "/nowhere/*"), ("operation", "msync")]), Ok(()), "these show when they sync");
    let sentence = |flag, value, what, list| {
        format!(
            "looking for {flag} \"{value}\": no running {what}; correct it after a look at `{list}`, or start what it selects"
        )
    };
    let process = sentence("--process", "jaava", "process has such a name or executable", "ps -eo pid,comm,exe");
    assert_eq!(check(&[("process", "java"), ("process", "jaava")]), Err(process));
    let own = sentence("--process", "fsyncscope", "process has such a name or executable", "ps -eo pid,comm,exe");
    assert_eq!(check(&[("process", "fsyncscope")]), Err(own), "the agent itself does not count");
    let thread = sentence("--thread", "ForceWriteThreads", "thread has this name", "ps -eLo pid,comm,args");
    assert_eq!(check(&[("thread", "ForceWriteThreads")]), Err(thread));
    let cgroup =
        sentence("--cgroup", "/system.slice/*", "process is in such a control group", "ps -eo pid,comm,cgroup");
    assert_eq!(check(&[("cgroup", "/system.slice/*")]), Err(cgroup));
    let apart = check(&[("process", "bash"), ("thread", "ForceWriteThread")]).unwrap_err();
    assert!(apart.contains("nothing fits all of them"), "{apart}");
}

#[test]
fn this_machine_runs_the_test_s_thread() {
    let roots = Roots::default();
    // The process of this test is the agent itself for the check, so another one is looked for: the first.
    let name = std::fs::read_to_string("/proc/1/comm").unwrap();
    assert!(selectors(&[("process", name.trim())]).check_present(&roots).is_ok());
    assert!(selectors(&[("process", "no-such-process-97")]).check_present(&roots).is_err());
}

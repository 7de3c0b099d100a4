//! try
use fsyncscope::{kernel, probes};
use fsyncscope_ebpf::{event::*, part::Part, settings::Counter};
fn main() {
    let btf = kernel::btf::Btf::load(std::path::Path::new("/sys/kernel/btf/vmlinux")).unwrap();
    let layout = kernel::layout::resolve(&btf, &[]).unwrap();
    let symbols = kernel::symbols::Symbols::load(std::path::Path::new("/proc")).unwrap();
    let facts = probes::Facts { btf: &btf, layout: &layout.values, functions: symbols.functions() };
    let mut choice = probes::Choice::for_threshold(1_000_000);
    choice.raw = std::env::args().any(|a| a == "raw");
    let secs: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let _fd = probes::count_usage().unwrap();
    let mut p = probes::Probes::attach(&facts, &choice).unwrap();
    let t = std::time::Instant::now();
    let mut n = 0u64; let mut total = 0u64; let mut hands = [0u64; 17]; let mut jh = [0u64; 17]; let mut bad = 0; let mut kinds = [0u64; 16]; let mut jmis=0i64; let mut unre=0;
    let mut after=0u64;
    while t.elapsed().as_secs() < secs {
        std::thread::sleep(std::time::Duration::from_millis(100));
        p.poll(|b| {
            let h = unsafe { b.as_ptr().cast::<Header>().read_unaligned() };
            kinds[h.kind as usize] += 1;
            if h.kind == Kind::Sync as u32 {
                let s = unsafe { b.as_ptr().cast::<SyncRecord>().read_unaligned() };
                n += 1; total += s.end_ns - s.start_ns;
                let sum: u64 = s.hands.iter().sum(); if sum != s.end_ns - s.start_ns { bad += 1; }
                for i in 0..17 { hands[i] += s.hands[i]; jh[i] += s.journal_hands[i]; }
                jmis += (s.hands[13] as i64 - s.journal_hands.iter().sum::<u64>() as i64).abs();
                if s.return_ns == 0 { unre += 1 } else { after += s.return_ns - s.end_ns }
                if n < 3 { println!("{s:?}"); }
            } else if h.kind == Kind::File as u32 { let s = unsafe { b.as_ptr().cast::<FileRecord>().read_unaligned() }; println!("file {} {:?}", s.inode, String::from_utf8_lossy(&s.names[..s.bytes as usize])); }
            else if h.kind == Kind::Thread as u32 { let s = unsafe { b.as_ptr().cast::<ThreadRecord>().read_unaligned() }; println!("thread {} role {} {:?} {:?}", s.tid, s.role, String::from_utf8_lossy(&s.comm), String::from_utf8_lossy(&s.process)); }
        });
    }
    println!("n={n} mean {} us bad {bad} kinds {kinds:?} journal mismatch {} us unreturned {unre} after mean {}", total / n.max(1) / 1000, jmis / 1000, after / n.max(1));
    for (i, part) in Part::ALL.iter().enumerate() { println!("{part:?} {:.2}%  journal {:.2}%", 100. * hands[i] as f64 / total as f64, 100. * jh[i] as f64 / hands[13].max(1) as f64); }
    let (mut runs, mut ns) = (0, 0);
    for u in p.usage() { println!("{:24} runs/sync {:.1} ns/run {} insns {}", u.name, u.runs as f64 / n as f64, u.ns / u.runs.max(1), u.instructions); runs += u.runs; ns += u.ns; }
    println!("total {:.1} runs {:.2} us/sync", runs as f64 / n as f64, ns as f64 / n as f64 / 1000.);
    for c in [Counter::LostSync, Counter::LostDetail, Counter::LostName, Counter::Unwatched, Counter::RequestUntracked, Counter::ExitUnseen, Counter::Torn, Counter::Syncs] { println!("{c:?} {}", p.counter(c)); }
    println!("{:x?}", p.disks());
}

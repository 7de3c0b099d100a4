//! Folds a path into the class of its file, so that a journal that rolls over makes no new series.
//!
//! Knows how journals name their files. Must not know the file system: a path is only text here.
//! `N` stands for decimal digits, `HEX` for a hexadecimal number, `ID` for a generated name.

use crate::limits::LABEL_BYTES_MAX;

/// A word of at least this many letters and digits, with `ID_DIGITS_MIN` digits among them, is a generated name:
/// RabbitMQ names the directory of a queue by 25 such signs.
const ID_LENGTH_MIN: usize = 20;
const ID_DIGITS_MIN: usize = 4;

/// A word with digits and the letters a to f from this length on is a number; a shorter one (`e2`) may be a name.
const HEX_LENGTH_MIN: usize = 5;

/// Lengths at which software writes hexadecimal numbers with leading zeros: etcd 16, PostgreSQL 24, ids 32, 40, 64.
/// There digits alone are hexadecimal too, or a roll from `..09` to `..0A` would change the class.
const HEX_LENGTHS: [usize; 5] = [16, 24, 32, 40, 64];

/// Folds `path` to at most 128 bytes, the front being cut first: the end names the file.
pub fn file_class(path: &str) -> String {
    let (directory, name) = path.rsplit_once('/').map_or(("", path), |(d, n)| (d, n));
    let is_index = name.ends_with(".idx");
    let mut class = String::with_capacity(path.len());
    if path.contains('/') {
        for component in directory.split('/') {
            // BookKeeper spreads its ledger indexes over directories named by one byte in hexadecimal.
            if is_index && is_hex(component) {
                class.push_str("HEX");
            } else {
                fold_words(component, &mut class);
            }
            class.push('/');
        }
    }
    fold_name(name, &mut class);
    keep_end(class)
}

/// Folds the last component, where some names are known to be hexadecimal at any length.
fn fold_name(name: &str, class: &mut String) {
    if let Some((stem, extension)) = name.rsplit_once('.') {
        let hex_stem = match extension {
            "txn" | "idx" => is_hex(stem),
            // Kafka and RocksDB pad their decimal names with zeros; BookKeeper's entry logs are plain hexadecimal.
            "log" => is_hex(stem) && !is_padded_decimal(stem),
            _ => false,
        };
        if hex_stem {
            class.push_str("HEX.");
            class.push_str(extension);
            return;
        }
        // ZooKeeper: log.<zxid> and snapshot.<zxid>.
        if matches!(stem, "log" | "snapshot") && is_hex(extension) {
            class.push_str(stem);
            class.push_str(".HEX");
            return;
        }
    }
    fold_words(name, class);
}

/// Folds each run of letters and digits on its own and copies what lies between.
fn fold_words(text: &str, class: &mut String) {
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        if length == 0 {
            class.push(sign);
            rest = &rest[sign.len_utf8()..];
            continue;
        }
        let (word, tail) = rest.split_at(length);
        if let Some(length) = uuid_length(rest) {
            class.push_str("ID");
            rest = &rest[length..];
            continue;
        }
        fold_word(word, class);
        rest = tail;
    }
}

fn fold_word(word: &str, class: &mut String) {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    if digits == 0 {
        class.push_str(word);
    } else if is_hex(word)
        && (HEX_LENGTHS.contains(&word.len()) || (digits < word.len() && word.len() >= HEX_LENGTH_MIN))
    {
        class.push_str("HEX");
    } else if word.len() >= ID_LENGTH_MIN && digits >= ID_DIGITS_MIN && digits < word.len() {
        class.push_str("ID");
    } else {
        fold_digits(word, class);
    }
}

fn fold_digits(word: &str, class: &mut String) {
    let mut in_digits = false;
    for sign in word.chars() {
        let digit = sign.is_ascii_digit();
        if !digit {
            class.push(sign);
        } else if !in_digits {
            class.push('N');
        }
        in_digits = digit;
    }
}

/// The length of a UUID at the start of `text`: the 8-4-4-4-12 form of pods and container volumes.
fn uuid_length(text: &str) -> Option<usize> {
    const LENGTH: usize = 36;
    let head = text.as_bytes().get(..LENGTH)?;
    let shaped = head.iter().enumerate().all(|(i, byte)| match i {
        8 | 13 | 18 | 23 => *byte == b'-' || *byte == b'_',
        _ => byte.is_ascii_hexdigit(),
    });
    let ends = text.as_bytes().get(LENGTH).is_none_or(|byte| !byte.is_ascii_alphanumeric());
    (shaped && ends).then_some(LENGTH)
}

fn is_hex(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_padded_decimal(word: &str) -> bool {
    word.len() > 1 && word.starts_with('0') && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn keep_end(class: String) -> String {
    const CUT: &str = "...";
    if class.len() <= LABEL_BYTES_MAX {
        return class;
    }
    let mut start = class.len() - (LABEL_BYTES_MAX - CUT.len());
    while !class.is_char_boundary(start) {
        start += 1;
    }
    format!("{CUT}{}", &class[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row: the class, and two or more names that one journal takes one after the other.
    const ROLLS: &[(&str, &[&str])] = &[
        // BookKeeper: journal files by milliseconds, entry logs and indexes by number, all hexadecimal.
        (
            "/bk/journal/current/HEX.txn",
            &[
                "/bk/journal/current/18f3a.txn",
                "/bk/journal/current/19ab1fd07cc.txn",
                "/bk/journal/current/19012345678.txn",
                "/bk/journal/current/abcdefabcde.txn",
            ],
        ),
        (
            "/bk/ledgers/current/HEX.log",
            &[
                "/bk/ledgers/current/0.log",
                "/bk/ledgers/current/9.log",
                "/bk/ledgers/current/a.log",
                "/bk/ledgers/current/1f3.log",
            ],
        ),
        ("/bk/ledgers/current/HEX/HEX/HEX.idx", &["/bk/ledgers/current/0/0/0.idx", "/bk/ledgers/current/f/a1/fa1.idx"]),
        ("/bk/journal/current/lastMark", &["/bk/journal/current/lastMark"]),
        // Kafka: 20 decimal digits, and the partition's number in its directory.
        (
            "/kafka/orders-N/N.log",
            &["/kafka/orders-0/00000000000000000000.log", "/kafka/orders-11/00000000000123456789.log"],
        ),
        (
            "/kafka/orders-N/N.timeindex",
            &["/kafka/orders-0/00000000000000000000.timeindex", "/kafka/orders-3/00000000000000000042.timeindex"],
        ),
        ("/kafka/__cluster_metadata-N/N.log", &["/kafka/__cluster_metadata-0/00000000000000007777.log"]),
        ("/kafka/recovery-point-offset-checkpoint", &["/kafka/recovery-point-offset-checkpoint"]),
        // PostgreSQL: 24 hexadecimal digits, often without any letter.
        (
            "/pg/N/main/pg_wal/HEX",
            &[
                "/pg/15/main/pg_wal/000000010000000000000009",
                "/pg/15/main/pg_wal/00000001000000000000000A",
                "/pg/16/main/pg_wal/000000020000003C000000FF",
            ],
        ),
        ("/pg/base/N/N", &["/pg/base/5/16384", "/pg/base/13761/2619"]),
        // etcd: two times 16 hexadecimal digits; the backend is one file.
        (
            "/etcd/member/wal/HEX-HEX.wal",
            &[
                "/etcd/member/wal/0000000000000000-0000000000000000.wal",
                "/etcd/member/wal/000000000000000a-00000000000f4240.wal",
            ],
        ),
        ("/etcd/member/wal/N.tmp", &["/etcd/member/wal/0.tmp", "/etcd/member/wal/1.tmp"]),
        ("/etcd/member/snap/db", &["/etcd/member/snap/db"]),
        // ZooKeeper: hexadecimal transaction ids of any length.
        (
            "/zk/version-N/log.HEX",
            &["/zk/version-2/log.1", "/zk/version-2/log.a", "/zk/version-2/log.100000001", "/zk/version-2/log.7f00a"],
        ),
        ("/zk/version-N/snapshot.HEX", &["/zk/version-2/snapshot.0", "/zk/version-2/snapshot.1ff"]),
        // RabbitMQ: quorum queues by number, queue directories by a generated name.
        (
            "/mq/quorum/rabbit@host/N.wal",
            &["/mq/quorum/rabbit@host/00000002.wal", "/mq/quorum/rabbit@host/00000123.wal"],
        ),
        (
            "/mq/quorum/rabbit@host/NF_ID/N.segment",
            &["/mq/quorum/rabbit@host/2F_ORDERS1KX7Q2M9ZT4WB8LD60/00000003.segment"],
        ),
        (
            "/mq/queues/ID/journal.jif",
            &["/mq/queues/8VQ2T61MZ0KXW3RBDY49PLCHN/journal.jif", "/mq/queues/1A9ZK3M7QW0TX52RBDL8VHPYC/journal.jif"],
        ),
        // Others.
        ("/my/ib_logfileN", &["/my/ib_logfile0", "/my/ib_logfile1"]),
        ("/my/#innodb_redo/#ib_redoN", &["/my/#innodb_redo/#ib_redo9", "/my/#innodb_redo/#ib_redo10"]),
        ("/my/bin.N", &["/my/bin.000001", "/my/bin.000999"]),
        ("/c/commitlog/CommitLog-N-N.log", &["/c/commitlog/CommitLog-7-1699999999999.log"]),
        ("/js/streams/ORDERS/msgs/N.blk", &["/js/streams/ORDERS/msgs/1.blk", "/js/streams/ORDERS/msgs/42.blk"]),
        ("/amq/kahadb/db-N.log", &["/amq/kahadb/db-1.log", "/amq/kahadb/db-22.log"]),
        ("/redis/appendonly.aof.N.incr.aof", &["/redis/appendonly.aof.1.incr.aof", "/redis/appendonly.aof.2.incr.aof"]),
        ("/rocks/N.log", &["/rocks/000123.log", "/rocks/000999.log"]),
        (
            "/var/lib/kubelet/pods/ID/volumes/data/HEX.txn",
            &["/var/lib/kubelet/pods/0f8c2d0e-13aa-4b6e-9d3c-5e2b8a7f6c01/volumes/data/18f3a9c2b1e.txn"],
        ),
    ];

    #[test]
    fn a_roll_makes_no_new_class() {
        for (class, names) in ROLLS {
            for name in *names {
                assert_eq!(&file_class(name), class, "{name}");
            }
        }
    }

    #[test]
    fn ten_thousand_rolls_make_one_class() {
        let classes: std::collections::HashSet<String> = (0..10_000u64)
            .map(|i| file_class(&format!("/bk/journal/current/{:x}.txn", 1_700_000_000_000 + i * 99_991)))
            .chain((0..10_000u64).map(|i| file_class(&format!("/bk/journal/current/{i:x}.txn"))))
            .collect();
        assert_eq!(classes.len(), 1, "{classes:?}");
    }

    #[test]
    fn names_without_numbers_stay() {
        for name in ["", "db", "/dev/shm/feed", "relative/path", "/a/b/checkpoint", "/deep//double/"] {
            assert_eq!(file_class(name), name);
        }
    }

    #[test]
    fn a_long_path_keeps_its_end() {
        let class = file_class(&format!("/{}/é/journal/1f.txn", "directory/".repeat(40)));
        assert!(class.len() <= LABEL_BYTES_MAX && class.starts_with("..."), "{class}");
        assert!(class.ends_with("/é/journal/HEX.txn"), "{class}");
        assert!(file_class(&"é".repeat(500)).len() <= LABEL_BYTES_MAX);
    }
}

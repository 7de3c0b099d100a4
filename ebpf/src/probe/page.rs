//! Whose pages a request carries, from its first page to the file.

use fsyncscope_ebpf::layout::ABSENT;
use fsyncscope_ebpf::limits::MERGED_BIOS;
use fsyncscope_ebpf::slot::Request;

use super::memory::{Object, offset, peek};

/// The file whose page-cache page comes first in a write, by bio, page, mapping, inode: its inode and device, or zeros.
///
/// A page that is not under writeback is not the cache's own: a direct write from an mmapped buffer would name the
/// buffer's file. Such a page may be under writeback for its own file just then, so direct writes are left out before.
/// An anonymous page's mapping has its low bits set.
#[inline(always)]
pub fn file_of(bio: Object) -> (u64, u32) {
    let page = peek!(peek!(bio, bio_vectors: Object), vector_page: u64);
    let page = head_of(page) as Object;
    if peek!(page, page_flags: u64) >> (offset!(flag_writeback) & 63) & 1 == 0 {
        return (0, 0);
    }
    let mapping = peek!(page, page_mapping: u64);
    if mapping == 0 || mapping & 3 != 0 {
        return (0, 0);
    }
    let inode = peek!(mapping as Object, mapping_host: Object);
    (peek!(inode, inode_number: u64), peek!(peek!(inode, inode_super: Object), super_dev: u32))
}

/// Takes over what a request has become by merging since it started. It keeps its name only if all of it is one file's:
/// neighbours on the disk may be different files.
#[inline(always)]
pub fn merged(about: &mut Request, request: Object, bytes: u32) {
    about.bytes = bytes;
    about.sector = peek!(request, request_sector: u64);
    if about.inode == 0 {
        return;
    }
    let mut bio = peek!(request, request_bio: Object);
    let mut looked = 0;
    while !bio.is_null() {
        if looked == MERGED_BIOS || file_of(bio) != (about.inode, about.inode_dev) {
            about.inode = 0;
            about.inode_dev = 0;
            return;
        }
        looked += 1;
        bio = peek!(bio, bio_next: Object);
    }
}

/// The first page of the folio that a page belongs to.
#[inline(always)]
fn head_of(page: u64) -> u64 {
    let link = if offset!(page_compound_info) != ABSENT {
        peek!(page as Object, page_compound_info: u64)
    } else if offset!(page_compound_head) != ABSENT {
        peek!(page as Object, page_compound_head: u64)
    } else {
        return page;
    };
    if link & 1 == 0 {
        page
    } else if offset!(page_compound_info) != ABSENT && link >> 30 == u64::MAX >> 30 {
        page & link
    } else {
        link - 1
    }
}

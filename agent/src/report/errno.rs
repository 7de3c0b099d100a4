//! Names of the errors that a sync can return.

/// Name of a negative errno, or its number.
pub fn name(result: i32) -> String {
    let known = match -result {
        1 => "EPERM",
        4 => "EINTR",
        5 => "EIO",
        9 => "EBADF",
        11 => "EAGAIN",
        12 => "ENOMEM",
        16 => "EBUSY",
        19 => "ENODEV",
        22 => "EINVAL",
        27 => "EFBIG",
        28 => "ENOSPC",
        30 => "EROFS",
        116 => "ESTALE",
        117 => "EUCLEAN",
        121 => "EREMOTEIO",
        122 => "EDQUOT",
        number => return format!("errno {number}"),
    };
    known.to_owned()
}

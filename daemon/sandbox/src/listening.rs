//! Which programs of this machine listen on a Unix socket with a path.

use std::path::PathBuf;

/// Most sockets of the machine that are covered one by one.
const SOCKETS_MAX: usize = 1024;

/// The Unix sockets of this machine that have a path and take connections or messages.
pub(crate) fn sockets() -> Vec<PathBuf> {
    // Only Linux has the file; elsewhere only what is known by its place is covered.
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    listed(&table).take(SOCKETS_MAX).collect()
}

/// Those in the kernel's table: number, references, protocol, flags, type, state, inode, path.
fn listed(table: &str) -> impl Iterator<Item = PathBuf> {
    const LISTENS: &str = "00010000";
    const MESSAGES: &str = "0002";
    table.lines().skip(1).filter_map(|line| {
        // Numbers are padded, and a path may hold spaces.
        let (mut fields, mut path) = ([""; 7], line);
        for field in &mut fields {
            (*field, path) = path.trim_start().split_once(' ')?;
        }
        let open = fields[3] == LISTENS || fields[4] == MESSAGES;
        (open && path.starts_with('/')).then(|| PathBuf::from(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_that_listen_are_read_from_the_kernels_table() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 20 /tmp/a b.sock\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 21 /tmp/connected\n\
            0000000000000000: 00000002 00000000 00000000 0002 01    22 /run/log\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 23 @abstract\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 24\n";
        assert_eq!(listed(table).collect::<Vec<_>>(), [PathBuf::from("/tmp/a b.sock"), PathBuf::from("/run/log")]);
    }
}

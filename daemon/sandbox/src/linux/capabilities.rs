//! What root may do beyond files: a daemon of root starts commands of root.

/// Numbers of the capabilities that commands of root keep (`linux/capability.h`): chown, dac_override, fowner, fsetid,
/// kill, setgid, setuid, net_bind_service, net_raw, ipc_lock, sys_chroot, sys_nice, sys_resource, audit_write, setfcap.
/// Not kept are, above all, sys_admin, sys_ptrace, sys_module, sys_rawio, sys_boot, dac_read_search (opens files by
/// number, past any path), mknod, bpf and net_admin.
const KEPT: [u32; 15] = [0, 1, 3, 4, 5, 6, 7, 10, 13, 14, 18, 23, 24, 29, 31];
/// Capabilities have lower numbers than this.
const NUMBERS: u32 = 64;

/// Takes all others from what a program may ever get. Fails for whoever has none to give up, which is as well.
#[allow(unsafe_code)]
pub(super) fn give_up() {
    for number in (0..NUMBERS).filter(|number| !KEPT.contains(number)) {
        // SAFETY: the call takes numbers only.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
    }
}

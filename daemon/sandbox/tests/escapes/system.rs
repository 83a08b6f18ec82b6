//! Other processes, sockets, the kernel, the network.

use crate::stage::{Held, Script, Try};

const fn shell(name: &'static str, script: &'static str) -> Try {
    Try { name, held: Held::Always, offline: false, shell: Script::Shell(script) }
}

const fn python(name: &'static str, script: &'static str) -> Try {
    Try { name, held: Held::Always, offline: false, shell: Script::Python(script) }
}

const fn offline(name: &'static str, script: &'static str) -> Try {
    Try { name, held: Held::Always, offline: true, shell: Script::Python(script) }
}

pub(crate) const PROCESSES: &[Try] = &[
    shell("end another process", "kill -9 $OUTSIDER"),
    shell("stop the daemon", "kill -0 $DAEMON && echo BROKEN"),
    python("a signal by a descriptor", "
f = os.pidfd_open(OUTSIDER)
signal.pidfd_send_signal(f, signal.SIGKILL)"),
    python("attach to the daemon", "
if libc.ptrace(0x4206, DAEMON, 0, 0) == 0: print('BROKEN')"),
    python("attach to the outsider", "
if libc.ptrace(0x4206, OUTSIDER, 0, 0) == 0: print('BROKEN')"),
    python("open the memory of the daemon", "os.open('/proc/%d/mem' % DAEMON, os.O_RDWR); print('BROKEN')"),
    python("read the memory of the daemon", "os.open('/proc/%d/mem' % DAEMON, os.O_RDONLY); print('BROKEN')"),
    python("the maps of the daemon", "print('BROKEN' if open('/proc/%d/maps' % DAEMON).read() else '')"),
    python("copy memory of the outsider", "
class Iov(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]
b = ctypes.create_string_buffer(8)
at = int(open('/proc/%d/stat' % OUTSIDER).read().rsplit(')', 1)[1].split()[25]) or int(open('/proc/%d/maps' % OUTSIDER).read().split('-')[0], 16)
here, there = Iov(ctypes.addressof(b), 8), Iov(at, 8)
if libc.process_vm_readv(OUTSIDER, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) == 8: print('BROKEN')"),
    python("take a descriptor of the daemon", "
if libc.syscall(438, os.pidfd_open(DAEMON), 0, 0) >= 0: print('BROKEN')"),
    python("where the descriptors of the daemon lead", "print('BROKEN', os.readlink('/proc/%d/fd/1' % DAEMON))"),
    python("enter the daemon's namespaces by its folder", "os.open('/proc/%d/ns/mnt' % DAEMON, os.O_RDONLY); print('BROKEN')"),
    python("connect to an abstract socket", "
s = socket.socket(socket.AF_UNIX); s.connect('\\0' + os.environ['ABSTRACT']); print('BROKEN')"),
    Try {
        name: "connect to the daemon's socket",
        held: Held::WithNamespaces,
        offline: false,
        shell: Script::Python("s = socket.socket(socket.AF_UNIX); s.connect(SOCK); print('BROKEN')"),
    },
    python("make a device", "
os.mknod(W + '/disk', 0o600 | 0o060000, os.makedev(7, 0)); print('BROKEN')"),
    python("mount something", "
os.mkdir(W + '/m')
if libc.mount(b'tmpfs', (W + '/m').encode(), b'tmpfs', 0, 0) == 0: print('BROKEN')"),
    shell("the machine's own settings", "echo 1 > /proc/sys/vm/drop_caches && echo BROKEN"),
    python("files by number, past any path", "
class Handle(ctypes.Structure): _fields_ = [('bytes', ctypes.c_uint), ('type', ctypes.c_int), ('data', ctypes.c_char * 128)]
h, m = Handle(128), ctypes.c_int()
if libc.name_to_handle_at(-100, (OUT + '/file').encode(), ctypes.byref(h), ctypes.byref(m), 0): sys.exit(2)
if libc.open_by_handle_at(os.open(W, os.O_RDONLY), ctypes.byref(h), 0) >= 0: print('BROKEN')"),
];

pub(crate) const NETWORK: &[Try] = &[
    offline("TCP", "socket.create_connection(('127.0.0.1', int(os.environ['TCP']))); print('BROKEN')"),
    offline("UDP", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', int(os.environ['UDP'])))"),
    offline("a raw socket", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); print('BROKEN')"),
    offline("IPv6", "socket.socket(socket.AF_INET6, socket.SOCK_STREAM); print('BROKEN')"),
    offline("routing messages", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); print('BROKEN')"),
    offline("packets", "socket.socket(17, socket.SOCK_RAW, 0); print('BROKEN')"),
    offline("listen", "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); print('BROKEN')"),
    offline("sockets by io_uring", "
b = ctypes.create_string_buffer(120)
if libc.syscall(425, 4, b) >= 0: print('BROKEN')"),
    Try {
        name: "bash's own TCP",
        held: Held::Always,
        offline: true,
        shell: Script::Shell("bash -c 'exec 3<>/dev/tcp/127.0.0.1/'$TCP' && echo BROKEN'"),
    },
    Try {
        name: "from a child in a session of its own",
        held: Held::Always,
        offline: true,
        shell: Script::Shell(
            "setsid -w $PYTHON -c \"import socket,os; socket.create_connection(('127.0.0.1', int(os.environ['TCP']))); print('BROKEN')\"",
        ),
    },
];
